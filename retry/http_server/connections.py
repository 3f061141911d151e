"""Connections that wait for their other side do not do so for ever, nor keep others out.

- One that does not send its request, or does not read its answer, is closed after some seconds.
- There are at most so many, far fewer than the process may have files open. One more takes the place of the one that has waited
  for the longest, so a probe gets in whatever else is connected.
- The head of a request is bounded; what follows a body without being one is passed over.
"""

from __future__ import annotations

import asyncio
import math
from asyncio.sslproto import SSLProtocol
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from retry.clock import wall_ms

if TYPE_CHECKING:
    from retry.http_server.certificate import Certificate

# A transport that sends in one go what is written in one go: an answer's head and body cost one packet and one system call.

# What is written without end, and without a pause, must reach the flow control of the transport.
_HELD_BYTES_MAX = 64 << 10


class JoinedWrites:
    """Holds what is written until the event loop's next turn; all else is done by the transport itself."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held: list[bytes] = []
        self._held_bytes = 0

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self._flush_writes)
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > _HELD_BYTES_MAX:
            self._flush_writes()

    def _flush_writes(self) -> None:
        if self._held:
            self._transport.write(b"".join(self._held))
            self._held.clear()
            self._held_bytes = 0

    def close(self) -> None:
        self._flush_writes()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        return self._held_bytes + self._transport.get_write_buffer_size()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


KEEP_ALIVE_S = 30
_HEAD_S, _BODY_S, _STALLED_S = 10.0, 30.0, 30.0
_LOOK_S = 1.0
# Of the lines of a request before its body; the parser itself keeps whatever comes.
HEAD_BYTES_MAX = 64 << 10
_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"
    b"Connection: close\r\n\r\n"
)


class Connection(HttpToolsProtocol):
    """One connection, which knows since when it waits for its other side."""

    server_state: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_bytes, self._in_body = 0, False
        self.note_accepted(JoinedWrites(transport, self.loop))

    def note_accepted(self, transport: Any) -> None:
        """Count it; to be called earlier where something comes before HTTP."""
        self.transport = transport
        self._unsent_bytes, self._moved_s = 0, self.loop.time()
        self._expect_within(_HEAD_S)
        self.connections.add(self)
        self.server_state.admit(self)

    def _expect_within(self, seconds: float) -> None:
        self._since_s = self.loop.time()
        self._overdue_s = self._since_s + seconds

    def data_received(self, data: bytes) -> None:
        self.server_state.tell_date(self.config)
        before = self.cycle
        self._head_bytes += len(data)
        super().data_received(data)
        if self.cycle is not before:
            self._expect_within(_BODY_S)
        if self._in_body:
            self._head_bytes = 0
        elif self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response(f"The head of a request has at most {HEAD_BYTES_MAX} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        # What comes behind a body as headers is no part of the request that the application was given.
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head_bytes, self._in_body = 0, False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        # uvicorn ends the wait for the first byte of the next request; that it then comes to an end is looked after here.
        self._expect_within(KEEP_ALIVE_S + _HEAD_S)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_BAD_REQUEST + msg.encode())
        self.transport.close()

    def waits_since_s(self) -> float:
        """Return since when the connection waits to get more, or to be read from; infinite while an answer is made or read."""
        if self.transport.get_write_buffer_size():
            return self._moved_s if self.loop.time() - self._moved_s > 2 * _LOOK_S else math.inf
        working = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        return math.inf if working else self._since_s

    def is_overdue(self, now_s: float) -> bool:
        """Whether it has waited for too long; to be asked regularly."""
        before, self._unsent_bytes = self._unsent_bytes, self.transport.get_write_buffer_size()
        if self._unsent_bytes < before or not self._unsent_bytes:
            self._moved_s = now_s
        if self._unsent_bytes:
            return now_s - self._moved_s > _STALLED_S
        return now_s > self._overdue_s and self.waits_since_s() < math.inf

    def abort(self) -> None:
        self.connections.discard(self)
        self.transport.abort()

    def shutdown(self) -> None:
        """Close the connection because the server ends, without waiting for a client that does not read."""
        if self.flow is None or self.flow.write_paused:
            self.abort()
        else:
            super().shutdown()


class Connections(ServerState):
    connections: set[Connection]  # type: ignore[assignment]

    def __init__(self, connections_max: int) -> None:
        super().__init__()
        self._max, self._looking, self._date_s = connections_max, False, 0

    def admit(self, new: Connection) -> None:
        """Make room for one more; it has none itself where all others are being answered."""
        if len(self.connections) > self._max:
            oldest = min(self.connections - {new}, key=Connection.waits_since_s)
            (new if oldest.waits_since_s() == math.inf else oldest).abort()
        if not self._looking:
            self._look_later(new.loop)

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looking = bool(self.connections)
        if self._looking:
            loop.call_later(_LOOK_S, self._reap_connections, loop)

    def _reap_connections(self, loop: asyncio.AbstractEventLoop) -> None:
        for connection in list(self.connections):
            if connection.is_overdue(loop.time()):
                connection.abort()
        self._look_later(loop)

    def tell_date(self, config: uvicorn.Config) -> None:
        """Set the headers of every answer with the date of now; uvicorn would do so every second, also while nobody asks."""
        if (now_s := wall_ms() // 1_000) != self._date_s:
            self._date_s = now_s
            self.default_headers = [(b"date", formatdate(now_s, usegmt=True).encode()), *config.encoded_headers]


# TLS connections, which wait for the other side before they are connections of HTTP.
#
# asyncio would let each take a minute for its handshake and half a minute for its end, and count neither: whoever connects and
# says nothing would keep others out. Here a connection counts from its first packet on, and is held to the same times as all
# others.

# For the other side's word that it has heard the end.
_END_S = 1.0


class Handshake(SSLProtocol):
    """TLS below one connection."""

    # As large as what is read in one go; four times that, asyncio's own measure, is much for a thousand of them.
    max_size = 64 << 10

    def __init__(self, certificate: Certificate, **given: Any) -> None:
        self._connection = connection = Connection(**given)
        super().__init__(
            connection.loop, connection, certificate.current(), None,  # type: ignore[arg-type] # nobody waits for it
            server_side=True, ssl_shutdown_timeout=_END_S,
        )  # fmt: skip

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._connection.note_accepted(transport)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        # Where the handshake did not succeed nobody else takes it out of the count.
        self._connection.connections.discard(self._connection)
        super().connection_lost(exc)
