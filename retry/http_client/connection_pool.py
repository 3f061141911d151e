"""Connections to hosts that have just answered, kept for the same team's next call; what they may send in answer is bounded.

Every call's host is looked up and judged, and a kept connection is taken only where it leads to an address vetted for that very
call. It is kept only where its answer came whole and nothing behind it, and is closed where anything comes while nobody has
asked: so nothing is taken for the answer to another call.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.helpers import set_exception

from retry.http_client.ssrf_guard import ResolvedHost

# What a host may send in answer to one call beside the body: bounded, whatever it consists of.
#
# aiohttp bounds a line, a header and how many of them there are. It does not bound what they come to together, answers that
# only announce another (1xx), or what surrounds the chunks of a body. A connection has one call at a time, so its bytes can be
# counted.

# The heads of all answers, sizes and extensions of chunks, and trailers.
BESIDE_BODY_BYTES_MAX = 64 << 10
# What comes at once is parsed in parts, so that no more than one of them is beyond the bound.
_PART_BYTES = 16 << 10
# Answers that nobody has read yet, those that announce another among them; parsed they take far more memory than they have bytes.
_UNREAD_MAX = 16


class AnswerTooLarge(aiohttp.ClientError):
    """A host sends more than an answer may have."""


class BoundedAnswers(ResponseHandler):
    """The protocol of one connection, which bounds what its host may send in answer to a call."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.came_bytes, self.resting = 0, False
        self._opened: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._opened = transport

    def abort_connection(self) -> None:
        """Close it with whatever is still to be sent, even where that was to be closed once it is."""
        if isinstance(self._opened, asyncio.WriteTransport):
            self._opened.abort()
        self.abort()

    def address(self) -> str | None:
        return None if self.transport is None else str(self.transport.get_extra_info("peername")[0]).partition("%")[0]

    def set_response_params(self, **parameters: Any) -> None:
        # A request is about to be sent: what is counted is the answer to that.
        self.came_bytes, self._payload = 0, None
        super().set_response_params(**parameters)

    def data_received(self, data: bytes) -> None:
        if self.resting and data:
            # An answer to nobody must not be taken for that to the next call.
            self.abort()
            return
        # No data at all means that the payload asks for what was left over.
        for at in range(0, max(1, len(data)), _PART_BYTES):
            part = data[at : at + _PART_BYTES]
            self.came_bytes += len(part)
            super().data_received(part)
            body_bytes = 0 if self._payload is None else self._payload.total_bytes
            if self.came_bytes - body_bytes > BESIDE_BODY_BYTES_MAX or len(self._buffer) > _UNREAD_MAX:
                self._reject_answer()
            if self.transport is None:
                return

    def _reject_answer(self) -> None:
        error, payload = AnswerTooLarge("the host sends more than an answer may have"), self._payload
        self.abort()
        self.set_exception(error)
        if payload is not None:
            set_exception(payload, error)


# Less than most servers wait: several close after five seconds.
_KEPT_S = 4.0
# Certificates are checked, and load is balanced, where connections are made.
_AGE_S = 60.0
_KEPT_MAX = 256

Origin = tuple[str, str, str | None, int | None]


class HostConnection:
    """One connection, made by its first call."""

    def __init__(self, origin: Origin, vetted: ResolvedHost, trust: ssl.SSLContext) -> None:
        self.origin, self._loop = origin, asyncio.get_running_loop()
        self.made_s = self.kept_s = self._loop.time()
        self._protocol: BoundedAnswers | None = None
        connector = aiohttp.TCPConnector(resolver=vetted.resolver(), use_dns_cache=False, limit=1, ssl=trust)
        connector._factory = self._make_protocol  # type: ignore[assignment]
        self.session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False, trust_env=False,
        )  # fmt: skip

    def _make_protocol(self) -> BoundedAnswers:
        self._protocol = BoundedAnswers(self._loop)
        return self._protocol

    def is_unanswered(self) -> bool:
        return self._protocol is not None and self._protocol.came_bytes == 0

    def leads_to(self, vetted: ResolvedHost) -> bool:
        return self._protocol is not None and self._protocol.address() in vetted.addresses

    def is_clean(self) -> bool:
        return self._protocol is not None and self._protocol.is_connected() and not self._protocol.should_close

    def abort(self) -> None:
        if self._protocol is not None:
            self._protocol.abort_connection()

    def watch_idle(self, *, resting: bool) -> None:
        """Close it where anything comes while it is `resting`."""
        if self._protocol is not None:
            self._protocol.resting = resting


class ConnectionPool:
    """Connections that are kept, by team and origin, and made with the team's TLS; belongs to one event loop."""

    def __init__(self, find_context: Callable[[str], ssl.SSLContext]) -> None:
        self._find_context = find_context
        self._kept: defaultdict[Origin, list[HostConnection]] = defaultdict(list)
        self._count, self._closing = 0, set[asyncio.Task[None]]()
        self._looking: asyncio.TimerHandle | None = None

    def make_connection(self, vetted: ResolvedHost, team: str) -> HostConnection:
        return HostConnection(_origin(vetted, team), vetted, self._find_context(team))

    def take_connection(self, vetted: ResolvedHost, team: str) -> HostConnection | None:
        kept = self._kept.get(_origin(vetted, team))
        while kept:
            connection = kept.pop()
            self._count -= 1
            connection.watch_idle(resting=False)
            if connection.is_clean() and connection.leads_to(vetted):
                return connection
            self.close_connection(connection)
        return None

    def keep_connection(self, connection: HostConnection) -> None:
        """Keep a connection for the next call; close one that is not clean or too old, and any where too many are kept."""
        connection.kept_s = connection._loop.time()
        if not connection.is_clean() or self._count >= _KEPT_MAX or connection.kept_s - connection.made_s > _AGE_S:
            self.close_connection(connection)
            return
        connection.watch_idle(resting=True)
        self._kept[connection.origin].append(connection)
        self._count += 1
        if self._looking is None:
            self._looking = connection._loop.call_later(_KEPT_S, self._close_idle_connections)

    def close_connection(self, connection: HostConnection) -> None:
        connection.abort()
        closing = asyncio.ensure_future(connection.session.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _close_idle_connections(self) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() - _KEPT_S
        for origin, kept in list(self._kept.items()):
            for connection in [each for each in kept if each.kept_s <= until_s or not each.is_clean()]:
                kept.remove(connection)
                self._count -= 1
                self.close_connection(connection)
            if not kept:
                del self._kept[origin]
        self._looking = loop.call_later(_KEPT_S / 4, self._close_idle_connections) if self._count else None

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        for kept in self._kept.values():
            for connection in kept:
                self.close_connection(connection)
        self._kept.clear()
        self._count = 0
        await asyncio.gather(*self._closing)


def _origin(vetted: ResolvedHost, team: str) -> Origin:
    return team, vetted.url.scheme, vetted.url.raw_host, vetted.url.port
