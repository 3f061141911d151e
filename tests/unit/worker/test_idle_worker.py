"""A worker in which nothing can be due yet does not look for it, until something new is folded."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from retry.clock import monotonic_s
from retry.worker.engine import find_quiet_s
from retry.worker.faust_app import _PACE_S, _Threads
from retry.worker.shards.joint_sweep import AT_ONCE
from retry.worker.shards.shard import Phase

HOUR_S = 3_600.0


class FakeApp:
    """Runs what it is given."""

    def add_future(self, work: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(work)


class FakeEngine:
    """An engine that counts the looks."""

    def __init__(self, quiet_s: float) -> None:
        self.looks, self._quiet_s, self.much_is_due, self.sent_few = 0, quiet_s, True, False
        self.meanwhile: Callable[[], object] = bool

    def sweep_and_rest(self) -> float:
        self.looks += 1
        self.meanwhile()
        return self._quiet_s


async def look_at_all(threads: _Threads, times: int) -> None:
    """Ask so often, and wait for each look that comes of it."""
    for _ in range(times):
        threads.sweep()
        await asyncio.gather(*threads._sweeps)


@pytest.mark.parametrize(("quiet_s", "looks"), [(HOUR_S, 1), (0.0, 5)])
def test_nobody_looks_while_nothing_can_be_due(quiet_s: float, looks: int) -> None:
    engine = FakeEngine(quiet_s)
    asyncio.run(look_at_all(_Threads(FakeApp(), engine), 5))  # type: ignore[arg-type]
    assert engine.looks == looks


def test_what_is_folded_is_looked_for_at_once() -> None:
    engine = FakeEngine(HOUR_S)

    async def folding() -> None:
        threads = _Threads(FakeApp(), engine)  # type: ignore[arg-type]
        await look_at_all(threads, 2)
        threads.note_fold()
        await look_at_all(threads, 2)

    asyncio.run(folding())
    assert engine.looks == 2


def test_what_is_folded_during_a_look_is_not_overlooked() -> None:
    engine = FakeEngine(HOUR_S)

    async def folding() -> None:
        threads = _Threads(FakeApp(), engine)  # type: ignore[arg-type]
        engine.meanwhile = threads.note_fold
        await look_at_all(threads, 3)

    asyncio.run(folding())
    assert engine.looks == 3


def test_the_timer_rests_until_something_is_folded() -> None:
    async def rest_once() -> None:
        threads = _Threads(FakeApp(), FakeEngine(HOUR_S))  # type: ignore[arg-type]
        await threads.rest_between_sweeps(0.001)
        await look_at_all(threads, 1)
        rest = asyncio.ensure_future(threads.rest_between_sweeps(0.001))
        done, _ = await asyncio.wait([rest], timeout=0.1)
        assert not done
        threads.note_fold()
        await asyncio.wait_for(rest, 30)
        await asyncio.wait_for(threads.rest_between_sweeps(0.001), 30)

    asyncio.run(rest_once())


def test_the_timer_does_not_rest_for_longer_than_nothing_is_due() -> None:
    async def rest_once() -> None:
        threads = _Threads(FakeApp(), FakeEngine(0.05))  # type: ignore[arg-type]
        await look_at_all(threads, 1)
        await asyncio.wait_for(threads.rest_between_sweeps(0.001), 30)

    asyncio.run(rest_once())


def test_two_sweeps_are_under_way_at_a_time_and_no_more() -> None:
    engine, goes_on = FakeEngine(0.0), threading.Event()
    engine.meanwhile = goes_on.wait

    async def sweeping() -> None:
        threads = _Threads(FakeApp(), engine)  # type: ignore[arg-type]
        for _ in range(5):
            threads.sweep()
        under_way = list(threads._sweeps)
        goes_on.set()
        await asyncio.gather(*under_way)
        await look_at_all(threads, 1)

    asyncio.run(sweeping())
    assert engine.looks == AT_ONCE + 1


def test_few_that_were_sent_are_followed_by_those_of_a_while() -> None:
    engine = FakeEngine(0.0)
    engine.much_is_due, engine.sent_few = False, True

    async def sweeping() -> None:
        threads = _Threads(FakeApp(), engine)  # type: ignore[arg-type]
        begun_s = monotonic_s()
        # The first one at once, and of all that is folded meanwhile nothing is looked for before the time is over.
        await look_at_all(threads, 1)
        assert engine.looks == 1
        threads.note_fold()
        await look_at_all(threads, 5)
        assert engine.looks == 1 or monotonic_s() - begun_s >= _PACE_S
        await asyncio.wait_for(threads.rest_between_sweeps(0.001), 30)
        assert monotonic_s() - begun_s >= _PACE_S
        await look_at_all(threads, 1)

    asyncio.run(sweeping())
    assert engine.looks >= 2


class FakeShard:
    """Has something due at a time; one that is not ready says that nothing is."""

    def __init__(self, due_ms: float, phase: Phase = Phase.READY) -> None:
        self.due_ms, self.phase = due_ms, phase

    def quiet(self, now_ms: int) -> bool:
        return self.phase is not Phase.READY or now_ms < self.due_ms


LATE = FakeShard(math.inf)


@pytest.mark.parametrize(
    ("shards", "owned", "quiet_s"),
    [
        ([LATE, LATE], 2, 1.0),
        ([LATE, FakeShard(10_900)], 2, 0.25),
        ([LATE, FakeShard(10_010)], 2, 0.0),
        ([LATE, FakeShard(0, Phase.RESTORING)], 2, 0.25),
        ([LATE], 2, 0.25),
        ([], 0, 0.25),
    ],
    ids=["nothing", "within a second", "now", "one is restored", "one is not open", "none is ours"],
)
def test_nobody_rests_for_a_second_where_a_shard_may_bring_what_is_due(
    shards: list[FakeShard], owned: int, quiet_s: float
) -> None:
    assert find_quiet_s(shards, owned, 10_000) == quiet_s  # type: ignore[arg-type]
