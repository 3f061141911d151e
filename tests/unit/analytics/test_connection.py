"""The Java client gets the operator's identity, and nothing that it would not understand."""

from __future__ import annotations

import re

import pytest

connection = pytest.importorskip("retry.analytics.spark_kafka_options")


def test_without_properties_only_the_address_the_isolation_and_the_patience_are_set() -> None:
    found = connection.options("broker:9092", {})
    assert found["kafka.isolation.level"] == "read_committed"
    assert set(found) == {
        "kafka.bootstrap.servers",
        "kafka.isolation.level",
        "kafka.request.timeout.ms",
        "kafka.default.api.timeout.ms",
    }


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "plain.PlainLoginModule"),
        ("SCRAM-SHA-256", "scram.ScramLoginModule"),
        ("SCRAM-SHA-512", "scram.ScramLoginModule"),
    ],
)
@pytest.mark.parametrize("spelling", ["sasl.mechanism", "sasl.mechanisms"])
def test_name_and_password_become_a_login(spelling: str, mechanism: str, module: str) -> None:
    found = connection.options("b:1", {spelling: mechanism, "sasl.username": "me", "sasl.password": 'a"b\\c;'})
    login = f'org.apache.kafka.common.security.{module} required username="me" password="a\\"b\\\\c;";'
    assert found["kafka.sasl.jaas.config"] == login
    assert found["kafka.sasl.mechanism"] == mechanism


def test_the_authority_becomes_a_pem_truststore() -> None:
    found = connection.options("b:1", {"security.protocol": "ssl", "ssl.ca.location": "/etc/ca.pem"})
    assert found["kafka.security.protocol"] == "SSL"
    assert found["kafka.ssl.truststore.type"] == "PEM"
    assert found["kafka.ssl.truststore.location"] == "/etc/ca.pem"


def test_what_tunes_librdkafka_and_unknown_mechanisms_are_left_out() -> None:
    given = {"linger.ms": "5", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "secret", "debug": "all"}
    assert "secret" not in str(connection.options("b:1", given))
    assert "kafka.linger.ms" not in connection.options("b:1", given)


def test_every_option_that_holds_a_secret_is_redacted_by_spark() -> None:
    assert re.search(connection.SECRETS_PATTERN, "kafka.sasl.jaas.config")
    assert re.search(connection.SECRETS_PATTERN, "kafka.ssl.truststore.password")
