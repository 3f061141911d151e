"""Calls to real servers on loopback, most of which misbehave: each ends in time, as an answer, and nothing is raised (2-16)."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from retry.http_client.client import BODY_BYTES_MAX, Answer, HttpRequest, Verdict, WebhookClient, secret_of, sign_body
from retry.http_client.ssrf_guard import Lookup, SsrfGuard, parse_allowlist
from tests.support.hosts import Behaviour, Host, drip, endless, hang, reset, says, status
from tests.support.process import await_that

TLS = Path(__file__).parents[1] / "fixtures" / "tls"
SECRET = secret_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
# Of calls that are to come to its end; of all others, which a busy machine may make as slowly as it likes.
TIMEOUT_S, PATIENCE_S = 1.5, 60.0


def call(url: str, *, allow: str = "127.0.0.0/8", lookup: Lookup | None = None, trust: ssl.SSLContext | None = None,
         timeout_s: float = PATIENCE_S, **request: object) -> Answer:  # fmt: skip
    async def one() -> Answer:
        client = WebhookClient(SsrfGuard(parse_allowlist(allow), lookup), lambda: [SECRET], trust)
        wanted = {"id": "timer-1", "method": "POST", "headers": {}, "body": b"{}", "timeout_s": timeout_s, "team": "t", **request}
        try:
            return await client.call(HttpRequest(url=url, **wanted))  # type: ignore[arg-type]
        finally:
            await client.close()

    return asyncio.run(one())


def test_a_call_arrives_signed_and_as_it_was_asked_for() -> None:
    with Host() as host:
        answer = call(f"{host.url}/a%20b?c=d", method="PUT", headers={"Content-Type": "text/plain", "X-Own": "1"}, body=b"hello")
    assert (answer.status, answer.error, answer.body, answer.verdict) == (200, None, b"ok", Verdict.DELIVERED)
    (got,) = host.calls
    assert (got.method, got.path, got.body) == ("PUT", "/a%20b?c=d", b"hello")
    assert got.headers["content-type"] == "text/plain"
    assert got.headers["x-own"] == "1"
    assert got.headers["host"] == f"127.0.0.1:{host.port}"
    expected = sign_body([SECRET], "timer-1", int(got.headers["webhook-timestamp"]), b"hello")
    assert {name: got.headers[name] for name in expected} == expected


BAD: dict[str, tuple[Behaviour, str, int | None]] = {
    "a reset": (reset, "reset", None),
    "no answer before the connection ends": (says(b""), "reset", None),
    "an answer that is cut short": (says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), "reset", None),
    "a bad status line": (says(b"ICY 200 OK\r\n\r\n"), "bad_answer", None),
    "bytes that are no HTTP": (says(bytes(range(256)) * 20), "bad_answer", None),
    "a header without end": (says(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000), "bad_answer", None),
    "a bad chunk": (says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), "bad_answer", None),
    "two lengths": (says(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), "bad_answer", None),
    "no answer": (hang, "timeout", None),
    "a slow drip": (drip, "timeout", None),
    "an endless body": (endless, "too_large", 200),
    "a huge body": (status(200, body=b"x" * 2_000_000), "too_large", 200),
    "a redirect": (status(302, "Location: http://169.254.169.254/latest/meta-data/"), "302", 302),
    "a redirect to itself": (status(307, "Location: /"), "307", 307),
    "a failure": (status(500, body=b"no"), "500", 500),
}


@pytest.mark.parametrize("case", BAD)
def test_2_16_a_host_that_misbehaves_is_a_failed_attempt(case: str) -> None:
    behaviour, error, code = BAD[case]
    with Host(behaviour) as host:
        answer = call(host.url, timeout_s=TIMEOUT_S if error == "timeout" else PATIENCE_S)
        assert (answer.error, answer.status) == (error, code)
        assert answer.verdict is Verdict.FAILED
        assert len(answer.body) <= BODY_BYTES_MAX
        # Where nobody waits for an answer any more, a busy host has perhaps not read yet what it was sent.
        await_that("the call came", lambda: host.calls)
        assert len(host.calls) == 1


def test_2_16_ten_thousand_headers_do_no_harm() -> None:
    with Host(status(200, *(f"X-{n}: {n}" for n in range(10_000)))) as host:
        assert call(host.url).error in (None, "bad_answer")


def test_2_16_a_body_that_grows_when_it_is_unpacked_is_not_unpacked() -> None:
    bomb = gzip.compress(bytes(40_000_000))
    with Host(status(200, "Content-Encoding: gzip", body=bomb)) as host:
        answer = call(host.url)
    assert answer.body == bomb[:BODY_BYTES_MAX]


def test_2_16_a_refused_connection() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        answer = call(f"http://127.0.0.1:{taken.getsockname()[1]}/")
    assert (answer.error, answer.status) == ("unreachable", None)


def test_2_16_a_connection_that_is_never_accepted() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        with socket.create_connection(deaf.getsockname()), socket.socket() as other:
            other.setblocking(False)
            other.connect_ex(deaf.getsockname())
            assert call(f"http://127.0.0.1:{deaf.getsockname()[1]}/", timeout_s=TIMEOUT_S).error == "timeout"


async def nowhere(_host: str, _team: str) -> list[str]:
    raise socket.gaierror(socket.EAI_NONAME, "unknown")


async def never(_host: str, _team: str) -> list[str]:
    await asyncio.Event().wait()
    return []


@pytest.mark.parametrize(("lookup", "error"), [(nowhere, "unreachable"), (never, "timeout")])
def test_2_16_a_host_that_cannot_be_resolved(lookup: Lookup, error: str) -> None:
    timeout_s = TIMEOUT_S if lookup is never else PATIENCE_S
    assert call("https://hooks.test/", lookup=lookup, timeout_s=timeout_s).error == error


def loopback(*_asked: object) -> Callable[[str, str], object]:
    async def found(_host: str, _team: str) -> list[str]:
        return ["127.0.0.1"]

    return found


def serving() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    return context


def test_tls_is_spoken_with_the_hosts_name_to_the_address_that_was_vetted() -> None:
    with Host(tls=serving()) as host:
        trust = ssl.create_default_context(cafile=str(TLS / "cert.pem"))
        answer = call(f"https://hooks.test:{host.port}/", lookup=loopback(), trust=trust)  # type: ignore[arg-type]
    assert answer.status == 200
    assert host.server_names == ["hooks.test"]
    assert host.calls[0].headers["host"] == f"hooks.test:{host.port}"


@pytest.mark.parametrize("name", ["hooks.test", "other.test"])
def test_2_16_a_certificate_that_is_not_to_be_trusted(name: str) -> None:
    trust = ssl.create_default_context(cafile=str(TLS / "cert.pem")) if name == "other.test" else None
    with Host(tls=serving()) as host:
        answer = call(f"https://{name}:{host.port}/", lookup=loopback(), trust=trust)  # type: ignore[arg-type]
        assert answer.error == "tls"
    assert host.calls == []


def test_2_16_a_host_that_speaks_no_tls() -> None:
    with Host() as host:
        assert call(f"https://127.0.0.1:{host.port}/", timeout_s=TIMEOUT_S).error in ("tls", "reset", "timeout")
    assert host.calls == []


def test_what_may_not_be_called_is_not_connected_to() -> None:
    with Host() as host:
        assert call(host.url, allow="").error == "not_allowed"
        assert call(f"http://localhost:{host.port}/", allow="", lookup=loopback()).error == "not_allowed"  # type: ignore[arg-type]
    assert host.calls == []


def test_a_name_that_changes_its_mind_is_looked_up_once_an_attempt() -> None:
    asked: list[str] = []

    async def rebinding(host: str, _team: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.2"] if len(asked) == 1 else ["127.0.0.1"]

    with Host(address="127.0.0.2") as vetted, Host() as other:
        other.port = vetted.port
        assert call(f"http://hooks.test:{vetted.port}/", allow="127.0.0.2/32", lookup=rebinding).status == 200
        assert call(f"http://hooks.test:{vetted.port}/", allow="127.0.0.2/32", lookup=rebinding).error == "not_allowed"
    assert asked == ["hooks.test", "hooks.test"]
    assert len(vetted.calls) == 1


def test_a_proxy_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with Host() as host, Host() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("http_proxy", proxy.url)
        assert call(host.url).status == 200
    assert proxy.calls == []
    assert len(host.calls) == 1


@pytest.mark.parametrize(("told", "wait_ms"), [("7", 7_000), ("never", None)])
def test_how_long_a_host_asks_to_wait_is_told(told: str, wait_ms: int | None) -> None:
    with Host(status(429, f"Retry-After: {told}")) as host:
        assert call(host.url).retry_after_ms == wait_ms
