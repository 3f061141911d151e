"""`/schedules` over a real table with many schedules: all of them, in bounded memory, and nothing is held for a slow client."""

from __future__ import annotations

import json
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.rocksdb_table import RocksTable
from retry.http_server import HttpServer
from retry.scheduling.messages import schedule_request
from retry.scheduling.messages.entry_source import TEAM
from retry.scheduling.messages.rest_api import Rest, ScheduleSources
from retry.scheduling.messages.search import Query, ScheduleJson, iterate_waiting
from tests.support.process import await_that
from tests.support.tables import NOW_MS, rocks

SCHEDULES = 20_000
VALUE = b"v" * 1_000
ANSWER_S = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a table with all schedules."""
    folder = tmp_path_factory.mktemp("schedules") / "table"
    stem, lane = entry_keys.build_key_stem("schedules", 0), entry_keys.build_named_lane(TEAM, "schedules", "online")
    rows = []
    for n in range(SCHEDULES):
        entry = Entry("online", b"k", VALUE, [(schedule_request.KEY, b"id-%d" % n)], None, TEAM)
        key = entry_keys.build_named_key(NOW_MS + n, entry_keys.hash_name(TEAM, "schedules", b"%d" % n), n, stem, n, lane)
        rows.append((key, envelopes.encode(entry)))
    table = rocks(folder)
    table.apply_records(rows, SCHEDULES, NOW_MS)
    table.close()
    return folder


class Shard:
    """A table and the lock under which it is read, as in `retry.worker.shards.shard`."""

    def __init__(self, table: RocksTable) -> None:
        self._table, self._lock, self._closed = table, threading.Lock(), False

    def scan_entries(self, after: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        with self._lock:
            return [] if self._closed else self._table.scan_entries(after, rows_max)

    def close(self) -> None:
        assert self._lock.acquire(timeout=ANSWER_S)
        if not self._closed:
            self._table.close()
        self._closed = True
        self._lock.release()


@contextmanager
def serving(folder: Path) -> Iterator[tuple[Shard, int, HttpServer]]:
    """The REST API over a table, and its port."""
    shard = Shard(rocks(folder))

    def source(wanted: Query) -> Iterator[ScheduleJson]:
        return iterate_waiting([shard], "parked", wanted)  # type: ignore[list-item]

    server = HttpServer(Rest(ScheduleSources(source, source, source), dict, lambda: True, "test").app, "rest", "127.0.0.1", 0)
    yield shard, server.start(), server
    server.stop()
    shard.close()


@pytest.mark.parametrize("path", ["/schedules", "/live/schedules", "/history/schedules", "/schedules?all=true"])
def test_all_schedules_come_in_one_document_as_from_the_go_scheduler(folder: Path, path: str) -> None:
    with serving(folder) as (_, port, _), closing(HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)) as client:
        client.request("GET", path)
        answer = client.getresponse()
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert {each["id"] for each in json.loads(answer.read())} == {f"id-{n}" for n in range(SCHEDULES)}


def test_all_schedules_come_in_memory_that_does_not_grow_with_them(folder: Path) -> None:
    with serving(folder) as (_, port, _), closing(HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)) as client:
        tracemalloc.start()
        try:
            client.request("GET", "/schedules")
            answer, size, count, last = client.getresponse(), 0, 0, b""
            while part := answer.read(65_536):
                size, count, last = size + len(part), count + (last + part).count(b'"id":'), part[-4:]
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert count == SCHEDULES
    assert peak < size / 4


def test_a_client_that_stops_reading_holds_no_iterator_and_no_lock(folder: Path) -> None:
    with serving(folder) as (shard, port, server), socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.settimeout(ANSWER_S)
        client.connect(("127.0.0.1", port))
        client.sendall(b"GET /schedules HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        assert server._server
        connections = server._server.server_state.connections
        await_that("the server waits for the client", lambda: any(each.flow.write_paused for each in connections))
        shard.close()
        # A live iterator of RocksDB would keep the files locked.
        rocks(folder).close()
