"""A standby becomes a shard and a shard a standby, with one table that is the changelog's fold all the time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError

from retry import clock
from retry.delay_queue.table.rocksdb import Memory
from retry.delay_queue.table.table_directory import RocksTables
from retry.delivery.sweep import ChangelogPartition
from retry.kafka.interface import OffsetBounds
from retry.worker.shards.restore import Phase, ShardContext
from retry.worker.shards.shard import Shard
from tests.support.tables import everything, plain_key

DAY_MS = 86_400_000
CHANGELOG = ChangelogPartition("changelog", 0)
KEYS = [plain_key(1_000 + n, n) for n in range(4)]


class Told(NamedTuple):
    """A consumed changelog record, or the end of the partition."""

    at: int
    row: tuple[bytes, bytes | None] | None

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return self.row[0] if self.row else b""

    def value(self) -> bytes | None:
        return self.row[1] if self.row else None

    def error(self) -> KafkaError | None:
        return None if self.row else KafkaError(KafkaError._PARTITION_EOF)


class Today:
    """A wall clock that goes when it is told to."""

    now_ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_s(self) -> float:
        return self.now_ms / 1_000

    def pause(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1_000)

    def wait(self, changed: threading.Condition, seconds: float) -> None:
        self.pause(seconds)


class Bench:
    """One changelog partition of which a test says how far it goes, and a shard of it."""

    def __init__(self, folder: Path, today: Today) -> None:
        self.bounds_now, self.today = OffsetBounds(0, 0), today
        tables = RocksTables(folder, "changelog", "cluster", "topic", Memory(8 << 20), DAY_MS)
        unused: Any = None  # Nothing is swept.
        self.shard_context = ShardContext(self, tables, unused, unused, 1, 1)  # type: ignore[arg-type]
        self.shard = Shard.stand_by(CHANGELOG, self.shard_context, self.bounds_now)

    def fetch_bounds(self, _topic: str, partitions: list[int]) -> dict[int, OffsetBounds]:
        return dict.fromkeys(partitions, self.bounds_now)

    def put(self, *numbers: int) -> None:
        self._fold([(KEYS[n], b"%d" % n) for n in numbers])

    def delete(self, *numbers: int) -> None:
        self._fold([(KEYS[n], None) for n in numbers])

    def _fold(self, rows: list[tuple[bytes, bytes | None]]) -> None:
        at = self.shard.table.next_offset
        fold: Any = self.shard.apply_messages
        fold([Told(at + n, row) for n, row in enumerate(rows)])
        self.bounds_now = OffsetBounds(0, max(self.bounds_now.end, at + len(rows)))

    def at_end(self) -> None:
        fold: Any = self.shard.apply_messages
        fold([Told(self.bounds_now.end, None)])

    def waiting(self) -> set[bytes]:
        found = everything(self.shard.table)
        assert len(found) == self.shard.count_waiting()
        return set(found.values())


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    today = Today()
    clock.use(today)
    made = Bench(tmp_path, today)
    yield made
    made.shard.close()
    clock.use(clock.MACHINE)


def test_3_7_a_standby_is_ready_only_behind_the_end_that_it_finds_when_it_is_taken_over(bench: Bench) -> None:
    bench.put(0, 1, 2)
    assert bench.shard.phase is Phase.STANDBY
    bench.bounds_now = OffsetBounds(0, 5)
    assert bench.shard.take_over(bench.shard_context)
    assert (bench.shard.phase, bench.shard.to_restore()) == (Phase.RESTORING, 2)
    bench.delete(1)
    assert bench.shard.phase is Phase.RESTORING
    bench.at_end()
    assert (bench.shard.phase, bench.waiting()) == (Phase.READY, {b"0", b"2"})


def test_who_is_current_is_ready_at_once_and_there_and_back_again_it_stays_the_same_fold(bench: Bench) -> None:
    bench.put(0, 1)
    for _ in range(2):
        assert bench.shard.take_over(bench.shard_context)
        assert bench.shard.phase is Phase.READY
        assert bench.shard.hand_over()
        assert bench.shard.phase is Phase.STANDBY
    found = bench.shard.table.find_due(10_000, 10, 1_000, KEYS[0][:9])
    bench.delete(0)
    bench.put(2)
    assert (len(found), bench.waiting()) == (2, {b"1", b"2"})


@pytest.mark.parametrize("bounds", [OffsetBounds(3, 9), OffsetBounds(0, 1)])
def test_a_standby_outside_of_the_log_is_closed_and_wiped(bench: Bench, bounds: OffsetBounds) -> None:
    bench.put(0, 1)
    bench.bounds_now = bounds
    assert not bench.shard.take_over(bench.shard_context)
    bench.shard.close()
    bench.shard = Shard.open(CHANGELOG, bench.shard_context)
    assert (bench.shard.table.next_offset, bench.waiting(), bench.shard.phase) == (0, set(), Phase.RESTORING)


def test_a_standby_that_was_deaf_for_too_long_is_wiped_though_it_hears_again(bench: Bench) -> None:
    bench.put(0, 1)
    bench.today.now_ms += DAY_MS + 1
    bench.shard.note_end(bench.shard.table.next_offset, bench.today.now_ms)
    bench.delete(0)
    assert (bench.shard.phase, bench.shard.unreadable) == (Phase.BROKEN, True)


def test_an_owner_that_was_frozen_for_too_long_does_not_stand_by_with_what_it_has(bench: Bench) -> None:
    bench.put(0, 1)
    assert bench.shard.take_over(bench.shard_context)
    bench.today.now_ms += DAY_MS + 1
    bench.at_end()
    bench.shard.note_end(bench.shard.table.next_offset, bench.today.now_ms)
    assert (bench.shard.phase, bench.shard.unreadable) == (Phase.BROKEN, True)
    assert not bench.shard.hand_over()


def test_what_had_been_fetched_before_an_owner_was_frozen_for_too_long_does_not_make_its_table_current(bench: Bench) -> None:
    bench.put(0, 1)
    assert bench.shard.take_over(bench.shard_context)
    bench.today.now_ms += DAY_MS + 1
    bench.delete(0)
    assert (bench.shard.phase, bench.shard.table.next_offset) == (Phase.BROKEN, 2)


def test_a_table_that_was_read_on_and_on_without_coming_to_the_end_is_not_trusted_when_it_is_opened_again(bench: Bench) -> None:
    bench.bounds_now = OffsetBounds(0, 100)
    bench.put(0)
    for _ in range(3):
        bench.today.now_ms += DAY_MS // 4
        bench.put(1)
    assert bench.shard.table.next_offset == 4
    bench.shard.close()
    bench.today.now_ms += DAY_MS // 4 + 1
    bench.shard = Shard.stand_by(CHANGELOG, bench.shard_context, bench.bounds_now)
    assert (bench.shard.table.next_offset, bench.waiting()) == (0, set())


def test_a_restore_that_takes_too_long_is_begun_anew(bench: Bench) -> None:
    bench.bounds_now = OffsetBounds(0, 100)
    bench.put(0)
    assert bench.shard.take_over(bench.shard_context)
    bench.today.now_ms += DAY_MS + 1
    bench.put(1)
    assert (bench.shard.phase, bench.shard.unreadable) == (Phase.BROKEN, True)


def test_a_standby_that_is_told_again_and_again_that_there_is_no_more_may_be_taken_over_after_any_time(bench: Bench) -> None:
    bench.put(0, 1)
    for _ in range(50):
        bench.today.now_ms += DAY_MS // 10
        bench.shard.note_end(bench.shard.table.next_offset, bench.today.now_ms)
        bench.shard.touch()
    assert bench.shard.take_over(bench.shard_context)
    assert bench.shard.hand_over()
    bench.shard.close()
    bench.shard = Shard.stand_by(CHANGELOG, bench.shard_context, bench.bounds_now)
    assert bench.waiting() == {b"0", b"1"}


def test_touching_does_not_make_a_standby_current_that_lags(bench: Bench) -> None:
    bench.put(0, 1)
    bench.today.now_ms += DAY_MS - 1
    bench.shard.note_end(100, bench.today.now_ms)
    bench.shard.touch()
    assert bench.shard.lag() == 98
    bench.shard.close()
    bench.today.now_ms += 2
    bench.shard = Shard.stand_by(CHANGELOG, bench.shard_context, bench.bounds_now)
    assert (bench.shard.table.next_offset, bench.waiting()) == (0, set())
