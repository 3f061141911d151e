"""Under `null_value: cancel` a null parks what waits under its key, each letter once, and goes to be parked itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest

from retry.dead_letters import retry_headers as names
from retry.delay_queue import entry_keys
from retry.delay_queue.entry_keys import NULLS
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.interface import Table
from retry.delivery.admission import Admission
from retry.delivery.cancel import Cancelling
from retry.delivery.redecide import Redecider
from retry.delivery.sweep import ChangelogPartition
from retry.errors import TransactionFailed
from retry.intake.attempts import LineageTopic, RecentLineages, hash_payload, make_fingerprint
from retry.intake.attempts.attempt_counter import AttemptCounter
from retry.intake.build_entry import CANCELLED, NO_KEY, NULL_VALUE, EntryBuilder
from retry.intake.intake import Intake
from retry.kafka.topics import TopicNames
from retry.testing.kafka import Fault, MemoryLog, MemoryRecord, MemoryTransactionalProducer
from tests.support.acted import move_context
from tests.support.bench import sweep
from tests.support.plans import registry_of
from tests.support.tables import ALL, NOW_MS

HOUR_MS = 3_600_000
CHANGELOG = ChangelogPartition("changelog", 0)
NAMES = TopicNames("changelog", "outcomes", "lineage", "parked", "intake", "table")
POLICIES = """
defaults: {backoff: {kind: constant, delay: 1h}, jitter: none, null_value: cancel}
teams:
  orders:
    topics:
      - dead_letters: orders.DLT
        retry_to: orders.retry
        park_to: orders.parked
        rules: [{exception: '*.Slow', retry_to: slow.retry}, {exception: '*.Bad', park: true}]
      - {dead_letters: keyed.DLT, retry_to: keyed.retry, ordered: true}
  others: {null_value: retry, topics: [{dead_letters: others.DLT, retry_to: others.retry}]}
"""
REGISTRY = registry_of(POLICIES)
PACKER = EntryBuilder("changelog", "parked", {"changelog": 1_000_000})
TOPICS = ("outcomes", "lineage", "parked", "orders.retry", "orders.parked", "slow.retry", "keyed.retry", "others.retry")


class Shard:
    """One shard, as its owner has it: what is taken in is folded at once."""

    def __init__(self, table: Table) -> None:
        self.table, self.log = table, MemoryLog()
        for topic in ("changelog", *TOPICS):
            self.log.create(topic)
        self.offsets: Counter[tuple[str, int]] = Counter()
        self.open()

    def open(self) -> None:
        """Take over: nothing of the former process is left but the table."""
        self.writer, self.work = MemoryTransactionalProducer(self.log, "shard-0"), Cancelling(CHANGELOG, self.table)
        self.writer.open()
        self.fold()

    def take(
        self, key: bytes | None = b"a", value: bytes | None = b"value", topic: str = "orders.DLT", partition: int = 0,
        exception: bytes = b"x.Fault", incarnation: int = 0,
    ) -> str:  # fmt: skip
        """Take in one letter; its source."""
        attempt_counter = AttemptCounter(RecentLineages(1_000), "cluster", REGISTRY.retry_targets_by_team())
        intake = Intake(REGISTRY, attempt_counter, PACKER, find_no_source, NAMES, {"changelog": 1, "outcomes": 1, "lineage": 1})
        offset = self.offsets[topic, partition]
        self.offsets[topic, partition] += 1
        letter = Entry(topic, key, value, [("exception-class", exception)], None, "")
        incarnations = {(topic, partition): incarnation}
        settled = intake.prepare([MemoryRecord(letter, partition, offset, NOW_MS)], NOW_MS, incarnations)
        stranger = MemoryTransactionalProducer(self.log, "intake")
        stranger.open()
        stranger.begin()
        stranger.write("changelog", 0, list(settled.iterate_entries()))
        stranger.write("lineage", 0, [row for rows in settled.lineages.values() for row in rows])
        stranger.commit()
        self.fold()
        return f"{topic}/{partition}/{offset}"

    def fold(self) -> None:
        rows = [(r.key() or b"", r.value()) for r in self.log.read("changelog")]
        self.table.apply_records(rows[self.table.next_offset :], len(rows), NOW_MS)

    def step(self, rows_max: int = 100) -> bool:
        redecider = Redecider(REGISTRY, PACKER, LineageTopic("lineage", 1))
        return self.work.move_batch(move_context(self.writer, redecider, NOW_MS, rows_max=rows_max, end=self.end)).has_ended

    def end(self) -> int:
        return len(self.log.read("changelog"))

    def finish(self, rows_max: int = 100) -> int:
        """Batches until nothing is left to follow, the fold following each; how many there were."""
        for n in range(1, 1_000):
            ended = self.step(rows_max)
            self.fold()
            if ended:
                return n
        raise AssertionError("no end")

    def sends(self, key: bytes, value: bytes) -> bool:
        """Whether a send is on record that an equal letter would be taken for."""
        recent = RecentLineages(1_000)
        for record in self.log.read("lineage"):
            recent.apply_batch(record.value() or b"")
        print_ = make_fingerprint("orders.DLT", hash_payload(key, value))
        return recent.find_team("orders").find_returned(print_, NOW_MS + HOUR_MS, 24 * HOUR_MS) is not None

    def sweep(self, now_ms: int) -> dict[str, tuple[str, str | None]]:
        """Sweep, and tell of each letter that is due at a time where it goes, and why it is parked."""
        admission = Admission(REGISTRY, {"parked"}, lambda _: {}, lambda: 1.0)
        told: dict[str, tuple[str, str | None]] = {}
        while sent := sweep(self.table, self.writer, CHANGELOG, admission, now_ms, 100, 1 << 20).sent:
            self.fold()
            for entry in sent:
                ours = {name: (value or b"").decode() for name, value in entry.headers if name in names.OURS}
                assert ours[names.SOURCE] not in told
                told[ours[names.SOURCE]] = entry.destination, ours.get(names.PARKED_REASON)
        return told

    def live(self) -> dict[bytes, bytes]:
        """The fold of the changelog, which the table agrees with."""
        folded = {record.key() or b"": record.value() for record in self.log.read("changelog")}
        live = {key: value for key, value in folded.items() if value is not None}
        behind = {key: envelope for _, key, envelope in self.table.page_behind(b"", ALL)}
        assert dict(row[1:] for row in self.table.scan_entries(b"", ALL)) | behind == live
        assert self.table.waiting == len(live)
        return live


def find_no_source(wanted: Collection[tuple[str, int, int]]) -> Mapping[tuple[str, int, int], Any]:
    return dict.fromkeys(wanted, "source_gone")


@pytest.fixture
def shard(table: Table) -> Iterator[Shard]:
    found = Shard(table)
    yield found
    found.live()


@pytest.mark.parametrize("rows_max", [1, 3, 100])
def test_3_8_a_null_parks_earlier_letters_of_its_key_and_partition_and_no_others(shard: Shard, rows_max: int) -> None:
    other_topic, first, slow = shard.take(topic="others.DLT"), shard.take(), shard.take(exception=b"x.Slow")
    other_key, other_partition, without_key = shard.take(b"b"), shard.take(partition=1), shard.take(None)
    null, later = shard.take(value=None), shard.take()
    shard.finish(rows_max)
    parked = "orders.parked"
    assert shard.sweep(NOW_MS) == {first: (parked, CANCELLED), slow: (parked, CANCELLED), null: (parked, NULL_VALUE)}
    sent = "orders.retry", None
    expected = dict.fromkeys((other_key, other_partition, without_key, later), sent) | {other_topic: ("others.retry", None)}
    assert shard.sweep(NOW_MS + HOUR_MS) == expected


def test_a_letter_that_was_cancelled_is_new_when_an_equal_one_comes(shard: Shard) -> None:
    shard.take(b"a", b"value")
    assert shard.sends(b"a", b"value")
    shard.take(b"a", None)
    shard.finish()
    assert not shard.sends(b"a", b"value")


@pytest.mark.parametrize("rows_max", [1, 2, 100])
def test_letters_that_wait_in_a_queue_are_cancelled_with_its_head_and_the_next_come_forward(shard: Shard, rows_max: int) -> None:
    cancelled = [shard.take(topic="keyed.DLT") for _ in range(3)]
    null, later = shard.take(value=None, topic="keyed.DLT"), shard.take(topic="keyed.DLT")
    shard.finish(rows_max)
    assert shard.sweep(NOW_MS) == {**dict.fromkeys(cancelled, ("parked", CANCELLED)), null: ("parked", NULL_VALUE)}
    assert shard.sweep(NOW_MS + HOUR_MS) == {later: ("keyed.retry", None)}


def test_letters_with_the_same_coordinates_that_are_cancelled_together_never_get_one_key(shard: Shard) -> None:
    # Their topic was deleted and made anew while the first of them waited.
    shard.take(exception=b"x.Slow")
    shard.offsets.clear()
    shard.take()
    shard.take(value=None)
    shard.finish()
    assert len(shard.live()) == 3


def test_a_null_cancels_what_its_topic_had_before_it_was_made_again_and_none_of_before_cancels_what_it_has_now(
    shard: Shard,
) -> None:
    shard.offsets["orders.DLT", 0] = 100
    waits, null_of_before = shard.take(b"a"), shard.take(b"b", None)
    shard.offsets.clear()
    null, stays = shard.take(b"a", None, incarnation=1), shard.take(b"b", incarnation=1)
    shard.finish()
    reasons = {source: reason for source, (_, reason) in shard.sweep(NOW_MS).items()}
    assert reasons == {waits: CANCELLED, null: NULL_VALUE, null_of_before: NULL_VALUE}
    assert stays in shard.sweep(NOW_MS + HOUR_MS)


def test_of_several_nulls_the_last_of_a_key_counts_and_one_look_does_for_all(shard: Shard) -> None:
    first, null, second, last = shard.take(), shard.take(value=None), shard.take(), shard.take(value=None)
    other, other_null = shard.take(b"b"), shard.take(b"b", None)
    assert shard.finish() == 3
    told = shard.sweep(NOW_MS)
    assert {source: reason for source, (_, reason) in told.items()} == {
        **dict.fromkeys((first, second, other), CANCELLED), **dict.fromkeys((null, last, other_null), NULL_VALUE)
    }  # fmt: skip


def test_a_cancelled_letter_that_another_partition_pushes_back_in_the_queue_meanwhile_is_found(shard: Shard) -> None:
    pushed, null = shard.take(topic="keyed.DLT", partition=1), shard.take(value=None, topic="keyed.DLT", partition=1)
    assert not shard.step()
    first = shard.take(topic="keyed.DLT", partition=0)
    shard.finish()
    assert shard.sweep(NOW_MS) == {pushed: ("parked", CANCELLED), null: ("parked", NULL_VALUE)}
    assert shard.sweep(NOW_MS + HOUR_MS) == {first: ("keyed.retry", None)}


def test_a_null_without_a_key_cancels_nothing_and_parks(shard: Shard) -> None:
    waits, null = shard.take(None), shard.take(None, None)
    assert not shard.step()
    assert shard.sweep(NOW_MS) == {null: ("orders.parked", NO_KEY)}
    assert shard.sweep(NOW_MS + HOUR_MS) == {waits: ("orders.retry", None)}


def test_where_the_team_says_retry_or_a_rule_parks_it_a_null_cancels_nothing(shard: Shard) -> None:
    theirs, ours = shard.take(topic="others.DLT"), shard.take()
    null, bad = shard.take(value=None, topic="others.DLT"), shard.take(value=None, exception=b"x.Bad")
    assert not shard.step()
    assert shard.sweep(NOW_MS) == {bad: ("orders.parked", "rule")}
    sent = {theirs: ("others.retry", None), null: ("others.retry", None), ours: ("orders.retry", None)}
    assert shard.sweep(NOW_MS + HOUR_MS) == sent


def test_a_null_waits_where_nothing_is_delivered_from_until_it_was_followed(shard: Shard) -> None:
    shard.take(value=None)
    assert [key[: entry_keys.LANE_BYTES] for key in shard.live()] == [NULLS]
    assert shard.sweep(NOW_MS + HOUR_MS) == {}
    shard.finish()
    assert len(shard.sweep(NOW_MS)) == 1
    assert not shard.step()
    assert shard.table.find_due_lanes(NOW_MS) == []


def test_a_null_that_comes_while_others_are_followed_has_its_turn(shard: Shard) -> None:
    first, null = shard.take(b"b"), shard.take(value=None)
    assert not shard.step()
    late = shard.take(b"b", None)
    shard.finish()
    assert shard.sweep(NOW_MS) == {null: ("orders.parked", NULL_VALUE)}
    shard.finish()
    assert shard.sweep(NOW_MS) == {first: ("orders.parked", CANCELLED), late: ("orders.parked", NULL_VALUE)}


def test_a_letter_that_was_just_moved_and_is_not_folded_again_is_waited_for(shard: Shard) -> None:
    letter, null = shard.take(), shard.take(value=None)
    [(old, envelope)] = [row for row in shard.live().items() if not row[0].startswith(NULLS)]
    shard.writer.begin()
    new = entry_keys.make_key_due_at(old, NOW_MS + 2 * HOUR_MS)
    shard.writer.write("changelog", 0, [{"key": new, "value": envelope}, {"key": old, "value": None}])
    shard.writer.commit()
    shard.table.delete_rows([old])
    shard.work.expect_fold()
    assert not any(shard.step() for _ in range(5))
    shard.fold()
    shard.finish()
    assert shard.sweep(NOW_MS) == {letter: ("orders.parked", CANCELLED), null: ("orders.parked", NULL_VALUE)}
    assert shard.sweep(NOW_MS + 2 * HOUR_MS) == {}


@pytest.mark.parametrize("fault", [Fault.ABORTED, Fault.DOUBT_COMMITTED, Fault.DOUBT_OPEN])
@pytest.mark.parametrize("at", [0, 1, 2, 3, 4])
def test_after_a_crash_at_any_commit_each_letter_is_parked_once(shard: Shard, at: int, fault: Fault) -> None:
    letters = [shard.take(topic="keyed.DLT" if n % 2 else "orders.DLT") for n in range(4)]
    nulls = [shard.take(value=None, topic=topic) for topic in ("keyed.DLT", "orders.DLT")]
    for _ in range(at):
        shard.step(2)
        shard.fold()
    shard.log.faults.append(fault)
    while any(key.startswith(NULLS) for key in shard.live()):
        try:
            shard.step(2)
        except TransactionFailed:
            shard.open()
        shard.fold()
    shard.log.faults.clear()
    told = {source: reason for source, (_, reason) in shard.sweep(NOW_MS).items()}
    assert told == {**dict.fromkeys(letters, CANCELLED), **dict.fromkeys(nulls, NULL_VALUE)}
