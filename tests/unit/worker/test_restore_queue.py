"""Shards with much to restore are read one after the other, and nobody waits for one that cannot be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from retry import clock
from retry.delivery.sweep import ChangelogPartition
from retry.testing.memory_table import MemoryTable
from retry.worker.shards import assignment, restore
from retry.worker.shards.assignment import RestoreQueue
from retry.worker.shards.restore import Phase
from retry.worker.shards.shard import Shard

TOPIC, MANY = "changelog", 10
UNUSED: Any = None


class Follower:
    """Hands out what a test gives it, and notes what it is to follow."""

    def __init__(self) -> None:
        self.followed: dict[int, int] = {}
        self.next: list[Any] = []

    def follow_partition(self, topic: str, partition: int, offset: int) -> None:
        assert topic == TOPIC and partition not in self.followed
        self.followed[partition] = offset

    def unfollow_partition(self, topic: str, partition: int) -> None:
        del self.followed[partition]

    def read(self, records_max: int, wait_s: float) -> list[Any]:
        read, self.next = self.next, []
        return read

    def close(self) -> None:
        self.followed.clear()


def make_consumed(partition: int, offset: int, *, end: bool = False) -> Any:
    """A consumed record, or the end of a partition."""
    return SimpleNamespace(partition=lambda: partition, offset=lambda: offset, error=lambda: "end" if end else None)


def shard(number: int, end_offset: int, *, standby: bool = False) -> Shard:
    """One with nothing folded yet."""
    return Shard(ChangelogPartition(TOPIC, number), MemoryTable(), UNUSED, end_offset, owned=not standby)


class Bench:
    """A queue over such a follower."""

    def __init__(self) -> None:
        self.follower, self.now_s = Follower(), 0.0
        self.queue = RestoreQueue(self.follower, TOPIC)

    def begin(self, *shards: Shard) -> None:
        for each in shards:
            self.queue.add_shard(each.changelog.partition, each)

    def read(self, *messages: Any, after_s: float = 0.0) -> set[int]:
        """Read these; what is followed then, with the next one begun where it is its turn."""
        self.now_s += after_s
        self.follower.next = [*messages]
        assert sum(map(len, self.queue.read(100, 0.0).values())) == len(messages)
        self.queue.read(100, 0.0)
        return set(self.follower.followed)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench()
    monkeypatch.setattr(clock, "monotonic_s", lambda: bench.now_s)
    monkeypatch.setattr(assignment, "MANY", MANY)
    return bench


def test_who_has_least_to_read_is_first_and_the_next_begins_when_it_is_nearly_read(bench: Bench) -> None:
    bench.begin(shard(0, 300), shard(1, 100), shard(2, 200))
    assert bench.read() == {1}
    assert [bench.queue.waits(n) for n in range(3)] == [True, False, True]
    assert bench.read(make_consumed(1, 89)) == {1}
    assert bench.read(make_consumed(1, 90)) == {1, 2}
    assert bench.read(make_consumed(2, 5), make_consumed(2, 200)) == {0, 1, 2}
    assert not any(bench.queue.waits(n) for n in range(3))


def test_a_short_tail_is_read_at_once_from_where_the_table_ends(bench: Bench) -> None:
    behind = shard(7, 100)
    behind.table.apply_records([], 100 - MANY, 0)
    bench.begin(shard(0, 300), behind)
    assert bench.read() == {0, 7}
    assert bench.follower.followed == {0: 0, 7: 90}


def test_a_copy_of_what_others_own_comes_last(bench: Bench) -> None:
    bench.begin(shard(0, 50, standby=True), shard(1, 300))
    assert bench.read() == {1}
    assert bench.read(make_consumed(1, 299)) == {0, 1}


def test_who_comes_to_the_end_of_what_can_be_read_holds_up_nobody(bench: Bench) -> None:
    """Behind it may lie a transaction that somebody left open, for as long as it likes."""
    bench.begin(shard(0, 100), shard(1, 200))
    assert bench.read(make_consumed(0, 3), make_consumed(0, 4, end=True)) == {0, 1}


def test_of_whom_nothing_comes_holds_up_nobody(bench: Bench) -> None:
    """The broker that leads it may be away."""
    bench.begin(shard(0, 100), shard(1, 200))
    assert bench.read() == {0}
    assert bench.read(make_consumed(0, 3), after_s=1.9) == {0}
    assert bench.read(make_consumed(5, 3), after_s=1.9) == {0}, "others' records say nothing of it"
    assert bench.read(make_consumed(5, 4), after_s=0.2) == {0, 1}


def test_a_thread_that_was_held_up_does_not_take_that_for_silence(bench: Bench) -> None:
    bench.begin(shard(0, 100), shard(1, 200))
    assert bench.read() == {0}
    assert bench.read(make_consumed(0, 3), after_s=60.0) == {0}


def test_who_is_given_up_makes_room(bench: Bench) -> None:
    bench.begin(shard(0, 100), shard(1, 200), shard(2, 300))
    assert bench.read() == {0}
    bench.queue.remove_shard(1)
    assert not bench.queue.waits(1)
    bench.queue.remove_shard(0)
    assert bench.read() == {2}
    bench.queue.remove_shard(2)
    bench.begin(shard(1, 200))
    assert bench.read() == {1}, "and may come again"


def test_closed_it_begins_nothing(bench: Bench) -> None:
    bench.begin(shard(0, 100), shard(1, 200))
    bench.queue.close()
    assert bench.read() == set()


def test_it_is_told_whether_any_is_to_be_read(bench: Bench) -> None:
    assert not bench.queue.is_restoring()
    bench.begin(shard(0, MANY), shard(1, 200))
    assert bench.queue.is_restoring(), "one waits"
    assert bench.read() == {0, 1}
    assert bench.queue.is_restoring(), "one is read"
    bench.read(make_consumed(1, 199))
    assert not bench.queue.is_restoring()


class NotedTable(MemoryTable):
    """Notes what it is told of bulk before each fold."""

    def __init__(self) -> None:
        super().__init__()
        self.in_bulk: list[bool] = []

    def bulk_load(self, *, on: bool) -> None:
        self.in_bulk.append(on)


def test_a_table_is_filled_in_bulk_until_it_is_read_and_all_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "_BULK_RECORDS", 2)
    table = NotedTable()
    filled = Shard(ChangelogPartition(TOPIC, 0), table, UNUSED, 3)
    filled.restoring.end_bulk()
    filled.apply_messages([make_consumed(0, 0, end=True)])
    filled.apply_messages([make_consumed(0, 2, end=True)])
    assert filled.phase is Phase.RESTORING
    filled.apply_messages([make_consumed(0, 3, end=True)])
    filled.apply_messages([make_consumed(0, 4, end=True)])
    assert (filled.phase, table.in_bulk) == (Phase.READY, [True] * len(table.in_bulk)), "it is swept while others are read"
    filled.restoring.end_bulk()
    filled.touch()
    assert table.in_bulk[-1] is False


def test_a_table_that_lacks_little_is_folded_as_usual() -> None:
    table = NotedTable()
    Shard(ChangelogPartition(TOPIC, 0), table, UNUSED, 3, owned=False).apply_messages([make_consumed(0, 3, end=True)])
    assert table.in_bulk == [False]
