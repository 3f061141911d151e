"""What a door is given and what becomes of what it puts down; letters are taken in as if there were none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from retry.intake import entry_source
from retry.delay_queue import entry as entries
from retry.delay_queue.control_records import pause_key
from retry.delay_queue.entry import Also, Call, Entry, Named
from retry.delivery.admission import Gate
from retry.delay_queue.lane import Lane
from retry.intake.intake import Intake
from retry.testing.kafka import MemoryLog, MemoryRecord, MemoryTransactions
from retry.kafka.topics import Names
from retry.intake.attempts import Lineages
from retry.intake.build_entry import Packer
from retry.delay_queue.recurrence import Plan
from retry.intake.settled import Settled
from retry.intake.attempts.attempt_counter import Tracer
from tests.support.plans import registry_of

NOW_MS = 1_700_000_000_000
SHARDS = 4
NAMES = Names("changelog", "outcomes", "lineage", "parked", "intake", "table")
POLICIES = "teams: {orders: {topics: [{dead_letters: orders.DLT, retry_to: orders.retry}]}}"
BYTES, NAME = st.binary(max_size=9), st.binary(max_size=20)
VERSION = st.integers(0, (1 << 64) - 1)


class Fake:
    """A door that puts down each message as it comes."""

    def __init__(self, topic: str) -> None:
        self.topics: Sequence[str] = (topic,)
        self.given: list[bytes | None] = []

    def reads(self, topic: str) -> bool:
        return topic in self.topics

    def permits(self, team: str, destination: str) -> bool:
        return team == self.topics[0] and destination in ("anywhere", "https://example.com:443")

    def settle(self, messages: Sequence[Any], now_ms: int, into: Settled) -> None:
        for message in messages:
            self.given.append(message.value())
            name = entries.name(*self.topics, self.topics[0], message.key())
            row = entries.cancel(name, message.offset(), entries.key_stem(self.topics[0], 0), message.offset())
            into.entries[entries.shard_of(name, SHARDS)].append({"key": row[0], "value": row[1]})


def nothing(wanted: Collection[Any]) -> dict[Any, Any]:
    return dict.fromkeys(wanted, "source_gone")


def intake(*through: Fake) -> Intake:
    registry = registry_of(POLICIES)
    tracer = Tracer(Lineages(100), "cluster", registry.retry_targets())
    packer = Packer("changelog", "parked", {"changelog": 1 << 20})
    return Intake(registry, tracer, packer, nothing, NAMES, {"changelog": SHARDS, "outcomes": 2, "lineage": 2}, through)


def message(topic: str, n: int) -> MemoryRecord:
    return MemoryRecord(Entry(topic, b"%d" % (n % 3), b"%d" % n, [], None, ""), 0, n, NOW_MS)


def test_each_door_gets_its_own_messages_in_their_order_and_letters_are_settled_as_without() -> None:
    topics = ["orders.DLT", "schedules", "orders.DLT", "tasks", "schedules"] * 300
    messages = [message(topic, n) for n, topic in enumerate(topics)]
    first, second = Fake("schedules"), Fake("tasks")
    settled = intake(first, second).settle(iter(messages), NOW_MS)
    for door in (first, second):
        assert door.given == [each.value() for each in messages if each.topic() == door.topics[0]]
    letters = [each for each in messages if each.topic() == "orders.DLT"]
    alone = intake().settle(iter(letters), NOW_MS)
    assert settled.outcomes == alone.outcomes
    for shard in range(SHARDS):
        plain = [row for row in settled.entries[shard] if row["key"][0] != entries.NAMED]
        assert plain == alone.entries[shard]
    assert sum(map(len, settled.entries.values())) == len(messages)


def test_a_batch_without_a_letter_is_taken_in_with_its_offsets() -> None:
    log = MemoryLog()
    for topic in ("changelog", "outcomes", "lineage"):
        log.create(topic, SHARDS)
    writer = MemoryTransactions(log, "intake")
    writer.open()
    taking = intake(Fake("schedules"))
    settled = taking.settle([message("schedules", n) for n in range(5)], NOW_MS)
    taking.commit(settled, [TopicPartition("schedules", 0, 5)], "intake", writer)
    assert len(log.read("changelog")) == 5
    assert (log.read("outcomes"), log.positions) == ([], {("intake", "schedules", 0): 5})


def test_what_is_read_and_where_it_may_go_is_asked_of_doors_too() -> None:
    registry, door = registry_of(POLICIES), Fake("schedules")
    assert entry_source.subscription(registry, [door]) == ["orders.DLT", "schedules"]
    taking = intake(door)
    assert [taking.reads(topic) for topic in ("orders.DLT", "schedules", "others")] == [True, True, False]
    assert not intake().reads("schedules")
    gate = Gate(registry, "parked", lambda topics: dict.fromkeys(topics - {"anywhere"}, "it is not there"), lambda: 1.0, [door])
    open_, elsewhere, calls = (Lane("schedules", "schedules", to) for to in ("anywhere", "else", "https://example.com:443"))
    assert [gate.take(lane, 7, NOW_MS, {}) for lane in (open_, elsewhere, calls)] == [7, 0, 7], "no topic is asked for a host"
    assert gate.take(open_, 7, NOW_MS, {pause_key("team", "schedules"): b'{"since_ms":1}'}) == 0
    gate.use(registry)
    assert gate.take(open_, 7, NOW_MS, {}) == 0


@given(st.integers(-(1 << 63), entries.DUE_MS_MAX), NAME, VERSION, st.integers(0, 99), st.integers(0, (1 << 63) - 1))
def test_a_named_key_says_what_it_was_made_from(due_ms: int, told: bytes, version: int, partition: int, offset: int) -> None:
    name, lane = entries.name("door", "topic", told), entries.named_lane("team", "topic", "to")
    key = entries.named_key(due_ms, name, version, entries.key_stem("topic", partition), offset, lane)
    assert entries.source(key) == (due_ms, "topic", partition, offset)
    assert (entries.lane_of(key), entries.name_of(key), entries.version_of(key)) == (lane, name, version)
    assert entries.due_at_ms(entries.postponed(key, 5)) == 5
    assert entries.letter(key) == entries.letter(entries.postponed(key, 5)) == entries.key_stem("topic", partition) + key[-8:]
    assert entries.cancel(name, version, entries.key_stem("topic", partition), offset)[0].startswith(entries.CANCEL)


@given(st.integers(0, 9), st.integers(0, 9), NAME, NAME)
def test_in_a_named_lane_what_is_due_first_sorts_first(one_ms: int, other_ms: int, one: bytes, other: bytes) -> None:
    lane, stem = entries.named_lane("team", "topic", "to"), entries.key_stem("topic", 0)
    told = (one_ms, one), (other_ms, other)
    first, second = (entries.named_key(due_ms, entries.name("d", "t", of), 1, stem, 1, lane) for due_ms, of in told)
    assert one_ms == other_ms or (first < second) == (one_ms < other_ms)


def test_names_differ_by_door_topic_and_what_is_told() -> None:
    told = [("a", "b", b"c"), ("a", "bc", b""), ("ab", "", b"c"), ("a", "b", b"d")]
    assert len({entries.name(*each) for each in told}) == 4
    assert {entries.shard_of(entries.name("a", "b", b"%d" % n), SHARDS) for n in range(100)} == set(range(SHARDS))


WHOLE = Named(
    "to", b"k", b"v", [("h", None)], 5, "team", 7, (Also("x", 3, b"k", None, True, [("h", b"1")]), Also("y", None, None, b"")),
    Plan(3, NOW_MS, cron="0 9 * * *", zone="Europe/Zurich"), Call("https://example.com/x", id="i", attempt=2),
)  # fmt: skip


def test_an_envelope_holds_all_of_a_named_entry_and_readers_of_plain_ones_pass_over_the_rest() -> None:
    envelope = entries.encode(WHOLE)
    assert entries.decode_named(envelope) == WHOLE == entries.decode_as(entries.CANCEL, envelope)
    assert entries.decode(envelope) == Entry("to", b"k", b"v", [("h", None)], 5, "team", 7)


def test_a_plain_envelope_is_no_longer_for_it() -> None:
    plain = Entry("to", b"k", b"v", [], 5, "team", 7)
    assert entries.encode(plain) == bytes.fromhex("9801a2746fc4016bc401769005a47465616d07")
    assert entries.decode_named(entries.encode(plain)) == Named("to", b"k", b"v", [], 5, "team", 7)
    assert type(entries.decode_as(entries.COMMON, entries.encode(plain))) is Entry


@pytest.mark.parametrize("destination", ["orders", "a.b-c_d", "https://example.com:443", "http://[::1]:80"])
def test_a_lane_of_calls_is_told_by_its_destination(destination: str) -> None:
    assert Lane("t", "s", destination).calls is ("://" in destination)
