"""The secured broker of the tests keeps out whom it should: what is tested with it would say nothing otherwise."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from retry.errors import BrokersRefused
from retry.kafka import client_config
from retry.kafka.record_limits import TopicLimits
from retry.kafka.target_probe import TargetProbe
from retry.settings import Settings
from tests.support.process import await_that
from tests.support.reading import QUIET
from tests.support.secured import Right, SecuredBroker
from tests.support.topics import configure, create

pytestmark = pytest.mark.check

# A client that is not let in tries again until its time is over.
_TOPIC, _ASK_S, _REFUSED_S = "secured-broker.orders", 30.0, 3.0


def _topics(broker: SecuredBroker, timeout_s: float = _ASK_S, **properties: str) -> set[str]:
    properties = {"bootstrap.servers": broker.bootstrap_servers, **properties}
    client = AdminClient({"logger": QUIET, **properties})
    return set(client.list_topics(timeout=timeout_s).topics)


def connect_client(broker: SecuredBroker, user: str) -> AdminClient:
    # A probe waits two seconds for its answer; a busy machine may need as long to connect and to let in.
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "logger": QUIET, **broker.client(user, "guest's own")})
    client.list_topics(timeout=_ASK_S)
    return client


@pytest.fixture(scope="module")
def user(secured: SecuredBroker) -> str:
    create(secured.admin, _TOPIC, 1)
    secured.add_user("guest", "guest's own")
    return "guest"


def test_a_user_sees_a_topic_while_that_is_granted_and_not_before_or_after(secured: SecuredBroker, user: str) -> None:
    right = Right(f"User:{user}", "topic", "secured-broker.", "describe", prefixed=True)
    client = secured.client(user, "guest's own")
    assert _topics(secured, **client) == set()
    secured.grant([right])
    assert _topics(secured, **client) == {_TOPIC}
    certificate, key = secured.certificate(user, "a passphrase")
    files = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key), "ssl.key.password": "a passphrase"}
    stranger = {
        "bootstrap.servers": secured.mutual_servers,
        "security.protocol": "ssl",
        "ssl.ca.location": str(secured.authority),
    }
    assert _topics(secured, **stranger, **files) == {_TOPIC}
    secured.withdraw([right])
    assert _topics(secured, **client) == set()
    with pytest.raises(KafkaException):
        _topics(secured, _REFUSED_S, **secured.client(user, "another"))
    with pytest.raises(KafkaException):
        _topics(secured, _REFUSED_S, **stranger)


def test_who_may_only_read_a_target_does_not_say_that_the_worker_may_not_write_to_it(secured: SecuredBroker, user: str) -> None:
    right = Right(f"User:{user}", "topic", _TOPIC, "read")
    secured.grant([right])
    client = connect_client(secured, user)
    probe = TargetProbe(client)
    await_that("it is told", lambda: "WRITE" in probe.probe_targets({_TOPIC}).get(_TOPIC, ""))
    assert TargetProbe(client, writes=False).find_closed({_TOPIC}) == {}
    assert TargetProbe(client, writes=False).find_closed({f"{_TOPIC}.unseen"}) == {}
    secured.withdraw([right])


def test_what_a_topic_takes_is_told_to_who_may_describe_its_configuration_and_unknown_to_others(
    secured: SecuredBroker, user: str
) -> None:
    client = connect_client(secured, user)
    write, describe = (Right(f"User:{user}", "topic", _TOPIC, operation) for operation in ("write", "describe-configs"))
    secured.grant([write])
    assert TargetProbe(client).ask_limits({_TOPIC, f"{_TOPIC}.unseen"}) == {}
    configure(secured.admin, _TOPIC, max_message_bytes="12345", message_timestamp_before_max_ms="1000")
    secured.grant([describe])
    probe = TargetProbe(client)
    await_that("it is told", lambda: probe.ask_limits({_TOPIC, f"{_TOPIC}.unseen"}) == {_TOPIC: TopicLimits(12_345, 1_000)})
    secured.withdraw([write, describe])


def test_a_wrong_password_is_said_to_be_one(secured: SecuredBroker, user: str) -> None:
    settings = Settings(bootstrap_servers=secured.bootstrap_servers, kafka=secured.client(user, "another"))
    with pytest.raises(BrokersRefused, match=r"refuse the login \(.*invalid credentials.*RETRY_KAFKA_SASL"):
        client_config.connect_admin(settings, within_s=1.0)
