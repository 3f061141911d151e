"""Calls to real servers on loopback, most of which misbehave: each ends in time, as an answer, and nothing is raised (2-16)."""

from __future__ import annotations

import asyncio
import base64
import gzip
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from retry import clock
from retry.errors import SettingsInvalid
from retry.http_client.client import BODY_BYTES_MAX, Answer, ClientCertificates, HttpRequest, Verdict, WebhookClient
from retry.http_client.signatures import SigningKeys, make_key, sign_body
from retry.http_client.ssrf_guard import Lookup, SsrfGuard, parse_allowlist
from tests.support.hosts import Behaviour, Host, drip, endless, hang, reset, says, status
from tests.support.process import await_that
from tests.support.secured import Certificates

TLS = Path(__file__).parents[1] / "fixtures" / "tls"
KEYS = SigningKeys("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
# Of calls that are to come to its end; of all others, which a busy machine may make as slowly as it likes.
TIMEOUT_S, PATIENCE_S = 1.5, 60.0


def call(url: str, *, allow: str = "127.0.0.0/8", lookup: Lookup | None = None, trust: Path | None = None,
         timeout_s: float = PATIENCE_S, **request: object) -> Answer:  # fmt: skip
    async def one() -> Answer:
        client = WebhookClient(SsrfGuard(parse_allowlist(allow), lookup), lambda: KEYS, ClientCertificates(authorities=trust))
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
    expected = sign_body(KEYS.find_keys("t"), "timer-1", int(got.headers["webhook-timestamp"]), b"hello")
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
    async def find_loopback(_host: str, _team: str) -> list[str]:
        return ["127.0.0.1"]

    return find_loopback


def serving() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    return context


def test_tls_is_spoken_with_the_hosts_name_to_the_address_that_was_vetted() -> None:
    with Host(tls=serving()) as host:
        answer = call(f"https://hooks.test:{host.port}/", lookup=loopback(), trust=TLS / "cert.pem")  # type: ignore[arg-type]
    assert answer.status == 200
    assert host.server_names == ["hooks.test"]
    assert host.calls[0].headers["host"] == f"hooks.test:{host.port}"


@pytest.mark.parametrize("name", ["hooks.test", "other.test"])
def test_2_16_a_certificate_that_is_not_to_be_trusted(name: str) -> None:
    trust = TLS / "cert.pem" if name == "other.test" else None
    with Host(tls=serving()) as host:
        answer = call(f"https://{name}:{host.port}/", lookup=loopback(), trust=trust)  # type: ignore[arg-type]
        assert answer.error == "tls"
    assert host.calls == []


def test_a_receiver_verifies_calls_of_its_team_by_the_public_key_and_no_other_team_signs_for_it() -> None:
    (public, private), (_, shared) = make_key(asymmetric=True), make_key(asymmetric=False)
    keys = SigningKeys(f"payments {private}\norders {shared}\n")
    verify = Ed25519PublicKey.from_public_bytes(base64.b64decode(public.removeprefix("whpk_"))).verify

    async def call_as(*teams: str) -> None:
        client = WebhookClient(SsrfGuard(parse_allowlist("127.0.0.0/8")), lambda: keys)
        for team in teams:
            assert (await client.call(HttpRequest("id-1", "POST", host.url, {}, b"body", PATIENCE_S, team))).error is None
        await client.close()

    with Host() as host:
        asyncio.run(call_as("payments", "orders", "search"))
    payments, orders, search = (call.headers for call in host.calls)
    scheme, _, signature = payments["webhook-signature"].partition(",")
    verify(base64.b64decode(signature), b"id-1.%b.body" % payments["webhook-timestamp"].encode())
    assert scheme == "v1a"
    assert orders["webhook-signature"].startswith("v1,")
    assert "webhook-signature" not in search


class Receivers:
    """A host that asks for a client certificate, and the folder of those that teams show."""

    def __init__(self, folder: Path) -> None:
        self.certificates, self.folder = Certificates(folder), folder / "of-teams"
        self.folder.mkdir()
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(*self.certificates.files("host"))
        self.tls.load_verify_locations(self.certificates.authority)
        self.tls.verify_mode = ssl.CERT_REQUIRED
        # Else a client hears only after its request that its certificate is refused.
        self.tls.maximum_version = ssl.TLSVersion.TLSv1_2

    def put(self, team: str, passphrase: str = "") -> None:
        """Write another pair of files for a team."""
        key, certificate = self.certificates.sign(team, passphrase)
        (self.folder / f"{team}.crt").write_bytes(certificate)
        (self.folder / f"{team}.key").write_bytes(key)

    def open(self) -> ClientCertificates:
        """Open the certificates that calls of all teams show."""
        return ClientCertificates(self.folder, self.certificates.authority)


def test_calls_of_a_team_show_its_certificate_and_those_of_others_are_refused(tmp_path: Path) -> None:
    receivers = Receivers(tmp_path)
    receivers.put("payments")
    with Host(tls=receivers.tls) as host:

        async def call_as(*teams: str) -> list[str | None]:
            client = WebhookClient(SsrfGuard(parse_allowlist("127.0.0.0/8")), SigningKeys, receivers.open())
            wanted = [HttpRequest("1", "POST", f"https://127.0.0.1:{host.port}/", {}, b"", PATIENCE_S, team) for team in teams]
            try:
                return [(await client.call(each)).error for each in wanted]
            finally:
                await client.close()

        mine, theirs = asyncio.run(call_as("payments", "orders"))
        assert (mine, len(host.calls)) == (None, 1)
        assert theirs in ("tls", "reset")
        receivers.put("orders")
        assert asyncio.run(call_as("orders", "payments")) == [None, None]


def test_a_new_certificate_is_used_and_one_that_cannot_be_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(clock.Interval, "is_due", lambda _self: True)
    receivers = Receivers(tmp_path)
    receivers.put("payments")
    shown = receivers.open()
    first, plain = shown.find_context("payments"), shown.find_context("orders")
    assert first is not plain
    assert shown.find_context("payments") is first
    (receivers.folder / "payments.key").write_text("half of a key")
    assert (shown.find_context("payments"), shown.find_context("payments")) == (first, first)
    assert caplog.text.count("what was read before stays in use") == 1
    receivers.put("payments")
    second = shown.find_context("payments")
    assert second not in (first, plain)
    for file in receivers.folder.iterdir():
        file.unlink()
    assert shown.find_context("payments") is plain


@pytest.mark.parametrize("wrong", ["no key", "a passphrase", "no folder"])
def test_certificates_that_cannot_be_used_are_told_before_anything_starts(tmp_path: Path, wrong: str) -> None:
    receivers = Receivers(tmp_path)
    receivers.put("payments", passphrase="locked" if wrong == "a passphrase" else "")
    if wrong == "no key":
        (receivers.folder / "payments.key").unlink()
    elif wrong == "no folder":
        receivers.folder = tmp_path / "nowhere"
    with pytest.raises(SettingsInvalid, match="RETRY_WEBHOOK_CERTIFICATES"):
        receivers.open()


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
