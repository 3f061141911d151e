"""What an entry source is given and what becomes of what it puts down; letters are taken in as if there were none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.delay_queue import entry_keys, envelope_codec, envelopes
from retry.delay_queue.blocks import count_entries
from retry.delay_queue.control_records import pause_key
from retry.delay_queue.entry_keys import Lane
from retry.delay_queue.envelopes import Also, Call, Entry, Named, Recurrence
from retry.delivery.admission import Admission
from retry.intake import entry_source
from retry.intake.attempts import RecentLineages
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.intake.batch import BatchResult
from retry.intake.build_entry import EntryBuilder
from retry.intake.intake import Intake
from retry.intake.read_positions import ReadPosition
from retry.kafka.interface import CommittedOffset
from retry.kafka.topics import TopicNames
from retry.testing.kafka import MemoryLog, MemoryRecord, MemoryTransactionalProducer
from tests.support.plans import registry_of

NOW_MS = 1_700_000_000_000
SHARDS = 4
NAMES = TopicNames("changelog", "outcomes", "lineage", "parked", "intake", "table")
POLICIES = "teams: {orders: {topics: [{dead_letters: orders.DLT, retry_to: orders.retry}]}}"
BYTES, NAME = st.binary(max_size=9), st.binary(max_size=20)
VERSION = st.integers(0, (1 << 64) - 1)


class Fake:
    """An entry source that puts down each message as it comes."""

    def __init__(self, topic: str) -> None:
        self.topics: Sequence[str] = (topic,)
        self.given: list[bytes | None] = []

    def reads_topic(self, topic: str) -> bool:
        return topic in self.topics

    def permits_target(self, team: str, destination: str) -> bool:
        return team == self.topics[0] and destination in ("anywhere", "https://example.com:443")

    def prepare(self, messages: Sequence[Any], now_ms: int, into: BatchResult) -> None:
        for message in messages:
            self.given.append(message.value())
            name = entry_keys.hash_name(*self.topics, self.topics[0], message.key())
            row = envelopes.build_cancel(name, message.offset(), entry_keys.build_key_stem(self.topics[0], 0), message.offset())
            into.entries[entry_keys.find_shard(name, SHARDS)].append({"key": row[0], "value": row[1]})


def find_no_source(wanted: Collection[Any]) -> dict[Any, Any]:
    return dict.fromkeys(wanted, "source_gone")


def intake(*through: Fake) -> Intake:
    registry = registry_of(POLICIES)
    attempt_counter = AttemptCounter(RecentLineages(100), "cluster", registry.retry_targets_by_team())
    entry_builder = EntryBuilder("changelog", "parked", {"changelog": 1 << 20})
    partitions = {"changelog": SHARDS, "outcomes": 2, "lineage": 2}
    return Intake(registry, attempt_counter, entry_builder, find_no_source, NAMES, partitions, through)


def message(topic: str, n: int) -> MemoryRecord:
    return MemoryRecord(Entry(topic, b"%d" % (n % 3), b"%d" % n, [], None, ""), 0, n, NOW_MS)


def test_each_door_gets_its_own_messages_in_their_order_and_letters_are_settled_as_without() -> None:
    topics = ["orders.DLT", "schedules", "orders.DLT", "tasks", "schedules"] * 300
    messages = [message(topic, n) for n, topic in enumerate(topics)]
    first, second = Fake("schedules"), Fake("tasks")
    result = intake(first, second).prepare(iter(messages), NOW_MS)
    for source in (first, second):
        assert source.given == [each.value() for each in messages if each.topic() == source.topics[0]]
    letters = [each for each in messages if each.topic() == "orders.DLT"]
    alone = intake().prepare(iter(letters), NOW_MS)
    assert result.outcomes == alone.outcomes
    assert result.anywhere == alone.anywhere
    assert all(row["key"][0] == entry_keys.NAMED for rows in result.entries.values() for row in rows)
    assert sum(count_entries(row["key"]) for row in result.iterate_entries()) == len(messages)


def test_a_batch_without_a_letter_is_taken_in_with_its_offsets() -> None:
    log = MemoryLog()
    for topic in ("changelog", "outcomes", "lineage", NAMES.positions):
        log.create(topic, SHARDS)
    writer = MemoryTransactionalProducer(log, "intake")
    writer.open()
    taking = intake(Fake("schedules"))
    result = taking.prepare([message("schedules", n) for n in range(5)], NOW_MS)
    taking.write(result, {("schedules", 0): ReadPosition(topic_id="id", offset=5)}, "intake", writer)
    writer.commit()
    assert len(log.read("changelog")) == 5
    assert (log.read("outcomes"), log.committed_offsets) == ([], {("intake", "schedules", 0): CommittedOffset(5, "id")})


def test_what_is_read_and_where_it_may_go_is_asked_of_doors_too() -> None:
    registry, source = registry_of(POLICIES), Fake("schedules")
    assert entry_source.list_subscription(registry, [source]) == ["orders.DLT", "schedules"]
    taking = intake(source)
    assert [taking.reads_topic(topic) for topic in ("orders.DLT", "schedules", "others")] == [True, True, False]
    assert not intake().reads_topic("schedules")
    admission = Admission(
        registry, {"parked"}, lambda topics: dict.fromkeys(topics - {"anywhere"}, "it is not there"), lambda: 1.0, [source]
    )
    open_, elsewhere, calls = (Lane("schedules", "schedules", to) for to in ("anywhere", "else", "https://example.com:443"))
    permits = [admission.acquire_permits(lane, 7, NOW_MS, {}) for lane in (open_, elsewhere, calls)]
    assert permits == [7, 0, 7], "no topic is asked for a host"
    assert admission.acquire_permits(open_, 7, NOW_MS, {pause_key("team", "schedules"): b'{"since_ms":1}'}) == 0
    admission.use(registry)
    assert admission.acquire_permits(open_, 7, NOW_MS, {}) == 0


@given(st.integers(-(1 << 63), entry_keys.DUE_MS_MAX), NAME, VERSION, st.integers(0, 99), st.integers(0, (1 << 48) - 1))
def test_a_named_key_says_what_it_was_made_from(due_ms: int, told: bytes, version: int, partition: int, offset: int) -> None:
    name, lane = entry_keys.hash_name("door", "topic", told), entry_keys.build_named_lane("team", "topic", "to")
    key = entry_keys.build_named_key(due_ms, name, version, entry_keys.build_key_stem("topic", partition), offset, lane)
    assert entry_keys.read_source(key) == (due_ms, "topic", partition, offset)
    assert (entry_keys.lane_of(key), entry_keys.name_of(key), entry_keys.read_version(key)) == (lane, name, version)
    assert entry_keys.due_at_ms(entry_keys.make_key_due_at(key, 5)) == 5
    assert (
        entry_keys.extract_letter(key)
        == entry_keys.extract_letter(entry_keys.make_key_due_at(key, 5))
        == entry_keys.build_key_stem("topic", partition) + key[-8:]
    )
    assert envelopes.build_cancel(name, version, entry_keys.build_key_stem("topic", partition), offset)[0].startswith(
        entry_keys.CANCEL
    )


@given(st.integers(0, 9), st.integers(0, 9), NAME, NAME)
def test_in_a_named_lane_what_is_due_first_sorts_first(one_ms: int, other_ms: int, one: bytes, other: bytes) -> None:
    lane, stem = entry_keys.build_named_lane("team", "topic", "to"), entry_keys.build_key_stem("topic", 0)
    told = (one_ms, one), (other_ms, other)
    first, second = (
        entry_keys.build_named_key(due_ms, entry_keys.hash_name("d", "t", of), 1, stem, 1, lane) for due_ms, of in told
    )
    assert one_ms == other_ms or (first < second) == (one_ms < other_ms)


def test_names_differ_by_door_topic_and_what_is_told() -> None:
    told = [("a", "b", b"c"), ("a", "bc", b""), ("ab", "", b"c"), ("a", "b", b"d")]
    assert len({entry_keys.hash_name(*each) for each in told}) == 4
    assert {entry_keys.find_shard(entry_keys.hash_name("a", "b", b"%d" % n), SHARDS) for n in range(100)} == set(range(SHARDS))


WHOLE = Named(
    "to", b"k", b"v", [("h", None)], 5, "team", 7, (Also("x", 3, b"k", None, True, [("h", b"1")]), Also("y", None, None, b"")),
    Recurrence(3, NOW_MS, cron="0 9 * * *", zone="Europe/Zurich"), Call("https://example.com/x", id="i", attempt=2),
)  # fmt: skip


def test_an_envelope_holds_all_of_a_named_entry_and_readers_of_plain_ones_pass_over_the_rest() -> None:
    envelope = envelopes.encode(WHOLE)
    assert envelopes.decode_named(envelope) == WHOLE == envelope_codec.PLAIN.decode(entry_keys.CANCEL, envelope)
    assert envelopes.decode(envelope) == Entry("to", b"k", b"v", [("h", None)], 5, "team", 7)


def test_a_plain_envelope_is_no_longer_for_it() -> None:
    plain = Entry("to", b"k", b"v", [], 5, "team", 7)
    assert envelopes.encode(plain) == bytes.fromhex("9801a2746fc4016bc401769005a47465616d07")
    assert envelopes.decode_named(envelopes.encode(plain)) == Named("to", b"k", b"v", [], 5, "team", 7)
    assert type(envelope_codec.PLAIN.decode(entry_keys.COMMON, envelopes.encode(plain))) is Entry


@pytest.mark.parametrize("destination", ["orders", "a.b-c_d", "https://example.com:443", "http://[::1]:80"])
def test_a_lane_of_calls_is_told_by_its_destination(destination: str) -> None:
    assert Lane("t", "s", destination).calls is ("://" in destination)
