"""Intake in three stages: each has one batch at a time, all in their order, and no more of them are in memory than is said."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from retry.clock import Deadline
from retry.intake.batch import Gathering
from retry.worker.faust_app import _Intake, _Threads

BATCHES = 6
TURNS = 50
PATIENCE_S = 10.0


class FakeApp:
    """Runs what it is given, and notes what ended it."""

    def __init__(self) -> None:
        self.ended: list[Exception] = []

    def add_future(self, work: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(work)

    async def crash(self, error: Exception) -> None:
        self.ended.append(error)


class FakeBatch(int):
    """A prepared batch of which only the number is known: of the newest, where several were gathered."""

    first_due_ms = 0

    @property
    def batch(self) -> FakeBatch:
        return self

    def join_later(self, later: FakeBatch) -> FakeBatch:
        return later

    def find_first_due_ms(self) -> int:
        return self.first_due_ms


class LaterBatch(FakeBatch):
    """One of which nothing is due for long."""

    first_due_ms = 1 << 62


class FakeEngine:
    """Notes when each stage begins and ends with a batch, and waits where it is told to."""

    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        self.batch: type[FakeBatch] = FakeBatch
        self.gathering: Any = Gathering(lambda _batch, _later: self.gathers)
        self.gathers = False
        self.steps: list[tuple[str, int]] = []
        self.before: dict[tuple[str, int], Callable[[], object]] = {}
        self._noted = threading.Condition()

    def _stage(self, stage: str, batch: int) -> int:
        self._note(stage, batch)
        self.before.get((stage, batch), bool)()
        self._note(f"{stage} done", batch)
        return batch

    def _note(self, *step: Any) -> None:
        with self._noted:
            self.steps.append(step)
            self._noted.notify_all()

    def seen(self, stage: str, batch: int) -> Callable[[], object]:
        """Wait until a stage has begun with a batch."""

        def wait() -> None:
            with self._noted:
                assert self._noted.wait_for(lambda: (stage, batch) in self.steps, PATIENCE_S)

        return wait

    def others_go_on(self) -> None:
        """Let the loop turn until whatever can go on just now has gone on."""
        for _ in range(TURNS):
            turned = threading.Event()
            self.loop.call_soon_threadsafe(turned.set)
            assert turned.wait(PATIENCE_S)

    def prepare(self, batch: int) -> FakeBatch:
        return self.batch(self._stage("prepare", batch))

    def write_letters(self, batch: int) -> int:
        return self._stage("write", batch)

    def commit(self, batch: int) -> None:
        self._stage("commit", batch)


async def taken_in(engine: FakeEngine, app: FakeApp) -> None:
    engine.loop = asyncio.get_running_loop()
    taking = _Intake(app, _Threads(app, engine), engine)  # type: ignore[arg-type]
    for batch in range(BATCHES):
        await taking.take_in(batch)
    deadline = Deadline(PATIENCE_S)
    while ("commit done", BATCHES - 1) not in engine.steps and not app.ended and not deadline.has_passed():
        await asyncio.sleep(0.001)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


def test_each_stage_has_one_batch_at_a_time_in_their_order(engine: FakeEngine) -> None:
    asyncio.run(taken_in(engine, FakeApp()))
    for stage in ("prepare", "write", "commit"):
        of_stage = [step for step in engine.steps if step[0].startswith(stage)]
        assert of_stage == [(name, batch) for batch in range(BATCHES) for name in (stage, f"{stage} done")]


def test_while_a_batch_is_committed_the_next_is_written_and_the_one_after_it_prepared(engine: FakeEngine) -> None:
    engine.before["commit", 0] = engine.seen("write done", 1)
    engine.before["commit", 1] = engine.seen("prepare done", 3)
    asyncio.run(taken_in(engine, FakeApp()))
    assert engine.steps[-1] == ("commit done", BATCHES - 1)


def test_three_batches_are_in_memory_of_which_two_are_under_way_and_no_more(engine: FakeEngine) -> None:
    def slow() -> None:
        engine.seen("prepare done", 2)()
        engine.others_go_on()

    engine.before["commit", 0] = slow
    asyncio.run(taken_in(engine, FakeApp()))
    in_memory = written = 0
    for stage, _ in engine.steps:
        in_memory += (stage == "prepare") - (stage == "commit done")
        written += (stage == "write") - (stage == "commit done")
        assert in_memory <= 3
        assert written <= 2


def test_few_letters_of_which_none_is_due_soon_are_written_together(engine: FakeEngine) -> None:
    engine.batch, engine.gathers = LaterBatch, True
    asyncio.run(taken_in(engine, FakeApp()))
    assert [step for step in engine.steps if step[0] == "write"] == [("write", BATCHES - 1)]


def test_a_batch_that_does_not_fit_is_written_behind_what_was_gathered(engine: FakeEngine) -> None:
    engine.batch = LaterBatch
    asyncio.run(taken_in(engine, FakeApp()))
    assert [step for step in engine.steps if step[0] == "write"] == [("write", batch) for batch in range(BATCHES)]


def test_what_is_not_expected_ends_the_process(engine: FakeEngine) -> None:
    app = FakeApp()

    def broken() -> None:
        raise SystemError

    engine.before["commit", BATCHES - 1] = broken
    asyncio.run(taken_in(engine, app))
    assert [type(error) for error in app.ended] == [SystemError]
