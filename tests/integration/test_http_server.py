"""The one HTTP server towards clients that are slow, rude, many or of another site; with shorter times than it has."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from retry import http_server
from retry.http_server import HttpServer, connections
from retry.kafka.local_broker import free_port
from tests.support.process import WorkerProcess, await_that

Client = Callable[..., socket.socket]
GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
UPLOAD = b"POST /body HTTP/1.1\r\nHost: 127.0.0.1\r\n"
ANSWER_S = 30


class App:
    """Pages of a test, how many streams are open and were begun; `/wait` answers when `/go` was asked."""

    def __init__(self) -> None:
        self.streams, self.begun, self._gone = 0, 0, asyncio.Event()
        self.app = Starlette(routes=[
            Route("/", self._page), Route("/body", self._body, methods=["POST"]), Route("/stream", self._stream),
            Route("/fails", self._fails), Route("/wait", self._wait), Route("/go", self._go),
        ])  # fmt: skip

    async def _page(self, _request: Request) -> Response:
        return PlainTextResponse("here")

    async def _body(self, request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    async def _wait(self, _request: Request) -> Response:
        self.streams += 1
        await self._gone.wait()
        return PlainTextResponse("here")

    async def _go(self, _request: Request) -> Response:
        self._gone.set()
        return PlainTextResponse("here")

    async def _fails(self, _request: Request) -> Response:
        raise ValueError("a mistake of ours")

    async def _stream(self, _request: Request) -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            self.streams += 1
            self.begun += 1
            try:
                while True:
                    yield b"x" * 65_536
                    await asyncio.sleep(0)
            finally:
                self.streams -= 1

        return StreamingResponse(chunks())


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Seconds become tenths, until what is returned is called."""
    for name, seconds in (("_HEAD_S", 1.0), ("_BODY_S", 1.0), ("_STALLED_S", 1.0), ("_LOOK_S", 0.05)):
        monkeypatch.setattr(connections, name, seconds)
    return monkeypatch.undo


@contextmanager
def serving(**options: Any) -> Iterator[tuple[App, Client, HttpServer]]:
    """A server, what connects to it and may send something, and the server itself."""
    app, clients = App(), list[socket.socket]()
    http = HttpServer(app.app, "test", "127.0.0.1", 0, **options)
    port = http.start()

    def connect(sent: bytes = b"") -> socket.socket:
        clients.append(socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S))
        clients[-1].sendall(sent)
        return clients[-1]

    yield app, connect, http
    http.stop()
    for client in clients:
        client.close()


def answer(client: socket.socket) -> bytes:
    """Read what comes until the end, or until a whole answer of this app is there."""
    received = b""
    while not received.endswith(b"here") and (part := client.recv(65_536)):
        received += part
    return received


def is_closed(client: socket.socket) -> bool:
    """Whether the server has closed it; waits for what comes."""
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", [b"", GET[:20], UPLOAD + b"Content-Length: 9\r\n\r\nxx"])
def test_a_connection_that_does_not_send_its_whole_request_in_time_is_closed(short: Callable[[], None], sent: bytes) -> None:
    with serving() as (_, connect, _):
        assert is_closed(connect(sent))
        # A server that is starved reads no request within a second.
        short()
        assert b" 200 " in answer(connect(GET))


@pytest.mark.usefixtures("short")
def test_a_head_that_comes_a_byte_at_a_time_is_closed_though_it_never_stops() -> None:
    with serving() as (_, connect, _):
        slow = connect(GET[:20])
        slow.settimeout(0.02)
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            while time.monotonic() - began < ANSWER_S:
                slow.send(b"x")
                try:
                    if slow.recv(1) == b"":
                        raise ConnectionResetError
                except TimeoutError:
                    continue


def test_a_client_that_does_not_read_its_answer_is_closed_and_its_stream_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    # No shorter is the time for its request, which a server that is starved would not read within a second.
    monkeypatch.setattr(connections, "_STALLED_S", 1.0)
    monkeypatch.setattr(connections, "_LOOK_S", 0.05)
    with serving() as (app, connect, _):
        connect(GET.replace(b"/ ", b"/stream ", 1))
        # It may have ended before anybody looks.
        await_that("it streams", lambda: app.begun == 1)
        await_that("it does no longer", lambda: app.streams == 0)


def test_a_client_that_goes_away_ends_its_stream() -> None:
    with serving() as (app, connect, _):
        with closing(connect(GET.replace(b"/ ", b"/stream ", 1))) as client:
            assert client.recv(1_000)
            await_that("it streams", lambda: app.streams == 1)
        await_that("it does no longer", lambda: app.streams == 0)


def test_one_more_than_fit_takes_the_place_of_the_one_that_has_idled_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_connections_max", lambda _share: 3)
    kept = GET.replace(b"Connection: close\r\n", b"")
    with serving() as (app, connect, _):
        busy = connect(GET.replace(b"/ ", b"/wait ", 1))
        await_that("it is being answered", lambda: app.streams == 1)
        first, second = connect(), connect(kept)
        assert answer(second).endswith(b"here")
        third = connect(kept)
        assert answer(third).endswith(b"here")
        assert is_closed(first)
        assert answer(connect(kept.replace(b"/ ", b"/go ", 1))).endswith(b"here")
        assert is_closed(second)
        assert answer(busy).endswith(b"here")
        third.sendall(GET)
        assert answer(third).endswith(b"here")


def test_every_answer_forbids_browsers_to_guess_its_type() -> None:
    with serving() as (_, connect, _):
        for path, host, status in (
            (b"/", b"127.0.0.1", 200), (b"/nothing", b"127.0.0.1", 404), (b"/body", b"127.0.0.1", 405), (b"/", b"evil.com", 400),
            (b"/fails", b"127.0.0.1", 500), (b"/ no HTTP", b"127.0.0.1", 400),
        ):  # fmt: skip
            got = answer(connect(b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (path, host)))
            assert got.startswith(b"HTTP/1.1 %d " % status)
            assert got.lower().count(b"x-content-type-options: nosniff") == 1


def test_names_of_another_site_are_not_answered_for_unless_they_are_listed() -> None:
    def ask_with_host(host: bytes, **options: Any) -> bytes:
        with serving(**options) as (_, connect, _):
            return answer(connect(GET.replace(b"127.0.0.1", host)))[9:12]

    assert ask_with_host(b"evil.example.com") == b"400"
    assert ask_with_host(b"retry.example.com", hosts="retry.example.com") == b"200"
    assert ask_with_host(b"10.0.0.1:8080") == ask_with_host(b"localhost") == b"200"


def test_a_process_asked_under_a_name_that_is_not_its_own_says_what_to_set(tmp_path: Path) -> None:
    port = free_port()
    mini = WorkerProcess("mini", tmp_path, {"SERVER_ADDR": f"127.0.0.1:{port}", "RETRY_HTTP_HOSTS": "schedules.example.com"})
    mini.start("-m", "retry", "scheduler", "--mini")
    try:
        await_that("it answers", lambda: "rest on" in mini.log())
        for host, status in ((b"schedules.example.com", b" 200 "), (b"evil.example.com", b" 400 ")):
            with closing(socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S)) as client:
                client.sendall(b"GET /schedules HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host)
                got = answer(client)
                assert status in got
                assert (b"RETRY_HTTP_HOSTS" in got) == (status == b" 400 ")
    finally:
        mini.kill()


def test_it_ends_at_once_though_clients_idle_and_do_not_read() -> None:
    with serving() as (app, connect, http):
        connect()
        connect(GET[:20])
        connect(GET.replace(b"/ ", b"/stream ", 1))
        await_that("it streams", lambda: app.streams == 1)
        thread = http._thread
        http.stop()
        assert thread and not thread.is_alive()
        assert app.streams == 0


def test_garbage_and_uploads_that_end_early_are_not_worth_a_line_of_log(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as (_, connect, _):
        for sent in (b"\x00\xff\r\n\r\n", UPLOAD + b"Transfer-Encoding: chunked\r\n\r\nnot hex\r\n"):
            answer(connect(sent))
        with closing(connect(UPLOAD + b"Content-Length: 9\r\n\r\nxx")):
            pass
        assert b" 200 " in answer(connect(GET))
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == []


def test_an_answer_on_a_connection_that_is_kept_waits_for_no_acknowledgement() -> None:
    with serving() as (_, connect, http):
        connect(GET.replace(b"Connection: close\r\n", b""))
        assert http._server
        await_that("it is connected", lambda: http._server.server_state.connections)  # type: ignore[union-attr]
        (connection,) = http._server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("sent", [
    b"GET /" + b"x" * 100_000, GET[:-2] + b"X: " + b"x" * 100_000, GET[:-2] + b"X: y\r\n" * 20_000,
], ids=["path", "header", "headers"])  # fmt: skip
def test_a_head_without_end_is_refused_before_it_costs_memory(sent: bytes) -> None:
    with serving() as (_, connect, _):
        got = answer(connect(sent))
        assert got.startswith(b"HTTP/1.1 400 ")
        assert got.count(b"HTTP/1.1") == 1
        assert b" 200 " in answer(connect(GET))


def test_a_body_is_not_a_head_and_each_request_of_a_connection_may_have_as_large_a_head() -> None:
    large = GET.replace(b"Connection: close\r\n", b"X: " + b"x" * 40_000 + b"\r\n")
    with serving() as (_, connect, _):
        client = connect(UPLOAD + b"Connection: close\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000)
        assert answer(client).endswith(b"300000")
        client = connect()
        for _ in range(4):
            client.sendall(large)
            assert answer(client).endswith(b"here")


def test_headers_behind_a_body_are_passed_over() -> None:
    chunked = UPLOAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
    with serving() as (_, connect, _):
        assert answer(connect(chunked + b"X: y\r\n" * 20_000 + b"\r\n")).endswith(b"3")


def test_requests_that_come_together_are_answered_in_their_order() -> None:
    kept = GET.replace(b"Connection: close\r\n", b"")
    with serving() as (_, connect, _):
        client = connect(kept + UPLOAD + b"Content-Length: 2\r\n\r\nxx" + GET)
        received = b""
        while part := client.recv(65_536):
            received += part
        assert [each[:3] for each in received.split(b"HTTP/1.1 ")[1:]] == [b"200"] * 3
        assert received.endswith(b"here")
