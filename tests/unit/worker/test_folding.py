"""Few records are folded by who reads them, many beside it; always in their order, and what fails ends the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from retry.worker.faust_app import _MANY_RECORDS, _Folding, _Threads

PATIENCE_S = 10.0
FEW, MANY = 1, _MANY_RECORDS


class FakeApp:
    """A loop of its own, and what ended it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.ended: list[Exception] = []
        self.has_ended = threading.Event()
        self.thread = threading.Thread(target=self.loop.run_forever)

    async def crash(self, error: Exception) -> None:
        self.ended.append(error)
        self.has_ended.set()


class FakeEngine:
    """Notes what is folded by which thread; waits, or fails, where it is told to."""

    def __init__(self) -> None:
        self.folded: list[tuple[str, bool]] = []
        self.before: dict[str, Callable[[], object]] = {}

    def apply_portions(self, portions: Any) -> None:
        name = portions[0][0]
        self.before.get(name, bool)()
        self.folded.append((name, threading.current_thread() is threading.main_thread()))


@pytest.fixture
def app() -> Iterator[FakeApp]:
    app = FakeApp()
    app.thread.start()
    yield app
    app.loop.call_soon_threadsafe(app.loop.stop)
    app.thread.join(PATIENCE_S)
    app.loop.close()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def folding(app: FakeApp, engine: FakeEngine) -> _Folding:
    return _Folding(app, _Threads(app, engine), engine)  # type: ignore[arg-type]


def read(name: str, records: int) -> Any:
    """Return what was read of one shard."""
    return [(name, [None] * records)]


def test_few_are_folded_by_who_reads_and_many_beside_it_in_their_order(folding: _Folding, engine: FakeEngine) -> None:
    read_on = threading.Event()
    engine.before["b"] = lambda: read_on.wait(PATIENCE_S)
    assert folding.submit_portions(read("a", FEW)) is None
    assert folding.submit_portions(read("b", MANY)) is None
    # Few that come behind many are folded behind them; and there is room for more once the many are folded.
    room = folding.submit_portions(read("c", FEW))
    assert room is not None and not room.done()
    read_on.set()
    folding.await_folds()
    assert room.done() and folding.submit_portions(read("d", FEW)) is None
    assert engine.folded == [("a", True), ("b", False), ("c", False), ("d", True)]


def test_what_fails_beside_who_reads_ends_the_process(folding: _Folding, engine: FakeEngine, app: FakeApp) -> None:
    def broken() -> None:
        raise SystemError

    engine.before["a"] = broken
    folding.submit_portions(read("a", MANY))
    assert app.has_ended.wait(PATIENCE_S)
    assert [type(error) for error in app.ended] == [SystemError]


def test_what_fails_of_few_fails_whoever_reads(folding: _Folding, engine: FakeEngine) -> None:
    def broken() -> None:
        raise SystemError

    engine.before["a"] = broken
    with pytest.raises(SystemError):
        folding.submit_portions(read("a", FEW))
