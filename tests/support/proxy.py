"""A TCP proxy before a broker, for cut, half-open, slow, narrow and reset connections.

What is held back is not lost: as TCP has it, it arrives when the way is open again, if the connection lives until then.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

from retry.kafka.local_broker import HOST
from tests.support.ports import free_port

_CHUNK = 1 << 16
_ANSWER_S = 60.0
# Closing with this sends RST and not FIN.
_LINGER_NOT = struct.pack("ii", 1, 0)


class _Line:
    """One connection through the proxy; its two ways may be shut one by one, for good if it is stranded."""

    def __init__(self, proxy: Proxy, client: asyncio.StreamWriter) -> None:
        self.proxy, self.ends, self.stranded = proxy, [client], False

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                if self.proxy.delay_s:
                    await asyncio.sleep(self.proxy.delay_s)
                if self.proxy.bytes_per_s and way is self.proxy.up:
                    # All connections together.
                    async with self.proxy.link:
                        await asyncio.sleep(len(data) / self.proxy.bytes_per_s)
                await way.wait()
                if self.stranded:
                    await asyncio.Event().wait()
                writer.write(data)
                await writer.drain()

    def reset(self) -> None:
        for end in self.ends:
            # Where one side has closed its end already, only the other is left to be told.
            with contextlib.suppress(OSError):
                end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
            end.transport.abort()


class Proxy:
    """Listens on a port of its own and passes on to another; runs in a thread until it is closed."""

    def __init__(self, target_port: int = 0) -> None:
        self.port, self.target_port, self.delay_s = free_port(), target_port, 0.0
        self.connections, self.bytes_per_s, self.link = 0, 0, asyncio.Lock()
        self._lines: set[_Line] = set()
        self.up, self._down = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._do(self._listen())
        self.restore()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.reset()
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_ANSWER_S)

    def restore(self) -> None:
        """Pass everything on again."""
        self.delay_s, self.bytes_per_s = 0.0, 0
        self._do(self._ways(up=True, down=True))

    def drop(self) -> None:
        """A black hole: nothing comes through, and no connection ends."""
        self._do(self._ways(up=False, down=False))

    def half_open(self) -> None:
        """Let what clients say arrive, and hold back what brokers answer."""
        self._do(self._ways(up=True, down=False))

    def delay(self, seconds: float) -> None:
        """Everything arrives, later by so much at each step."""
        self.delay_s = seconds

    def narrow(self, bytes_per_s: int) -> None:
        """Let so many bytes of what clients say arrive in a second, over all connections together."""
        self.bytes_per_s = bytes_per_s

    def reset(self) -> None:
        """End every connection with RST; new ones are taken."""
        self._do(self._reset())

    def strand(self) -> None:
        """Forget every connection, as a firewall does: they never end and nothing comes through; new ones are taken."""
        self._do(self._strand())

    def _do(self, step: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(step, self._loop).result(_ANSWER_S)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self.port)

    async def _ways(self, *, up: bool, down: bool) -> None:
        for way, is_open in ((self.up, up), (self._down, down)):
            (way.set if is_open else way.clear)()

    async def _reset(self) -> None:
        for line in list(self._lines):
            line.reset()

    async def _strand(self) -> None:
        for line in self._lines:
            line.stranded = True

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        line = _Line(self, writer)
        self._lines.add(line)
        try:
            # A cut way answers nobody who knocks, either.
            await self.up.wait()
            there, to = await asyncio.open_connection(HOST, self.target_port)
            line.ends.append(to)
            ways = [line.pump(reader, to, self.up), line.pump(there, writer, self._down)]
            _, left = await asyncio.wait(map(asyncio.ensure_future, ways), return_when=asyncio.FIRST_COMPLETED)
            for way in left:
                way.cancel()
        except OSError:
            # Nobody listens behind us: as if nobody listened here.
            pass
        finally:
            self._lines.discard(line)
            line.reset()
