"""Single records: who is told what when some arrive, one is refused, a client is gone, and the producer ends for good."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from retry.errors import RecordUnwritten
from retry.kafka import client_config, record_producer
from retry.kafka.record_producer import Records
from tests.support.process import await_that


class Delivered:
    """The part of a message that is looked at."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset


class Producer:
    """A producer without brokers: what is written stays under way until the test says what became of it."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.on_error: Callable[[KafkaError], None] = config["error_cb"]
        self.under_way: list[tuple[bytes, Callable[[KafkaError | None, Any], None]]] = []
        self.told: list[Callable[[], None]] = []
        self.fatal: KafkaError | None = None
        self.purged = False

    def produce(self, _topic: str, _value: bytes, key: bytes, _partition: int, delivered: Any) -> None:
        if self.fatal is not None:
            raise KafkaException(self.fatal)
        self.under_way.append((key, delivered))

    def poll(self, within_s: float) -> int:
        for tell in (told := [self.told.pop(0) for _ in range(len(self.told))]):
            tell()
        if not told:
            threading.Event().wait(min(within_s, 0.001))
        return len(told)

    def purge(self) -> None:
        self.purged = True
        self.end(KafkaError(KafkaError._PURGE_INFLIGHT))

    def end(self, error: KafkaError | None = None, key: bytes | None = None) -> None:
        """At the next poll: all that is under way has arrived or was refused, or what has this key."""
        ended = [each for each in self.under_way if key in (None, each[0])]
        self.under_way = [each for each in self.under_way if each not in ended]
        self.told.append(lambda: [tell(error, Delivered(n)) for n, (_, tell) in enumerate(ended)] and None)

    def fail_for_good(self) -> None:
        self.fatal = KafkaError(KafkaError._FATAL, "out of order", fatal=True)
        self.told.append(lambda: self.on_error(self.fatal))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.under_way) + len(self.told)


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Producer]:
    """The producers that were opened, the newest last."""
    producers = list[Producer]()
    monkeypatch.setattr(client_config, "make_producer", lambda config: producers.append(Producer(config)) or producers[-1])
    monkeypatch.setattr(record_producer, "_REOPEN_S", -1.0)
    return producers


@pytest.fixture
def records(clients: list[Producer]) -> Any:
    records = Records({})
    yield records
    clients[-1].end()
    records.close()


async def writing(records: Records, made: list[Producer], count: int) -> list[asyncio.Task[int]]:
    """Requests that write a record each, all under way."""
    before = len(made[-1].under_way)
    tasks = [asyncio.ensure_future(records.write_record("t", 0, b"%d" % n, b"v")) for n in range(count)]
    while len(made[-1].under_way) < before + count:
        await asyncio.sleep(0)
    return tasks


def test_each_request_is_told_of_its_own_record_and_a_loop_is_woken_once_for_all(
    records: Records, clients: list[Producer]
) -> None:
    async def run() -> tuple[list[Any], int]:
        loop, woken = asyncio.get_running_loop(), list[object]()
        wake = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *told: (woken.append(told), wake(*told))[1]  # type: ignore[method-assign, assignment]
        tasks = await writing(records, clients, 100)
        clients[-1].end()
        return await asyncio.gather(*tasks), len(woken)

    offsets, woken = asyncio.run(run())
    assert offsets == list(range(100))
    assert woken == 1


def test_a_record_that_is_refused_fails_its_own_request_alone(records: Records, clients: list[Producer]) -> None:
    async def run() -> list[Any]:
        tasks = await writing(records, clients, 5)
        clients[-1].end(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), key=b"3")
        clients[-1].end()
        return await asyncio.gather(*tasks, return_exceptions=True)

    told = asyncio.run(run())
    assert [type(each) for each in told] == [int, int, int, RecordUnwritten, int]


def test_a_client_that_is_gone_takes_nothing_from_the_others(records: Records, clients: list[Producer]) -> None:
    async def run() -> list[Any]:
        tasks = await writing(records, clients, 3)
        tasks[1].cancel()
        await asyncio.sleep(0)
        clients[-1].end()
        told = await asyncio.gather(*tasks, return_exceptions=True)
        again = await writing(records, clients, 1)
        clients[-1].end()
        return [*told, await again[0]]

    told = asyncio.run(run())
    assert [type(each) for each in told] == [int, asyncio.CancelledError, int, int]


def test_a_thread_that_gave_up_waiting_takes_nothing_from_the_others(records: Records, clients: list[Producer]) -> None:
    first, second = (records.write("t", 0, key, b"v") for key in (b"1", b"2"))
    assert not first.cancel()
    clients[-1].end()
    assert (first.result(30), second.result(30)) == (0, 1)


def test_a_loop_that_is_closed_does_not_end_the_thread_that_tells_others(records: Records, clients: list[Producer]) -> None:
    async def leave() -> None:
        await writing(records, clients, 1)

    asyncio.run(leave())
    clients[-1].end()
    last = records.write("t", 0, b"k", b"v")
    clients[-1].end()
    assert last.result(30) == 0


def test_an_error_that_ends_the_producer_fails_what_is_under_way_and_another_is_opened(
    records: Records, clients: list[Producer]
) -> None:
    async def run() -> list[Any]:
        tasks = await writing(records, clients, 3)
        clients[0].fail_for_good()
        return await asyncio.gather(*tasks, return_exceptions=True)

    told = asyncio.run(run())
    assert {type(each) for each in told} == {RecordUnwritten}
    assert {str(each) for each in told} == {"the producer ended: out of order"}
    await_that("another is opened", lambda: len(clients) == 2)
    assert clients[0].purged
    done = records.write("t", 0, b"k", b"v")
    await_that("it is written by that", lambda: clients[1].under_way)
    clients[1].end()
    assert done.result(30) == 0


def test_what_is_asked_for_before_another_is_opened_fails_at_once(
    clients: list[Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_producer, "_REOPEN_S", 3_600.0)
    records = Records({})
    clients[0].fail_for_good()
    await_that("it is known", lambda: records.write("t", 0, b"k", b"v").exception(30) is not None)
    with pytest.raises(RecordUnwritten, match="out of order"):
        asyncio.run(records.write_record("t", 0, b"k", b"v"))
    records.close()
    assert len(clients) == 1


def test_an_error_that_the_client_mends_by_itself_ends_nothing(records: Records, clients: list[Producer]) -> None:
    done = records.write("t", 0, b"k", b"v")
    clients[0].told.append(lambda: clients[0].on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN)))
    clients[0].end()
    assert done.result(30) == 0
    assert len(clients) == 1
