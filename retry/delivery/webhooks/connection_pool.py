"""Connections to hosts that have just answered, kept for the next call of the same team to the same host: no handshake for each.

The guard is as strict as with a connection for each call. Every call's host is looked up and judged, and a kept connection is
taken only where it leads to one of the addresses that were vetted for that very call. What a host leaves behind is not taken for
the answer to another call: a connection is kept only where its answer came whole and nothing came behind it, and is closed where
anything comes while nobody has asked.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict

import aiohttp

from retry.delivery.webhooks.answer_limits import Connector
from retry.delivery.webhooks.ssrf_guard import ResolvedHost

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
        self._connector = Connector(resolver=vetted.resolver(), use_dns_cache=False, limit=1, ssl=trust)
        self.session = aiohttp.ClientSession(
            connector=self._connector, cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False, trust_env=False,
        )  # fmt: skip

    def is_unanswered(self) -> bool:
        """Whether nothing at all came since it was last asked."""
        return self._connector.protocol is not None and self._connector.protocol.came_bytes == 0

    def leads_to(self, vetted: ResolvedHost) -> bool:
        """Whether its other side has one of these addresses."""
        return self._connector.protocol is not None and self._connector.protocol.address() in vetted.addresses

    def is_clean(self) -> bool:
        """Whether it is open, and its last answer came whole and alone."""
        protocol = self._connector.protocol
        return protocol is not None and protocol.is_connected() and not protocol.should_close

    def abort(self) -> None:
        """End it, whatever it has still to send."""
        if self._connector.protocol is not None:
            self._connector.protocol.abort_connection()

    def watch_idle(self, *, resting: bool) -> None:
        """Nothing may come while it is kept."""
        if self._connector.protocol is not None:
            self._connector.protocol.resting = resting


class ConnectionPool:
    """Belongs to one event loop."""

    def __init__(self, trust: ssl.SSLContext) -> None:
        self._trust = trust
        self._kept: defaultdict[Origin, list[HostConnection]] = defaultdict(list)
        self._count, self._closing = 0, set[asyncio.Task[None]]()
        self._looking: asyncio.TimerHandle | None = None

    def make_connection(self, vetted: ResolvedHost, team: str) -> HostConnection:
        """A connection that is not open yet."""
        return HostConnection(_origin(vetted, team), vetted, self._trust)

    def take_connection(self, vetted: ResolvedHost, team: str) -> HostConnection | None:
        """One that is kept, and leads to where the call may go."""
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
        """Keep it for the next call, if it is fit for one."""
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
        """Close it, without waiting for a host that does not read what it was sent."""
        connection.abort()
        closing = asyncio.ensure_future(connection.session.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _close_idle_connections(self) -> None:
        """Close what was kept long enough."""
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
        """Close all that are kept."""
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
