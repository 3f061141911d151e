"""Spark reads from a broker that wants a certificate or a password, with the settings with which the service does."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from retry.analytics import decode, spark_kafka_options
from tests.support.reading import QUIET
from tests.support.secured import Right, SecuredBroker
from tests.support.sizes import only_in_faults
from tests.support.topics import create

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

pytestmark = pytest.mark.check

TOPIC, USER, PASSPHRASE = "spark-secured.outcomes", "spark-reader", "a passphrase, locked"


@pytest.fixture(scope="module")
def broker(secured: SecuredBroker) -> SecuredBroker:
    """Three records that one user may read."""
    create(secured.admin, TOPIC, 1)
    secured.add_user(USER, PASSPHRASE)
    secured.grant([Right(f"User:{USER}", "topic", TOPIC, "read")])
    producer = Producer({
        "bootstrap.servers": secured.inner.bootstrap_servers, "enable.idempotence": True, "logger": QUIET
    })  # fmt: skip
    for n in range(3):
        producer.produce(TOPIC, b"%d" % n)
    assert producer.flush(30.0) == 0
    return secured


def choose_connection(broker: SecuredBroker, way: str) -> tuple[str, dict[str, str]]:
    """Choose where to connect, and librdkafka's properties for it."""
    certificate, key = broker.certificate(USER, PASSPHRASE)
    locked = {"ssl.key.password": PASSPHRASE}
    if way == "password":
        return broker.bootstrap_servers, broker.client(USER, PASSPHRASE)
    trust = {"security.protocol": "ssl", "ssl.ca.location": str(broker.authority)}
    if way == "files":
        return broker.mutual_servers, {
            **trust,
            "ssl.certificate.location": str(certificate),
            "ssl.key.location": str(key),
            **locked,
        }
    if way == "pem":
        pems = {"ssl.ca.pem": broker.authority, "ssl.certificate.pem": certificate, "ssl.key.pem": key}
        return broker.mutual_servers, {"security.protocol": "ssl", **{n: f.read_text() for n, f in pems.items()}, **locked}
    owner = load_pem_private_key(key.read_bytes(), PASSPHRASE.encode())
    store = key.with_suffix(".p12")
    whose = x509.load_pem_x509_certificate(certificate.read_bytes())
    store.write_bytes(serialize_key_and_certificates(b"me", owner, whose, None, BestAvailableEncryption(PASSPHRASE.encode())))
    return broker.mutual_servers, {**trust, "ssl.keystore.location": str(store), "ssl.keystore.password": PASSPHRASE}


@pytest.mark.parametrize("way", ["keystore", *only_in_faults("files", "pem", "password")])
def test_spark_connects_as_the_service_does(broker: SecuredBroker, spark: SparkSession, way: str) -> None:
    servers, kafka = choose_connection(broker, way)
    # The service's own client takes them, so they are what they are taken for.
    producer = Producer({"bootstrap.servers": servers, "logger": QUIET, **kafka})
    assert TOPIC in producer.list_topics(timeout=30.0).topics
    patient = {f"kafka.{name}.timeout.ms": "120000" for name in ("request", "default.api")}
    rows = decode.load_records(spark, spark_kafka_options.build_options(servers, kafka) | patient, [TOPIC])
    assert rows.count() == 3
    assert PASSPHRASE not in rows._jdf.queryExecution().toString()
    assert "PRIVATE KEY" not in rows._jdf.queryExecution().toString()


def test_spark_without_a_certificate_is_not_let_in(broker: SecuredBroker, spark: SparkSession) -> None:
    kafka = {"security.protocol": "ssl", "ssl.ca.location": str(broker.authority)}
    soon = {"kafka.request.timeout.ms": "3000", "kafka.default.api.timeout.ms": "3000"}
    with pytest.raises(Exception, match=r"(?i)ssl|timed out|timeout"):
        decode.load_records(spark, spark_kafka_options.build_options(broker.mutual_servers, kafka) | soon, [TOPIC]).count()
