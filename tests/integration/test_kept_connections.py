"""Connections that are kept for the next call: taken where that is as safe as a new one, and nowhere else (2-16)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from retry.http_client import connection_pool
from retry.http_client.client import Answer, HttpRequest, WebhookClient
from retry.http_client.connection_pool import BoundedAnswers
from retry.http_client.ssrf_guard import SsrfGuard, parse_allowlist
from tests.support.hosts import Behaviour, Call, Host, ok, reset, says

PATIENCE_S = 60.0
# More than the sockets of both sides hold.
BODY_BYTES = 50_000_000
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
FORGED = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"

Calls = Callable[..., Awaitable[Answer]]


class Names:
    """Resolves every name to what it is told at the time."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)

    async def lookup(self, _host: str, _team: str) -> list[str]:
        return self.addresses


def calling(steps: Callable[[Calls], Awaitable[None]], names: Names | None = None) -> None:
    """Run some calls by one client."""

    async def run() -> None:
        client = WebhookClient(SsrfGuard(parse_allowlist("127.0.0.0/8"), names.lookup if names else None))

        async def call(url: str, team: str = "t", timeout_s: float = PATIENCE_S) -> Answer:
            return await client.call(HttpRequest("id", "POST", url, {}, b"{}", timeout_s, team))

        try:
            await steps(call)
        finally:
            await client.close()

    asyncio.run(run())


async def until(what: str, holds: Callable[[], bool]) -> None:
    """Wait within a loop that must go on."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.01)
    assert holds(), what


def test_calls_of_one_team_to_one_host_share_a_connection_and_those_of_others_do_not() -> None:
    with Host(keeps=True) as host:

        async def steps(call: Calls) -> None:
            for path in ("a", "b", "c"):
                assert (await call(f"{host.url}/{path}")).body == b"ok"
            assert host.connections == 1
            assert (await call(f"{host.url}/d", team="other")).body == b"ok"
            assert host.connections == 2

        calling(steps)
        assert [each.path for each in host.calls] == ["/a", "/b", "/c", "/d"]


def test_calls_at_one_time_have_a_connection_each() -> None:
    with Host(keeps=True) as host:

        async def steps(call: Calls) -> None:
            answers = await asyncio.gather(*(call(f"{host.url}/{n}") for n in range(8)))
            assert {answer.body for answer in answers} == {b"ok"}
            assert host.connections == 8

        calling(steps)


def test_a_kept_connection_is_not_taken_where_its_address_is_not_among_those_that_were_vetted_now() -> None:
    names = Names("127.0.0.1")
    with Host(keeps=True) as first, Host(keeps=True, address="127.0.0.2", port=first.port) as second:

        async def steps(call: Calls) -> None:
            url = f"http://moves.test:{first.port}/"
            await call(url)
            names.addresses = ["127.0.0.2"]
            await call(url)
            assert (len(first.calls), len(second.calls)) == (1, 1)
            names.addresses = ["10.0.0.1"]
            assert (await call(url)).error == "not_allowed"
            assert (len(first.calls), len(second.calls)) == (1, 1)

        calling(steps, names)


async def _forges_behind(_call: Call, writer: asyncio.StreamWriter) -> None:
    writer.write(OK + FORGED)


async def _forges_later(_call: Call, writer: asyncio.StreamWriter) -> None:
    writer.write(OK)
    await writer.drain()
    asyncio.get_running_loop().call_later(0.05, writer.write, FORGED[:20])


async def _cuts_short(_call: Call, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok")
    writer.close()


async def _says_goodbye(_call: Call, writer: asyncio.StreamWriter) -> None:
    writer.write(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))


async def _says_too_much(_call: Call, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200_000)


@pytest.mark.parametrize("behave", [_forges_behind, _cuts_short, _says_goodbye, _says_too_much])
def test_2_16_a_connection_is_kept_only_where_the_answer_came_whole_and_alone(behave: Behaviour) -> None:
    with Host(behave, keeps=True) as host:

        async def steps(call: Calls) -> None:
            await call(host.url)
            host.behave = ok
            assert (await call(host.url)).body == b"ok"
            assert host.connections == 2

        calling(steps)


def test_2_16_what_comes_while_nobody_has_asked_is_no_answer_to_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "_KEPT_S", 3_600.0)
    aborted = list[bool]()
    with Host(_forges_later, keeps=True) as host:

        async def steps(call: Calls) -> None:
            really = BoundedAnswers.abort
            monkeypatch.setattr(BoundedAnswers, "abort", lambda self: (aborted.append(self.resting), really(self)))
            await call(host.url)
            host.behave = ok
            await until("it came, and the connection was closed", lambda: bool(aborted))
            assert (await call(host.url)).body == b"ok"
            assert host.connections == 2

        calling(steps)
    assert aborted[0] is True


def test_a_kept_connection_that_the_host_has_closed_costs_no_attempt() -> None:
    with Host(keeps=True) as host:

        async def steps(call: Calls) -> None:
            await call(f"{host.url}/a")
            # Reset as the next request comes: what a host does that has closed it at the same moment.
            host.behave = _once(reset, then=ok)
            answer = await call(f"{host.url}/b")
            assert (answer.error, answer.body) == (None, b"ok")
            assert host.connections == 2

        calling(steps)


def test_a_host_that_resets_new_connections_too_is_a_failed_attempt() -> None:
    with Host(keeps=True) as host:

        async def steps(call: Calls) -> None:
            await call(host.url)
            host.behave = reset
            assert (await call(host.url)).error == "reset"
            assert (host.connections, len(host.calls)) == (2, 3)

        calling(steps)


@pytest.mark.parametrize("behave", [says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok"), says(b"HTTP/1.1 20")])
def test_an_answer_that_began_and_was_cut_short_is_not_asked_for_again(behave: Behaviour) -> None:
    async def cut(call: Call, writer: asyncio.StreamWriter) -> None:
        await behave(call, writer)
        writer.close()

    with Host(keeps=True) as host:

        async def steps(call: Calls) -> None:
            await call(host.url)
            host.behave = cut
            assert (await call(host.url)).error == "reset"
            assert (host.connections, len(host.calls)) == (1, 2)

        calling(steps)


def test_each_answer_of_a_connection_may_have_as_much_beside_its_body() -> None:
    large = "\r\n".join(f"X-{n}: {'y' * 4_000}" for n in range(12)).encode()

    async def answer(_call: Call, writer: asyncio.StreamWriter) -> None:
        writer.write(OK.replace(b"\r\n\r\n", b"\r\n" + large + b"\r\n\r\n"))

    with Host(answer, keeps=True) as host:

        async def steps(call: Calls) -> None:
            for _ in range(4):
                assert (await call(host.url)).body == b"ok"
            assert host.connections == 1

        calling(steps)


def test_connections_are_closed_when_nobody_has_called_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "_KEPT_S", 0.1)
    with Host(keeps=True) as host:

        async def steps(call: Calls) -> None:
            await call(host.url)
            await until("the host was told", lambda: not host._open)

        calling(steps)
        assert host.connections == 1


def test_no_more_are_kept_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "_KEPT_MAX", 2)
    with Host(keeps=True) as host:

        async def steps(call: Calls) -> None:
            await asyncio.gather(*(call(f"{host.url}/{n}") for n in range(6)))
            await until("the others are closed", lambda: len(host._open) == 2)

        calling(steps)


def test_a_host_that_speaks_the_old_version_gets_a_connection_for_each_call() -> None:
    with Host(says(OK.replace(b"1.1", b"1.0")), keeps=False) as host:

        async def steps(call: Calls) -> None:
            for _ in range(2):
                assert (await call(host.url)).body == b"ok"
            assert host.connections == 2

        calling(steps)


def _once(behave: Behaviour, then: Behaviour) -> Behaviour:
    left = [behave]

    async def answer(call: Call, writer: asyncio.StreamWriter) -> None:
        await (left.pop() if left else then)(call, writer)

    return answer


def test_2_16_a_host_that_does_not_read_what_it_is_sent_leaves_no_connection_behind() -> None:
    """Answer before the request is read: what is left of it is not waited for."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:

        def answer_at_once() -> socket.socket:
            accepted, _ = deaf.accept()
            accepted.sendall(b"HTTP/1.1 500 Told\r\nContent-Length: 0\r\n\r\n")
            return accepted

        async def run() -> None:
            client = WebhookClient(SsrfGuard(parse_allowlist("127.0.0.0/8")))
            accepting = asyncio.get_running_loop().run_in_executor(None, answer_at_once)
            url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
            answer = await client.call(HttpRequest("id", "POST", url, {}, b"x" * BODY_BYTES, PATIENCE_S, "t"))
            assert (answer.error, answer.status) == ("500", 500)
            await client.close()
            with await accepting as accepted:
                assert await asyncio.to_thread(_read_to_its_end, accepted) < BODY_BYTES

        asyncio.run(run())


def _read_to_its_end(connection: socket.socket) -> int:
    count = 0
    with suppress(ConnectionError):
        while part := connection.recv(1 << 20):
            count += len(part)
    return count
