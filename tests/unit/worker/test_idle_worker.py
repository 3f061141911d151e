"""A worker in which nothing can be due yet does not look for it, until something new is folded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pytest

from retry.worker.faust_app import _Threads

HOUR_S = 3_600.0


class FakeApp:
    """Runs what it is given."""

    def add_future(self, work: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(work)


class FakeEngine:
    """Counts the looks; `busy` shards are found each time."""

    def __init__(self, quiet_s: float, busy: list[str] | None = None) -> None:
        self.looks, self._quiet_s, self._busy = 0, quiet_s, busy or []
        self.meanwhile: Callable[[], object] = bool

    def to_sweep(self, _busy: Collection[str]) -> list[str]:
        self.looks += 1
        self.meanwhile()
        return self._busy

    def sweep(self, _shard: str) -> None:
        pass

    def quiet_s(self) -> float:
        return self._quiet_s


async def looked(threads: _Threads, times: int) -> None:
    """Ask so often, and wait for each look that comes of it."""
    for _ in range(times):
        threads.sweep()
        if threads._looking is not None:
            await threads._looking


@pytest.mark.parametrize(("quiet_s", "looks"), [(HOUR_S, 1), (0.0, 5)])
def test_nobody_looks_while_nothing_can_be_due(quiet_s: float, looks: int) -> None:
    engine = FakeEngine(quiet_s)
    asyncio.run(looked(_Threads(FakeApp(), engine), 5))  # type: ignore[arg-type]
    assert engine.looks == looks


def test_what_is_folded_is_looked_for_at_once() -> None:
    engine = FakeEngine(HOUR_S)

    async def folding() -> None:
        threads = _Threads(FakeApp(), engine)  # type: ignore[arg-type]
        await looked(threads, 2)
        threads.folded()
        await looked(threads, 2)

    asyncio.run(folding())
    assert engine.looks == 2


def test_what_is_folded_during_a_look_is_not_overlooked() -> None:
    engine = FakeEngine(HOUR_S)

    async def folding() -> None:
        threads = _Threads(FakeApp(), engine)  # type: ignore[arg-type]
        engine.meanwhile = threads.folded
        await looked(threads, 3)

    asyncio.run(folding())
    assert engine.looks == 3


def test_while_a_shard_is_swept_the_others_are_looked_at() -> None:
    engine = FakeEngine(HOUR_S, ["shard"])
    asyncio.run(looked(_Threads(FakeApp(), engine), 3))  # type: ignore[arg-type]
    assert engine.looks == 3
