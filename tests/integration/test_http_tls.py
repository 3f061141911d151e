"""The HTTP server with a certificate, towards real TLS clients: rotation, old protocols, handshakes that never end."""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from retry import http_server, reloaded_file
from retry.http_server import HttpServer, connections
from retry.http_server.certificate import Certificate
from retry.kafka.local_broker import free_port
from tests.integration.test_http_server import App
from tests.support.process import WorkerProcess, await_that
from tests.support.secured import Certificates

GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
ANSWER_S = 30


class Pair:
    """The files of a server, and clients that trust who signed for it."""

    def __init__(self, folder: Path) -> None:
        self.certificates, self.certificate, self.key = Certificates(folder), folder / "tls.crt", folder / "tls.key"
        self.shown = self.renew()

    def renew(self) -> str:
        """Write another pair; the digest by which clients know it."""
        key, certificate = self.certificates.sign("server")
        self.key.write_bytes(key)
        self.certificate.write_bytes(certificate)
        self.shown = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.decode())).hexdigest()
        return self.shown

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificates.authority))

    def environ(self) -> dict[str, str]:
        return {"RETRY_SCHEDULER_TLS_CERT": str(self.certificate), "RETRY_SCHEDULER_TLS_KEY": str(self.key)}


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """Read again at each connection."""
    monkeypatch.setattr(reloaded_file, "_READ_EVERY_S", 0.0)
    return Pair(tmp_path)


async def _page(_request: Request) -> Response:
    return PlainTextResponse("here")


async def _scheme(request: Request) -> Response:
    return PlainTextResponse(f"{request.url.scheme}, here")


async def _large(_request: Request) -> Response:
    return PlainTextResponse("x" * 3_000_000 + "here")


Connect = Callable[..., ssl.SSLSocket]
PAGES = Starlette(routes=[Route("/", _page), Route("/scheme", _scheme), Route("/large", _large)])


@contextmanager
def serving(pair: Pair, app: ASGIApp = PAGES) -> Iterator[tuple[Connect, Callable[[], socket.socket], HttpServer]]:
    """Serve, and yield what connects with TLS, what connects without, and the server."""
    certificate = Certificate("RETRY_API_TLS_CERT", pair.certificate, "RETRY_API_TLS_KEY", pair.key)
    http, opened = HttpServer(app, "test", "127.0.0.1", 0, certificate=certificate), list[socket.socket]()
    port = http.start()

    def plain() -> socket.socket:
        opened.append(socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S))
        return opened[-1]

    def connect(context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        opened.append((context or pair.trusting()).wrap_socket(plain(), server_hostname="127.0.0.1"))
        assert isinstance(opened[-1], ssl.SSLSocket)
        return opened[-1]

    yield connect, plain, http
    http.stop()
    for client in opened:
        client.close()


def ask(client: socket.socket, request: bytes = GET) -> bytes:
    """Ask once and return one whole answer."""
    client.sendall(request)
    received = b""
    while not received.endswith(b"here") and (part := client.recv(65_536)):
        received += part
    return received


def digest_shown_certificate(client: ssl.SSLSocket) -> str:
    """The digest of the certificate that it was shown."""
    return hashlib.sha256(client.getpeercert(binary_form=True) or b"").hexdigest()


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def test_new_connections_are_shown_the_new_certificate_and_old_ones_go_on(pair: Pair) -> None:
    with serving(pair) as (connect, _, _):
        old, old_digest = connect(), pair.shown
        assert b" 200 " in ask(old)
        for _ in range(3):
            digest = pair.renew()
            new = connect()
            assert digest_shown_certificate(new) == digest != old_digest
            assert b" 200 " in ask(new)
            assert b" 200 " in ask(old)
        assert digest_shown_certificate(old) == old_digest


def test_a_pair_half_written_keeps_the_one_before_and_clients_notice_nothing(pair: Pair) -> None:
    with serving(pair) as (connect, _, http):
        before = pair.shown
        _, other = pair.certificates.sign("other")
        pair.certificate.write_bytes(other)
        assert digest_shown_certificate(connect()) == before
        assert http.certificate is not None
        assert http.certificate.trouble().startswith("RETRY_API_TLS_KEY: ")
        after = pair.renew()
        assert digest_shown_certificate(connect()) == after != before
        assert http.certificate.trouble() == ""


def test_the_application_is_told_https_and_large_answers_come_whole(pair: Pair) -> None:
    with serving(pair) as (connect, _, _):
        client = connect()
        assert ask(client, GET.replace(b"/ ", b"/scheme ", 1)).endswith(b"https, here")
        assert len(ask(client, GET.replace(b"/ ", b"/large ", 1))) > 3_000_000
        assert client.version() == "TLSv1.3"


@pytest.mark.parametrize(("version", "is_served"), [("TLSv1", False), ("TLSv1_1", False), ("TLSv1_2", True), ("TLSv1_3", True)])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_older_than_1_2_is_refused(pair: Pair, version: str, *, is_served: bool) -> None:
    context = pair.trusting()
    # Else this client would refuse by itself.
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    with serving(pair) as (connect, _, _):
        if is_served:
            assert b" 200 " in ask(connect(context))
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                connect(context)
        assert b" 200 " in ask(connect())


def test_who_asks_without_tls_gets_no_answer_and_no_line_of_the_log(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    with serving(pair) as (connect, plain, _):
        client = plain()
        client.sendall(GET)
        assert is_closed(client)
        garbled = plain()
        garbled.sendall(b"\x16\x03\x01\xff\xff" + b"\x00" * 500)
        assert b" 200 " in ask(connect())
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == []


def test_a_handshake_that_does_not_come_is_closed_in_time(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_HEAD_S", 1.0)
    monkeypatch.setattr(connections, "_LOOK_S", 0.05)
    with serving(pair) as (_, plain, http):
        silent, slow = plain(), plain()
        slow.sendall(b"\x16\x03\x01")
        assert is_closed(silent)
        assert is_closed(slow)
        assert http._server
        await_that("nothing is left of them", lambda: not http._server.server_state.connections)  # type: ignore[union-attr]


def test_who_leaves_before_its_handshake_is_counted_no_longer(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody else removes it in time.
    monkeypatch.setattr(connections, "_HEAD_S", 3_600.0)
    with serving(pair) as (_, plain, http):
        assert http._server
        state, client = http._server.server_state, plain()
        await_that("it is counted", lambda: len(state.connections) == 1)
        client.close()
        await_that("it is no longer", lambda: not state.connections)


def test_handshakes_that_do_not_come_keep_nobody_out(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_connections_max", lambda _share: 3)
    with serving(pair) as (connect, plain, http):
        silent = [plain() for _ in range(10)]
        assert b" 200 " in ask(connect())
        assert http._server
        assert len(http._server.server_state.connections) <= 3
        assert is_closed(silent[0])


def test_a_client_that_does_not_read_its_answer_is_closed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_STALLED_S", 1.0)
    monkeypatch.setattr(connections, "_LOOK_S", 0.05)
    pages = App()
    with serving(pair, pages.app) as (connect, _, _):
        connect().sendall(GET.replace(b"/ ", b"/stream ", 1))
        await_that("it streams", lambda: pages.begun == 1)
        await_that("it does no longer", lambda: pages.streams == 0)


def test_it_ends_though_clients_idle_or_never_finish_their_handshake(pair: Pair) -> None:
    with serving(pair) as (connect, plain, http):
        idle = connect()
        assert b" 200 " in ask(idle)
        half = plain()
        assert http._server
        await_that("both are connected", lambda: len(http._server.server_state.connections) == 2)  # type: ignore[union-attr]
        thread = http._thread
        http.stop()
        assert thread and not thread.is_alive()
        # It is told the end, and not cut off.
        assert idle.recv(1) == b""
        assert is_closed(half)


def test_a_real_process_serves_tls_and_takes_a_new_certificate_without_a_restart(tmp_path: Path) -> None:
    pair, port = Pair(tmp_path), free_port()
    mini = WorkerProcess("mini", tmp_path, {"SERVER_ADDR": f"127.0.0.1:{port}", **pair.environ()})
    mini.start("-m", "retry", "scheduler", "--mini")

    def connect() -> ssl.SSLSocket:
        return pair.trusting().wrap_socket(socket.create_connection(("127.0.0.1", port), ANSWER_S), server_hostname="127.0.0.1")

    try:
        await_that("it serves", lambda: f"rest on 127.0.0.1:{port} with TLS" in mini.log())
        with connect() as old:
            assert digest_shown_certificate(old) == pair.shown
            pair.renew()

            def is_new() -> bool:
                with connect() as client:
                    return digest_shown_certificate(client) == pair.shown

            await_that("the new certificate is shown", is_new)
            old.sendall(GET.replace(b"/ ", b"/liveness ", 1))
            assert b" 200 " in old.recv(65_536)
    finally:
        mini.kill()


def test_a_process_whose_key_belongs_to_another_certificate_does_not_start(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.key.write_bytes(pair.certificates.sign("other")[0])
    mini = WorkerProcess("mini", tmp_path, {"SERVER_ADDR": "127.0.0.1:0", **pair.environ()})
    mini.start("-m", "retry", "scheduler", "--mini")
    try:
        await_that("it ends", lambda: not mini.running())
        assert mini.exit_code() == 1
        assert "RETRY_SCHEDULER_TLS_KEY: " in mini.log() and "is not the key of" in mini.log()
        assert "Traceback" not in mini.log()
    finally:
        mini.kill()
