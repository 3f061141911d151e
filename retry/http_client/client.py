"""One call, signed, with one deadline over lookup, connection, request and answer. Whatever a host does, it ends and says how.

A call goes to the addresses that were vetted for it, through a connection of its own or one that `connection_pool` has kept.
Nothing is decompressed, no redirect followed, no cookie kept, and no proxy taken from the environment. Certificates tell which
hosts are trusted, and receivers whose calls they are (mTLS).
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

import aiohttp

from retry import clock
from retry.errors import SettingsInvalid, UrlRefused
from retry.http_client.connection_pool import AnswerTooLarge, ConnectionPool, HostConnection
from retry.http_client.signatures import SigningKeys, sign_body
from retry.http_client.ssrf_guard import ResolvedHost, SsrfGuard
from retry.reloaded_file import Reloaded

_CERTIFICATES_SETTING = "RETRY_WEBHOOK_CERTIFICATES"


class _Shown(NamedTuple):
    """The certificate that calls of a team show; `seen` says of which files it was made."""

    context: ssl.SSLContext
    seen: tuple[int, ...]


class ClientCertificates:
    """TLS contexts of webhooks, by team; belongs to one event loop.

    Args:
      folder: of `TEAM.crt` and `TEAM.key`, in PEM, the key without a passphrase. Who has none shows none. Files that change are
        used for new connections; those that cannot be used change nothing.
      authorities: file of the certificates that receivers are trusted by; else those of the machine.

    Raises SettingsInvalid where files of the folder cannot be used.
    """

    def __init__(self, folder: Path | None = None, authorities: Path | None = None) -> None:
        self._authorities = authorities
        self._plain, self._shown = ssl.create_default_context(cafile=authorities), dict[str, _Shown]()
        self._reloaded = None if folder is None else Reloaded(partial(self._read_folder, folder))

    def find_context(self, team: str) -> ssl.SSLContext:
        """Find the TLS context for the next connection to a webhook of a team, with the team's certificate where it has one."""
        shown = None if self._reloaded is None else self._reloaded.current().get(team)
        return shown.context if shown else self._plain

    def _read_folder(self, folder: Path) -> dict[str, _Shown]:
        try:
            teams = sorted(each.stem for each in folder.iterdir() if each.suffix == ".crt")
        except OSError as error:
            raise SettingsInvalid(_CERTIFICATES_SETTING, f"{folder} cannot be read: {error.strerror}") from None
        self._shown = {team: self._load(folder, team) for team in teams}
        return self._shown

    def _load(self, folder: Path, team: str) -> _Shown:
        certificate, key = (folder / f"{team}{suffix}" for suffix in (".crt", ".key"))
        try:
            seen = tuple(number for path in (certificate, key) for number in _stamp(path.stat()))
            if (before := self._shown.get(team)) and before.seen == seen:
                return before
            context = ssl.create_default_context(cafile=self._authorities)
            context.load_cert_chain(certificate, key, password=_refuse_passphrase)
        except (OSError, ValueError) as error:
            fault = f"{certificate} and {key} cannot be used: {error}; both are PEM, the key fits and has no passphrase"
            raise SettingsInvalid(_CERTIFICATES_SETTING, fault) from None
        return _Shown(context, seen)


def _stamp(about: os.stat_result) -> tuple[int, int, int]:
    return about.st_mtime_ns, about.st_size, about.st_ino


def _refuse_passphrase() -> str:
    # Else OpenSSL would ask for it at the terminal.
    raise ValueError("the key has a passphrase")


# What one call came to, and what follows from it: the one place that says what an answer means.
#
# | answer | verdict |
# | --- | --- |
# | 2xx, read to its end | delivered |
# | 410 | gone: never called again |
# | 429, 502, 503, 504, or no answer at all | failed, and the host has a failure: several in a row open its breaker |
# | any other, 3xx among them | failed: this call, not the host |
#
# `Retry-After` says when the next attempt may be made, whichever failure it came with; for a host that throttles it holds back
# all calls to that host.

RETRY_AFTER_MS_MAX = 24 * 3_600_000
_THROTTLES = frozenset({429, 502, 503, 504})


class Verdict(Enum):
    DELIVERED = "delivered"
    FAILED = "failed"
    GONE = "gone"


class Answer(NamedTuple):
    """The result of one call, answered or not.

    Attributes:
      error: why it counts as failed: a status, or in a word what went wrong before there was one; None where it does not.
      took_ms: from the lookup of the host to the end of the answer.
    """

    status: int | None
    error: str | None
    body: bytes = b""
    took_ms: int = 0
    retry_after_ms: int | None = None

    @property
    def verdict(self) -> Verdict:
        if self.status == HTTPStatus.GONE:
            return Verdict.GONE
        return Verdict.DELIVERED if self.error is None else Verdict.FAILED

    @property
    def blames_host(self) -> bool:
        """Whether the next call to the same host would hardly fare better."""
        return self.error is not None and (self.status is None or self.status in _THROTTLES) and self.error != "not_allowed"


def retry_after_ms(text: str | None, now_ms: int) -> int | None:
    """Parse how long a `Retry-After` header asks to wait, in seconds or to a date; at most a day. None where it says nothing.

    >>> retry_after_ms("120", 0), retry_after_ms("Thu, 01 Jan 1970 00:00:30 GMT", 10_000), retry_after_ms("soon", 0)
    (120000, 20000, None)
    """
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:9]) * 1_000, RETRY_AFTER_MS_MAX)
    try:
        moment = parsedate_to_datetime(text)
        at_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, OverflowError, TypeError):
        return None
    return max(0, min(at_ms - now_ms, RETRY_AFTER_MS_MAX))


log = logging.getLogger(__name__)

BODY_BYTES_MAX = 64 << 10
_USER_AGENT = "dead-letter-retry"


class HttpRequest(NamedTuple):
    id: str
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout_s: float
    team: str


class WebhookClient:
    """Makes calls; belongs to one event loop.

    It asks `keys` what to sign with, and signs nothing without; `certificates` say whom it trusts and what each team shows.
    """

    def __init__(
        self, guard: SsrfGuard, keys: Callable[[], SigningKeys] = SigningKeys, certificates: ClientCertificates | None = None
    ) -> None:
        self._guard, self._keys = guard, keys
        self._pool = ConnectionPool((certificates or ClientCertificates()).find_context)

    async def call(self, request: HttpRequest) -> Answer:
        """Call once. Every failure of a call that has begun is an answer; LookupsBusy is raised where it was not begun."""
        began_s = clock.monotonic_s()
        try:
            async with asyncio.timeout(request.timeout_s):
                answer = await self._call_host(await self._guard.vet_url(request.url, request.team), request)
        except (aiohttp.ClientError, OSError, TimeoutError, UrlRefused, ValueError) as error:
            answer = Answer(None, _word(error))
            log.debug("%s: %s: %r", request.id, answer.error, error)
        return answer._replace(took_ms=int((clock.monotonic_s() - began_s) * 1_000))

    async def _call_host(self, vetted: ResolvedHost, request: HttpRequest) -> Answer:
        kept = self._pool.take_connection(vetted, request.team)
        if kept is not None:
            try:
                return await self._exchange(kept, vetted, request)
            except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError, ConnectionError) as error:
                # The host may have closed it while nobody asked: that says nothing of the call.
                if not kept.is_unanswered():
                    raise
                log.debug("%s: a kept connection was closed: %r", request.id, error)
        return await self._exchange(self._pool.make_connection(vetted, request.team), vetted, request)

    async def _exchange(self, connection: HostConnection, vetted: ResolvedHost, request: HttpRequest) -> Answer:
        now_ms = clock.wall_ms()
        headers = {"User-Agent": _USER_AGENT, **request.headers}
        headers |= sign_body(self._keys().find_keys(request.team), request.id, now_ms // 1_000, request.body)
        try:
            response = await connection.session.request(
                request.method, vetted.url, headers=headers, data=request.body or None, allow_redirects=False
            )
            try:
                answer = await _read(response, now_ms)
            finally:
                # Not released: that would read what is left.
                response.close()
        except BaseException:
            self._pool.close_connection(connection)
            raise
        self._pool.keep_connection(connection)
        return answer

    async def close(self) -> None:
        await self._pool.close()


async def _read(response: aiohttp.ClientResponse, now_ms: int) -> Answer:
    error = None if 200 <= response.status < 300 else str(response.status)
    wait_ms = retry_after_ms(response.headers.get("Retry-After"), now_ms) if error else None
    body = bytearray()
    try:
        while part := await response.content.read(BODY_BYTES_MAX + 1 - len(body)):
            body += part
            if len(body) > BODY_BYTES_MAX:
                error = error or "too_large"
                break
    except AnswerTooLarge:
        error = error or "too_large"
    except aiohttp.ClientError:
        # A status that says failed counts, however the answer ends.
        if error is None:
            raise
    return Answer(response.status, error, bytes(body[:BODY_BYTES_MAX]), 0, wait_ms)


def _word(error: Exception) -> str:
    """Name an error in a word that tells nothing of what lies behind a refused address."""
    # A receiver that asks for another certificate may reset the handshake in place of an alert.
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionResetError):
        return "reset"
    return next((word for kind, word in _WORDS if isinstance(error, kind)), "bad_answer")


_WORDS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
    (UrlRefused, "not_allowed"),
    (TimeoutError, "timeout"),
    (aiohttp.ClientSSLError, "tls"),
    (aiohttp.ClientConnectorError, "unreachable"),
    ((aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, aiohttp.ClientOSError, ConnectionError), "reset"),
    (OSError, "unreachable"),
)
