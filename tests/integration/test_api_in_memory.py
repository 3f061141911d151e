"""The API over a log in memory and tables on disk: two processes of one deployment, without a broker."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest

from retry import clock
from retry.delay_queue.envelope_codec import PLAIN
from retry.delay_queue.table.table_directory import RocksTables
from retry.http_client.ssrf_guard import SsrfGuard, parse_allowlist
from retry.scheduling.timers import openapi
from retry.scheduling.timers.callers import Quotas, Tokens
from retry.scheduling.timers.read_model import View
from retry.scheduling.timers.routes import Web
from retry.scheduling.timers.timers import Timers
from retry.telemetry.call_records import Called, to_json
from retry.testing.kafka import MemoryLog, MemoryPartitionReader
from tests.support.process import await_that
from tests.support.tables import DAY_MS, MEMORY

SHARDS = 2
URL = "http://127.0.0.1:9/hook"
Answer = tuple[int, Any]
# A log in memory is for one thread: a reader that is told of an end while something is put there would pass over that.
ONE_AT_A_TIME = threading.Lock()


class Follower(MemoryPartitionReader):
    """Leaves the processor to others while there is nothing new."""

    def read(self, records_max: int, wait_s: float) -> list[Any]:
        with ONE_AT_A_TIME:
            found = super().read(records_max, wait_s)
        if not found:
            clock.pause(0.001)
        return found


class Endless(Follower):
    """Never comes to an end, as one that lags behind."""

    def read(self, records_max: int, wait_s: float) -> list[Any]:
        return [message for message in super().read(records_max, wait_s) if message.error() is None]


class Records:
    """`retry.kafka.record_producer.Records` over a log in memory."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    async def write_record(self, topic: str, partition: int, key: bytes, value: bytes | None) -> int:
        with ONE_AT_A_TIME:
            return self._log.add_record(topic, key, value, partition=partition).offset()


class Process:
    """The application of `retry api`, without its sockets."""

    def __init__(self, log: MemoryLog, folder: Path, name: str, tokens: Tokens | None = None, requests_per_s: int = 0,
                 timers_max: int = 0, *, metrics_open: bool = False, audit: int = 1) -> None:  # fmt: skip
        tables = RocksTables(folder / name, "changelog", "cluster", "topic", MEMORY, DAY_MS)
        recent = {0: 0}
        bounds = log.fetch_bounds("changelog", range(SHARDS))
        self.view = View(Follower(log), tables, "changelog", "calls", bounds, recent)  # type: ignore[arg-type]
        guard = SsrfGuard(parse_allowlist("127.0.0.0/8"))
        records = Records(log)  # type: ignore[arg-type]
        timers = Timers(self.view, records, guard, topic="changelog", bytes_max=1 << 20, codec=PLAIN)
        quotas = Quotas(requests_per_s, timers_max, self.view.waiting_of)
        self.app = Web(timers, self.view, tokens, quotas, metrics_open=metrics_open, audit=audit).app
        await_that("all is read", self.view.is_ready)

    def ask(self, method: str, target: str, wish: object = None, **headers: str) -> Answer:
        """Status and JSON of an answer."""
        return self.send(method, target, json.dumps(wish).encode(), **headers)[:2]

    def send(self, method: str, target: str, body: bytes = b"", **headers: str) -> tuple[int, Any, dict[str, str]]:
        """Status, JSON or text, and headers of the answer to these very bytes."""
        return asyncio.run(self._asked(method, target, body, headers))

    async def _asked(self, method: str, target: str, body: bytes, more: dict[str, str]) -> tuple[int, Any, dict[str, str]]:
        headers = {"host": "127.0.0.1", "content-type": "application/json"}
        headers |= {name.replace("_", "-").lower(): value for name, value in more.items()}
        parts, sent = urlsplit(target), list[dict[str, Any]]()
        scope = {
            "type": "http", "method": method, "scheme": "http", "path": parts.path, "query_string": parts.query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()], "server": ("127.0.0.1", 80),
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        told = b"".join(message.get("body", b"") for message in sent)
        answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        read = json.loads if "json" in answered.get("content-type", "") else bytes.decode
        answer = read(told) if told else None
        demand_described(method, parts.path, sent[0]["status"], answer)
        return sent[0]["status"], answer, answered

    def timers(self, query: str = "") -> list[str]:
        """Ids of those that wait, in due order."""
        return [timer["id"] for timer in self.ask("GET", f"/timers{query}")[1]["timers"]]


def demand_described(method: str, path: str, status: int, answer: object) -> None:
    """Demand that an answer is as `/openapi.json` says, where that has the operation."""
    described = openapi.DOCUMENT["paths"].get(re.sub("^/timers/[^/]+$", "/timers/{id}", path), {})
    if (operation := described.get(method.lower())) is None:
        return
    content = operation["responses"][str(status)].get("content")
    if content is None:
        assert answer is None
        return
    ((_, told),) = content.items()
    schema = {**told["schema"], "components": openapi.DOCUMENT["components"]}
    jsonschema.Draft202012Validator(schema).validate(answer)
    assert isinstance(answer, dict)
    # Nothing is answered of which the description does not tell.
    _, _, name = told["schema"]["$ref"].rpartition("/")
    assert answer.keys() <= openapi.DOCUMENT["components"]["schemas"][name]["properties"].keys()


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog()
    log.create("changelog", SHARDS)
    log.create("calls", 1)
    return log


@pytest.fixture
def processes(log: MemoryLog, tmp_path: Path) -> Iterator[list[Process]]:
    made = [Process(log, tmp_path, name) for name in ("one", "other")]
    yield made
    for each in made:
        each.view.close()


def make(process: Process, **wish: object) -> str:
    status, told = process.ask("POST", "/timers", {"url": URL, **wish})
    assert status == 201, told
    return str(told["id"])


def test_tables_are_current_by_the_end_of_the_changelog_alone(log: MemoryLog, processes: list[Process], tmp_path: Path) -> None:
    begun_ms = clock.wall_ms()
    tables = RocksTables(tmp_path / "lags", "changelog", "cluster", "topic", MEMORY, DAY_MS)
    bounds = log.fetch_bounds("changelog", range(SHARDS))
    lags = View(Endless(log), tables, "changelog", "calls", bounds, {})  # type: ignore[arg-type]
    await_that("time has passed", lambda: clock.wall_ms() > begun_ms + 1)
    opened_ms = clock.wall_ms()
    make(processes[0], after="1h")
    await_that("it is read", lambda: lags.count_waiting())
    lags.close()
    await_that("it is read to the end", lambda: max(t.current_at_ms for t in processes[0].view._tables.values()) >= opened_ms)
    assert all(begun_ms <= table.current_at_ms <= opened_ms for table in lags._tables.values() if table.next_offset)


@pytest.mark.parametrize("asked", [0, 1], ids=["where it was made", "elsewhere"])
def test_2_6_2_10_a_timer_is_shown_and_ended(processes: list[Process], asked: int) -> None:
    """Elsewhere it is known from the fold alone."""
    timer_id, process = make(processes[0], after="1h"), processes[asked]
    await_that("it is known", lambda: process.ask("GET", f"/timers/{timer_id}")[0] == 200)
    await_that("it is listed", lambda: process.timers() == [timer_id])
    assert process.ask("GET", f"/timers/{timer_id}")[1]["state"] == "waiting"
    assert process.ask("DELETE", f"/timers/{timer_id}") == (204, None)
    for each in processes:
        await_that("it is gone", lambda each=each: each.ask("GET", f"/timers/{timer_id}")[0] == 404)  # type: ignore[misc]
        await_that("it is not listed", lambda each=each: each.timers() == [])  # type: ignore[misc]
    assert process.ask("DELETE", f"/timers/{timer_id}")[0] == 404


def test_2_10_a_key_and_a_wish_are_one_timer_in_every_process(processes: list[Process]) -> None:
    one, other = processes
    wish = {"url": URL, "at": clock.wall_ms() + DAY_MS, "body": {"order": 17}}
    status, told = one.ask("POST", "/timers", wish, Idempotency_Key="k")
    assert (status, one.ask("POST", "/timers", wish, Idempotency_Key="k")) == (201, (200, told))
    await_that("the other one knows it", lambda: other.timers() == [told["id"]])
    assert other.ask("POST", "/timers", wish, Idempotency_Key="k") == (200, told)
    assert other.ask("POST", "/timers", {**wish, "body": None}, Idempotency_Key="k")[0] == 409


def test_2_10_lists_go_by_time_and_page_by_page(processes: list[Process]) -> None:
    now_ms = clock.wall_ms()
    made = [make(processes[0], at=now_ms + hours * 3_600_000) for hours in (3, 1, 2)]
    third, first, second = made
    process = processes[1]
    await_that("all are listed", lambda: process.timers() == [first, second, third])
    page = process.ask("GET", "/timers?limit=2")[1]
    assert [timer["id"] for timer in page["timers"]] == [first, second]
    assert process.timers(f"?limit=2&cursor={page['cursor']}") == [third]
    assert process.timers(f"?from={now_ms + 7_000_000}&to={now_ms + 8_000_000}") == [second]
    assert process.ask("GET", "/timers?limit=0")[0] == 422
    assert process.ask("GET", "/timers?cursor=%21")[0] == 422


def test_2_10_what_became_of_a_timer_is_told(log: MemoryLog, processes: list[Process]) -> None:
    called = Called("tmr_1", "timers", URL, "", 2, 5_000, 7, 4_000, "parked", 503, None, "max_attempts", None, "not yet")
    log.add_record("calls", b"tmr_1", to_json(called))
    for process in processes:
        await_that("it is known", lambda process=process: process.ask("GET", "/timers/tmr_1")[0] == 200)  # type: ignore[misc]
        told = process.ask("GET", "/timers/tmr_1")[1]
        assert (told["state"], told["attempt"], told["reason"], told["last_call"]["status"]) == ("parked", 2, "max_attempts", 503)
