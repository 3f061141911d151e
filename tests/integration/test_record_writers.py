"""Which transaction a record was written in is found on plain and on secured brokers; where it is not, nothing fails."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from confluent_kafka import Producer

from retry.kafka.local_broker import LocalBroker
from retry.kafka.record_writers import RecordWriters, Writer
from tests.support.ports import free_port
from tests.support.reading import QUIET, admin
from tests.support.secured import ADMIN, SecuredBroker
from tests.support.topics import create

pytestmark = pytest.mark.check

PATIENT_S = 60.0


def write(servers: str, topic: str, transactional_id: str) -> None:
    """Write two records in a transaction of one producer."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id, "logger": QUIET})
    producer.init_transactions(PATIENT_S)
    producer.begin_transaction()
    for value in (b"first", b"second"):
        producer.produce(topic, value, partition=0)
    producer.commit_transaction(PATIENT_S)


def write_two_epochs(servers: str, epochs: int) -> tuple[str, str]:
    """The topic and the transactional id of two records that a producer wrote when it was opened for the last time."""
    topic, name = (f"t{uuid.uuid4().hex[:8]}" for _ in range(2))
    create(admin(servers), topic, 1)
    for _ in range(epochs):
        write(servers, topic, name)
    return topic, name


def test_the_transaction_of_each_record_is_found(broker: LocalBroker) -> None:
    topic, name = write_two_epochs(broker.bootstrap_servers, 2)
    writers = RecordWriters({"bootstrap.servers": broker.bootstrap_servers})
    # A batch, the marker of its end, and the same by the producer that took its place.
    first, again = (writers.find(topic, 0, offset) for offset in (1, 4))
    assert first is not None and again is not None
    assert first == Writer(name, first.producer_id, first.epoch, 0)
    assert again == Writer(name, first.producer_id, first.epoch + 1, 3)
    assert str(again) == f"{name}, producer {again.producer_id}, epoch {again.epoch}, batch at 3"


def test_a_record_of_a_transaction_that_was_undone_is_told_apart(broker: LocalBroker) -> None:
    topic, name = (f"t{uuid.uuid4().hex[:8]}" for _ in range(2))
    create(admin(broker.bootstrap_servers), topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "logger": QUIET})
    producer.init_transactions(PATIENT_S)
    for end in (producer.abort_transaction, producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(topic, b"value", partition=0)
        producer.flush(PATIENT_S)
        end(PATIENT_S)
    writers = RecordWriters({"bootstrap.servers": broker.bootstrap_servers})
    found = [writer for offset in (0, 2, 4) if (writer := writers.find(topic, 0, offset)) is not None]
    assert [writer.was_undone for writer in found] == [True, False, True]
    assert [writer.is_listed for writer in found] == [True, False, True]
    told = f", which was undone, and its leader, node {found[0].leader}, says so to readers"
    assert [str(writer).endswith(told) for writer in found] == [True, False, True]


def test_a_mark_in_the_next_file_of_the_log_is_found(broker: LocalBroker) -> None:
    """A record of long ago has a file to itself: its mark is of now, and files are of a week."""
    topic, name = (f"t{uuid.uuid4().hex[:8]}" for _ in range(2))
    create(admin(broker.bootstrap_servers), topic, 1, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "logger": QUIET})
    producer.init_transactions(PATIENT_S)
    producer.begin_transaction()
    producer.produce(topic, b"of 1970", timestamp=1)
    producer.flush(PATIENT_S)
    producer.abort_transaction(PATIENT_S)
    writer = RecordWriters({"bootstrap.servers": broker.bootstrap_servers}).find(topic, 0, 0)
    assert writer is not None and writer.was_undone and writer.is_listed


def test_who_wrote_without_transactions_is_said(broker: LocalBroker) -> None:
    topic = f"t{uuid.uuid4().hex[:8]}"
    create(admin(broker.bootstrap_servers), topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "logger": QUIET})
    producer.produce(topic, b"plain")
    assert producer.flush(PATIENT_S) == 0
    writer = RecordWriters({"bootstrap.servers": broker.bootstrap_servers}).find(topic, 0, 0)
    assert writer == Writer("", -1, -1, 0) and str(writer) == "a producer without transactions, batch at 0"


@pytest.mark.parametrize("way", ["password", "certificate"])
def test_brokers_that_ask_for_a_login_are_asked_with_that_of_the_service(secured: SecuredBroker, way: str) -> None:
    topic, name = write_two_epochs(secured.inner.bootstrap_servers, 1)
    config: dict[str, Any] = {"bootstrap.servers": secured.bootstrap_servers, **secured.client(ADMIN, "admin's own")}
    if way == "password":
        secured.add_user(ADMIN, "admin's own")
    else:
        certificate, key = secured.certificate(ADMIN, "of the key")
        config = {
            "bootstrap.servers": secured.mutual_servers, "security.protocol": "ssl", "ssl.ca.location": str(secured.authority),
            "ssl.certificate.location": str(certificate), "ssl.key.location": str(key), "ssl.key.password": "of the key",
        }  # fmt: skip
    writer = RecordWriters(config).find(topic, 0, 0)
    assert writer is not None and writer.transactional_id == name


def test_nothing_is_found_where_nothing_can_be_and_that_is_said_once(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic, _ = write_two_epochs(broker.bootstrap_servers, 1)
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    assert RecordWriters(servers).find(topic, 0, 1_000) is None
    assert RecordWriters(servers).find(topic, 7, 0) is None
    assert RecordWriters({"bootstrap.servers": f"127.0.0.1:{free_port()}"}).find(topic, 0, 0) is None
    assert [record.name for record in caplog.records if record.name != QUIET.name] == ["retry.kafka.record_writers"] * 2
    oidc = {**servers, "security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"}
    assert RecordWriters(oidc).find(topic, 0, 0) is None
