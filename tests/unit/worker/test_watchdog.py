"""What counts as standing still, what does not, and for how long it is borne; on a clock that goes when it is told to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from retry import clock
from retry.errors import Stalled
from retry.telemetry.health import HealthProbe, PartitionId, Reason
from retry.worker.watchdog import Watchdog
from tests.support.simulated_clock import simulated_clock

STALLED_S = 60.0
PLACE = ("changelog", 3)


class Bench:
    """A watchdog, the one part that it looks at, and the brokers that it asks."""

    def __init__(self) -> None:
        self.part = HealthProbe("shard 3: folding", 0, place=PLACE, shard=3)
        self.end: int | None = 0
        self.asked = 0
        self.dog = Watchdog(lambda: [self.part], self._ends, STALLED_S)

    def _ends(self, places: Iterable[PartitionId]) -> dict[PartitionId, int]:
        self.asked += 1
        return {} if self.end is None else dict.fromkeys(places, self.end)

    def change(self, **fields: Any) -> None:
        self.part = self.part._replace(**fields)

    def seconds(self, seconds: float, each: float = 1.0) -> None:
        """Look every so often for so long."""
        for _ in range(int(seconds / each)):
            clock.pause(each)
            self.dog.check_parts()

    def reasons(self) -> list[Reason]:
        return [held.reason for held in self.dog.list_blocked()]


@pytest.fixture
def bench() -> Iterator[Bench]:
    with simulated_clock():
        yield Bench()


def test_whoever_reads_what_there_is_may_stand_still_for_ever(bench: Bench) -> None:
    bench.change(offset=7)
    bench.end = 7
    bench.seconds(1_000)
    assert bench.reasons() == []


def test_a_reader_that_stands_still_while_its_log_grows_is_told_and_then_ends_the_worker(bench: Bench) -> None:
    bench.end = 1
    bench.seconds(12)
    assert bench.reasons() == []
    bench.seconds(10)
    (held,) = bench.dog.list_blocked()
    assert (held.reason, held.shard) == (Reason.STALLED, 3)
    assert "shard 3: folding" in held.why
    with pytest.raises(Stalled, match=r"shard 3: folding has stood still for 60 s"):
        bench.seconds(45)


def test_a_step_forward_begins_the_count_anew(bench: Bench) -> None:
    bench.end = 100
    for offset in range(10):
        bench.change(done=offset, offset=offset)
        bench.seconds(50)
    assert bench.reasons() == [Reason.STALLED]
    bench.change(done=100, offset=100)
    bench.seconds(1)
    assert bench.reasons() == []


def test_work_that_this_process_knows_of_needs_no_log(bench: Bench) -> None:
    bench.change(place=None, busy=True)
    with pytest.raises(Stalled):
        bench.seconds(70)
    assert bench.asked == 0


def test_no_time_counts_while_brokers_do_not_answer_and_they_get_all_of_it_when_they_do(bench: Bench) -> None:
    bench.end = 1
    bench.seconds(50)
    bench.end = None
    bench.seconds(3_600)
    (held,) = bench.dog.list_blocked()
    assert (held.reason, held.shard) == (Reason.BROKERS, None)
    assert "changelog/3" in held.why
    bench.end = 1
    bench.seconds(55)
    assert bench.reasons() == [Reason.STALLED]
    with pytest.raises(Stalled):
        bench.seconds(10)


def test_a_broker_that_is_away_excuses_threads_that_wait_for_it(bench: Bench) -> None:
    bench.end = None
    parts = [bench.part, HealthProbe("committing", 0, busy=True)]
    bench.dog = Watchdog(lambda: parts, bench._ends, STALLED_S)
    bench.seconds(3_600)
    assert bench.reasons() == [Reason.BROKERS]


def test_who_fails_again_and_again_is_not_ready_and_does_not_end_the_worker(bench: Bench) -> None:
    bench.change(busy=True, trouble="not enough replicas")
    bench.seconds(3_600)
    (held,) = bench.dog.list_blocked()
    assert held.reason is Reason.FAILING
    assert "not enough replicas" in held.why
    bench.change(trouble="")
    bench.seconds(2)
    assert bench.reasons() == []


def test_one_failure_is_no_reason(bench: Bench) -> None:
    bench.change(trouble="the transaction was undone")
    bench.seconds(5)
    assert bench.reasons() == []


def test_time_in_which_the_process_was_frozen_does_not_count(bench: Bench) -> None:
    bench.end = 1
    bench.seconds(5 * 3_600, each=3_600)
    assert bench.reasons() == []


def test_a_partition_of_many_that_has_no_turn_while_the_others_get_on_is_not_stuck(bench: Bench) -> None:
    """One partition after the other is read to its end, by a thread that never stands still."""
    done, count, end = dict[int, int](), 300, 1_500
    bench.end = end

    def list_parts() -> list[HealthProbe]:
        places = [(n, done.get(n, 0)) for n in range(count)]
        return [HealthProbe(f"letters of a/{n}", d, place=("a", n), offset=d, thread="letters") for n, d in places]

    bench.dog = Watchdog(list_parts, bench._ends, STALLED_S)
    for n in range(count):
        for _ in range(3):
            # Several looks for each batch, as on a slow processor.
            bench.seconds(3)
            done[n] = done.get(n, 0) + end // 3
            assert bench.reasons() == []
    bench.end = end + 1
    with pytest.raises(Stalled, match=r"letters of a/0, letters of a/1, "):
        bench.seconds(70)


def test_a_partition_that_is_passed_over_again_and_again_ends_the_worker_after_its_share(bench: Bench) -> None:
    bench.end, turns = 1, iter(range(1, 1 << 30))

    def list_parts() -> list[HealthProbe]:
        others = [HealthProbe(f"letters of a/{n}", next(turns), place=("a", n), thread="letters") for n in range(3)]
        return [*others, HealthProbe("letters of a/3", 0, place=("a", 3), thread="letters")]

    bench.dog = Watchdog(list_parts, bench._ends, STALLED_S)
    bench.seconds(100)
    with pytest.raises(Stalled, match=r"letters of a/3 has stood still"):
        bench.seconds(40)


def test_who_goes_away_and_comes_back_begins_anew(bench: Bench) -> None:
    bench.end, parts = 1, [bench.part]
    bench.dog = Watchdog(lambda: parts, bench._ends, STALLED_S)
    for _ in range(10):
        bench.seconds(50)
        parts.clear()
        bench.seconds(1)
        parts.append(bench.part)


def test_brokers_are_asked_every_few_seconds(bench: Bench) -> None:
    bench.seconds(100)
    assert 18 <= bench.asked <= 22


def test_a_worker_that_lost_its_partitions_asks_for_what_all_workers_read(bench: Bench) -> None:
    lineages = HealthProbe("reading lineages", 0, place=("lineage", 0), offset=1 << 62)
    bench.end, parts = None, [bench.part, lineages, HealthProbe("committing", 0, busy=True)]
    bench.dog = Watchdog(lambda: parts, bench._ends, STALLED_S)
    bench.seconds(5)
    parts.pop(0)
    bench.seconds(3_600)
    assert bench.reasons() == [Reason.BROKERS]
    bench.end = 0
    bench.seconds(10)
    assert bench.reasons() == []


def test_nobody_ends_before_the_brokers_have_answered_once_more(bench: Bench) -> None:
    bench.end = 1
    bench.seconds(55)
    bench.dog._ask_at_s = clock.monotonic_s() + 1_000
    bench.end = None
    bench.seconds(500)
    assert bench.reasons() == [Reason.BROKERS]


def test_a_watchdog_that_looks_no_more_is_told_by_whoever_asks_for_health(bench: Bench) -> None:
    bench.seconds(5)
    clock.pause(STALLED_S - 1)
    assert bench.reasons() == []
    clock.pause(1)
    (told,) = bench.dog.list_blocked()
    assert (told.reason, told.why) == (Reason.STALLED, "the watchdog has not looked for 60 s: restart the worker")
