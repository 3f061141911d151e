"""Whole topics, read once from the first record to the end that they have when reading begins."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicMetadata

from retry.clock import Deadline, pause
from retry.kafka.asked_again import NOT_KNOWN_YET, ask_until_answered
from tests.support.process import await_that

Place = tuple[str, int]
Ends = dict[Place, int]
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
_ASK_S = 20.0
# What librdkafka says of brokers that a test ends on purpose.
QUIET = logging.getLogger("tests.clients")


class Record(NamedTuple):
    """One record as a consumer sees it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int

    def header(self, name: str) -> str:
        """The last value of a header as text; empty where it is not there."""
        found = [value for header, value in self.headers if header == name]
        return (found[-1] or b"").decode() if found else ""


def admin(bootstrap_servers: str) -> AdminClient:
    """A client for topics."""
    return AdminClient({"bootstrap.servers": bootstrap_servers, "logger": QUIET})


def consumer(bootstrap_servers: str, isolation_level: str = COMMITTED, **more: Any) -> Consumer:
    """A reader outside every group; `more` are properties of the client, with `_` for each dot."""
    return Consumer({
        "bootstrap.servers": bootstrap_servers,
        "group.id": f"reader-{uuid.uuid4().hex}",
        "isolation.level": isolation_level,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 100,
        "logger": QUIET,
        **{name.replace("_", "."): value for name, value in more.items()},
    })


def partitions(bootstrap_servers: str, topics: Iterable[str]) -> list[TopicPartition]:
    """All partitions of some topics, from their beginning."""
    wanted, client = list(topics), admin(bootstrap_servers)
    found: dict[str, TopicMetadata] = {}

    def knows_all() -> bool:
        # One of several brokers may not know yet what another has told whoever created it.
        found.update(ask_until_answered(lambda within_s: client.list_topics(timeout=within_s), 3 * _ASK_S).topics)
        return found.keys() >= set(wanted)

    await_that(f"{wanted} are known", knows_all)
    return [TopicPartition(topic, n, OFFSET_BEGINNING) for topic in wanted for n in found[topic].partitions]


def read(
    bootstrap_servers: str, topics: Iterable[str], isolation_level: str, timeout_s: float = 120.0, **more: Any
) -> list[Record]:
    """Every record of some topics.

    Read is up to the end that counts undecided records, so a transaction that stays open makes this fail and not pass. `more` is
    as for `consumer`.
    """
    wanted = partitions(bootstrap_servers, topics)
    # Kept until the answer is there: a client that nobody holds is closed.
    client = admin(bootstrap_servers)
    ends = _ends(client, wanted)
    open_ends = {place for place, end in ends.items() if end}
    found: list[Record] = []
    reader = consumer(bootstrap_servers, isolation_level, **more)
    try:
        reader.assign(wanted)
        deadline = Deadline(timeout_s)
        while open_ends:
            for message in reader.consume(10_000, 0.2):
                _note(message, found, ends, open_ends)
            assert not deadline.has_passed(), f"{isolation_level}: cannot be read to the end: {sorted(open_ends)}"
    finally:
        reader.close()
    return found


def _note(message: Message, found: list[Record], ends: Ends, open_ends: set[Place]) -> None:
    place = message.topic(), message.partition()
    error = message.error()
    if error is None:
        found.append(_record(message))
    elif error.code() == KafkaError._PARTITION_EOF and message.offset() >= ends[place]:
        open_ends.discard(place)


def _record(m: Message) -> Record:
    return Record(m.topic(), m.partition(), m.offset(), m.key(), m.value(), m.headers() or [], m.timestamp()[1])


def _ends(client: AdminClient, wanted: list[TopicPartition]) -> Ends:
    # Of a topic that was just made, the client may not know the leaders yet.
    return ask_until_answered(lambda within_s: _ends_now(client, wanted, within_s), 3 * _ASK_S, NOT_KNOWN_YET)


def _ends_now(client: AdminClient, wanted: list[TopicPartition], within_s: float) -> Ends:
    asked = client.list_offsets(
        {TopicPartition(p.topic, p.partition): OffsetSpec.latest() for p in wanted},
        isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=within_s,
    )  # fmt: skip
    return {(p.topic, p.partition): done.result(within_s).offset for p, done in asked.items()}


class Tail:
    """Follows topics as they grow, read_committed, and counts distinct values of one header."""

    def __init__(self, bootstrap_servers: str, topics: Iterable[str], header: str = "retry-source") -> None:
        self.records: list[Record] = []
        self.seen: set[str] = set()
        self._header = header
        self._consumer = consumer(bootstrap_servers)
        self._consumer.assign(partitions(bootstrap_servers, topics))

    def read(self, wait_s: float = 0.1) -> list[Record]:
        """Read the records that are new."""
        new = [_record(m) for m in self._consumer.consume(10_000, wait_s) if m.error() is None]
        self.records += new
        self.seen |= {record.header(self._header) for record in new}
        return new

    def await_seen(self, count: int, timeout_s: float = 120.0) -> None:
        """Read until so many different ones were seen."""
        deadline = Deadline(timeout_s)
        while len(self.seen) < count:
            assert not deadline.has_passed(), f"{len(self.seen)} of {count} came back within {timeout_s:.0f} s"
            self.read()

    def await_more(self, count: int, timeout_s: float = 120.0) -> None:
        """Read until so many more different ones were seen."""
        self.await_seen(len(self.seen) + count, timeout_s)

    def quiet(self, seconds: float) -> list[Record]:
        """Read what comes within a time in which nothing should come."""
        deadline = Deadline(seconds)
        found = []
        while not deadline.has_passed():
            found += self.read()
            pause(0.01)
        return found

    def close(self) -> None:
        self._consumer.close()
