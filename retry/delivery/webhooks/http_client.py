"""One call, with one deadline over lookup, connection, request and answer. Whatever a host does, the call ends and says how.

A call goes to the addresses that were vetted for it, through a connection of its own or one that `connection_pool` has kept.
Nothing is decompressed, no redirect followed, no cookie kept, and no proxy taken from the environment.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import aiohttp

from retry import clock
from retry.delivery.webhooks.answer_limits import AnswerTooLarge
from retry.delivery.webhooks.connection_pool import ConnectionPool, HostConnection
from retry.delivery.webhooks.response import Answer, retry_after_ms
from retry.delivery.webhooks.ssrf_guard import ResolvedHost, SsrfGuard
from retry.delivery.webhooks.standard_webhooks import sign_body
from retry.errors import UrlRefused

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 64 << 10
_USER_AGENT = "dead-letter-retry"

CurrentSecrets = Callable[[], Sequence[bytes]]


class HttpRequest(NamedTuple):
    """One HTTP request that is to be sent.

    Attributes:
      id: `webhook-id`: the same for all attempts.
      timeout_s: for the whole call, lookup included.
      team: whose call it is.
    """

    id: str
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout_s: float
    team: str


class WebhookClient:
    """Makes calls; belongs to one event loop.

    Args:
      secrets: asked before each call for the keys to sign with, the newest first.
      trust: certificate authorities; those of the machine where it is left out.
    """

    def __init__(self, guard: SsrfGuard, secrets: CurrentSecrets, trust: ssl.SSLContext | None = None) -> None:
        self._guard, self._secrets = guard, secrets
        self._pool = ConnectionPool(trust or ssl.create_default_context())

    async def call(self, request: HttpRequest) -> Answer:
        """Call once. Every failure of a call that has begun is an answer.

        Raises:
          LookupsBusy: it was not begun.
        """
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
        headers |= sign_body(self._secrets(), request.id, now_ms // 1_000, request.body)
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
        """Close the connections that are kept."""
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
    return next((word for kind, word in _WORDS if isinstance(error, kind)), "bad_answer")


_WORDS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
    (UrlRefused, "not_allowed"),
    (TimeoutError, "timeout"),
    (aiohttp.ClientSSLError, "tls"),
    (aiohttp.ClientConnectorError, "unreachable"),
    ((aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, aiohttp.ClientOSError, ConnectionError), "reset"),
    (OSError, "unreachable"),
)
