"""Hosts that are called: real servers on loopback that answer as they are told, well or badly, and keep what they were sent."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple

from retry.clock import wall_ms

_CLOSE_S = 60.0


class Call(NamedTuple):
    """One request as a host got it; header names are in lower case."""

    at_ms: int
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Behaviour = Callable[[Call, asyncio.StreamWriter], Awaitable[None]]


async def ok(_call: Call, writer: asyncio.StreamWriter) -> None:
    """200 and two bytes."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def says(raw: bytes) -> Behaviour:
    """Exactly these bytes, then the connection ends."""

    async def answer(_call: Call, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)

    return answer


def status(code: int, *headers: str, body: bytes = b"") -> Behaviour:
    """Make a host that answers plainly with a status code."""
    lines = [f"HTTP/1.1 {code} Told", f"Content-Length: {len(body)}", *headers, "", ""]
    return says("\r\n".join(lines).encode() + body)


async def hang(_call: Call, _writer: asyncio.StreamWriter) -> None:
    """No answer at all."""
    await asyncio.Event().wait()


async def drip(_call: Call, writer: asyncio.StreamWriter) -> None:
    """A byte now and then, for ever."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n")
    while True:
        writer.write(b".")
        await writer.drain()
        await asyncio.sleep(0.05)


async def endless(_call: Call, writer: asyncio.StreamWriter) -> None:
    """Write as many bytes as are taken, for ever."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        await writer.drain()


async def reset(_call: Call, writer: asyncio.StreamWriter) -> None:
    """The connection is reset in place of an answer."""
    writer.transport.abort()


class Host:
    """A server on loopback; `behave` may be changed at any time.

    Args:
      keeps: whether a connection stays open for the next request; else it ends with the answer.

    Attributes:
      calls: what it was sent, in order.
      connections: how many were made.
      server_names: what TLS clients asked for.
    """

    def __init__(self, behave: Behaviour = ok, tls: ssl.SSLContext | None = None, address: str = "127.0.0.1", port: int = 0,
                 *, keeps: bool = False) -> None:  # fmt: skip
        self.behave, self._tls, self.address, self._keeps = behave, tls, address, keeps
        self.connections = 0
        self.calls: list[Call] = []
        self.server_names: list[str | None] = []
        self.port = port
        self._open: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="host", daemon=True)

    def __enter__(self) -> Host:
        if self._tls:
            self._tls.sni_callback = lambda _socket, name, _context: self.server_names.append(name)
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, self.address, self.port, ssl=self._tls), self._loop
        ).result(_CLOSE_S)
        self.port = server.sockets[0].getsockname()[1]
        self._server = server
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)

    async def _close(self) -> None:
        self._server.close()
        for task in list(self._open):
            task.cancel()

    @property
    def url(self) -> str:
        """Return the URL of its root."""
        return f"http://{self.address}:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._open.add(task)
        self.connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while True:
                    call = await _read(reader)
                    self.calls.append(call)
                    await self.behave(call, writer)
                    await writer.drain()
                    if not self._keeps or writer.is_closing():
                        break
        finally:
            self._open.discard(task)
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Call:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Call(wall_ms(), method, path, headers, body)
