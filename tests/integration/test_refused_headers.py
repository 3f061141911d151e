"""Records with more headers than librdkafka reads back are told from those that have none."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from retry.clock import Deadline
from retry.delay_queue.envelopes import HEADERS_MAX
from retry.kafka import refused_headers
from retry.kafka.client_config import build_reader_config
from retry.kafka.local_broker import LocalBroker, free_port
from retry.kafka.record_fetch import UNREADABLE, RecordFetcher
from retry.kafka.refused_headers import RefusedHeaders, UnreadableHeaders
from retry.settings import Settings
from tests.support.process import await_that
from tests.support.reading import admin, consumer
from tests.support.topics import create_all

COUNTS = (0, 1, HEADERS_MAX - 10, HEADERS_MAX, HEADERS_MAX + 1, 0, 150_000, 3)
_ASK_S = 30.0
# Each took a second.
TOPICS = 40


@pytest.fixture(scope="module")
def topic(broker: LocalBroker) -> str:
    """Two partitions of records with so many headers each, compressed so that no size tells them apart."""
    name = f"many-{uuid.uuid4().hex[:8]}"
    client = admin(broker.bootstrap_servers)
    create_all(client, [NewTopic(name, 2, 1)])
    # Idempotent: a batch that is sent once more, as to a topic that was just made, keeps its place among the others.
    config = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd", "message.max.bytes": 10 << 20}
    producer = Producer({**config, "enable.idempotence": True})
    for partition in (0, 1):
        for count in COUNTS:
            producer.produce(name, b"%d" % count, b"k", partition, headers=[("a", None)] * count)
    assert producer.flush(_ASK_S) == 0
    return name


@pytest.fixture
def header_refusals(broker: LocalBroker) -> Iterator[RefusedHeaders]:
    made = RefusedHeaders(build_reader_config(Settings(bootstrap_servers=broker.bootstrap_servers)))
    yield made
    made.close()


def read(reader: Consumer, topic: str) -> list[Message]:
    """All records of it, as the client has them."""
    reader.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
    found: list[Message] = []

    def all_came() -> bool:
        found.extend(message for message in reader.consume(100, 0.1) if message.error() is None)
        return len(found) == 2 * len(COUNTS)

    await_that("all are read", all_came)
    return found


def test_records_whose_headers_the_client_refuses_are_told_from_those_without(
    broker: LocalBroker, topic: str, header_refusals: RefusedHeaders
) -> None:
    reader = consumer(broker.bootstrap_servers)
    messages = read(reader, topic)
    reader.close()
    # What the client alone makes of them.
    alone = {int(m.value() or b""): len(m.headers() or []) for m in messages}
    assert alone == {count: 0 if count > HEADERS_MAX else count for count in COUNTS}
    for _ in range(2):
        told = header_refusals.replace_unreadable(list(messages))
        assert [(m.partition(), m.offset()) for m in told] == [(m.partition(), m.offset()) for m in messages]
        assert all(isinstance(m, UnreadableHeaders) == (int(m.value()) > HEADERS_MAX) for m in told)
    untold = next(m for m in told if isinstance(m, UnreadableHeaders))
    with pytest.raises(SystemError):
        untold.headers()
    assert (untold.topic(), untold.key(), len(untold)) == (topic, b"k", len(messages[COUNTS.index(HEADERS_MAX + 1)]))


def test_a_topic_that_is_looked_at_first_keeps_nobody_waiting(broker: LocalBroker, header_refusals: RefusedHeaders) -> None:
    """The client by itself takes a second to find the leader of each topic that it is assigned later than its first."""
    names = [f"first-{uuid.uuid4().hex[:8]}" for _ in range(TOPICS)]
    create_all(admin(broker.bootstrap_servers), [NewTopic(name, 1, 1) for name in names])
    producer, reader = Producer({"bootstrap.servers": broker.bootstrap_servers}), consumer(broker.bootstrap_servers)
    for name in names:
        producer.produce(name, b"without headers")
    assert producer.flush(_ASK_S) == 0
    reader.assign([TopicPartition(name, 0, 0) for name in names])
    messages: dict[str | None, Message] = {}

    def all_came() -> bool:
        messages.update((message.topic(), message) for message in reader.consume(100, 0.1) if message.error() is None)
        return len(messages) == TOPICS

    await_that("all are read", all_came)
    reader.close()
    deadline = Deadline(TOPICS / 2)
    for message in messages.values():
        assert header_refusals.replace_unreadable([message]) == [message]
    assert not deadline.has_passed()


def test_pointers_to_such_records_are_told_too(broker: LocalBroker, topic: str) -> None:
    pointers = RecordFetcher(build_reader_config(Settings(bootstrap_servers=broker.bootstrap_servers)))
    found = pointers.fetch([(topic, 1, offset) for offset in range(len(COUNTS))], _ASK_S)
    pointers.close()
    assert [isinstance(what, UnreadableHeaders) for what in found.values()] == [count > HEADERS_MAX for count in COUNTS]
    assert UNREADABLE not in found.values()


def test_records_that_were_deleted_since_they_were_read_keep_nobody_waiting(
    broker: LocalBroker, topic: str, header_refusals: RefusedHeaders
) -> None:
    reader = consumer(broker.bootstrap_servers)
    messages = [m for m in read(reader, topic) if m.headers() is None]
    reader.close()
    # The last of one partition, and all of the other.
    ends = [TopicPartition(topic, 0, len(COUNTS) - 1), TopicPartition(topic, 1, len(COUNTS))]
    client = admin(broker.bootstrap_servers)
    for done in client.delete_records(ends).values():
        done.result(_ASK_S)
    assert header_refusals.replace_unreadable(list(messages)) == messages


def test_nobody_answers_and_nothing_is_guessed(
    broker: LocalBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_headers, "_WITHIN_S", 0.3)
    refused = RefusedHeaders(build_reader_config(Settings(bootstrap_servers=f"127.0.0.1:{free_port()}")))
    with pytest.raises(TimeoutError, match="not known"):
        refused._find_refused([(topic, 0, 0)])
    refused.close()
