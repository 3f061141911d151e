"""Serves an application over HTTP from a thread of its own: health and metrics, the supervisor, the scheduler's REST, the API.

Starlette says what is answered and uvicorn speaks HTTP; what they lack towards strangers is in `connections` and `host_names`.
The thread has an event loop of its own: `/health/live` answers while the loop of the worker is busy or stands still.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import resource
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.types import ASGIApp

from retry.errors import AddressUnusable
from retry.http_server.connections import KEEP_ALIVE_S, Connection, Connections, Handshake
from retry.http_server.host_names import OwnHosts

__all__ = ["HttpServer"]

if TYPE_CHECKING:
    from retry.http_server.certificate import Certificate

log = logging.getLogger(__name__)

_LEAVE_S = 5
_CONNECTIONS_MIN, _CONNECTIONS_MAX = 16, 1_000
_BACKLOG, _ACCEPTED_AT_ONCE = 1_024, 8
# Otherwise the kernel keeps megabytes for each client that reads slowly.
_KERNEL_BUFFER_BYTES = 256 << 10
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NOSNIFF = ("X-Content-Type-Options", "nosniff")


class HttpServer:
    """One application at one address.

    Args:
      name: what the log calls it: `<name> on <host>:<port>`.
      hosts: names, by commas, under which it may be asked besides `host`, localhost and every IP address; `*.example.com` is
        every name below that one, `*` every name.
      listening: a socket that listens already; it takes the place of host and port.
      share: of the files that this process may have open, one in so many may be a connection.
    """

    def __init__(
        self, app: ASGIApp, name: str, host: str, port: int, *, hosts: str = "", listening: socket.socket | None = None,
        share: int = 8, certificate: Certificate | None = None,
    ) -> None:
        self._app, self._host, self._port, self._listening = OwnHosts(app, host, hosts), host, port, listening
        self.name, self.certificate, self._share = name, certificate, share
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> int:
        """Listen, and return the port; raises AddressUnusable where it cannot be listened on."""
        listening = self._listening or _listen(self._host, self._port)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL_BUFFER_BYTES)
        # asyncio does so for what it connects, not for what it accepts: a part of an answer waited 40 ms for the one before it.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        port = int(listening.getsockname()[1])
        self._server = _Server(self._app, listening, _connections_max(self._share), self.certificate)
        self._thread = threading.Thread(target=self._server.run_here, name=f"{self.name} server", daemon=True)
        self._thread.start()
        if not self._listening:
            log.info("%s on %s:%d%s", self.name, self._host, port, " with TLS" if self.certificate else "")
        return port

    def stop(self) -> None:
        """Close what idles, give answers under way five seconds, and end the thread."""
        if self._server and self._thread and self._thread.is_alive():
            self._server.stop()
            self._thread.join()


class _Server(uvicorn.Server):
    def __init__(self, app: ASGIApp, listening: socket.socket, connections_max: int, certificate: Certificate | None) -> None:
        super().__init__(uvicorn.Config(
            app, http=Connection, ws="none", lifespan="off", interface="asgi3", log_config=None, log_level="error",
            access_log=False, proxy_headers=False, server_header=False, headers=[_NOSNIFF], backlog=_ACCEPTED_AT_ONCE,
            timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=_LEAVE_S,
        ))  # fmt: skip
        self.config.load()
        if certificate is not None:
            self.config.http_protocol_class = partial(Handshake, certificate)  # type: ignore[assignment]
        self.server_state = Connections(connections_max)
        self._listening, self._stopping, self._told_s = listening, asyncio.Event(), -math.inf
        self._loop = asyncio.new_event_loop()

    def run_here(self) -> None:
        self._loop.set_exception_handler(self._on_error)
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self.serve([self._listening]))

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)

    async def main_loop(self) -> None:
        # asyncio accepts in one go as many as may queue in the kernel: many may queue, and few be accepted before one is closed.
        self._listening.listen(_BACKLOG)
        await self._stopping.wait()

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _OUT_OF_RESOURCES:
            loop.default_exception_handler(context)
        elif loop.time() - self._told_s >= 1.0:
            # asyncio says so for each that queues.
            self._told_s = loop.time()
            log.error("cannot accept a connection: %s; raise this process's limit of open files", error.strerror)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        # Names that are not to be had have numbers of their own.
        code = error.errno or 0
        raise AddressUnusable(host, port, os.strerror(code) if code > 0 else str(error)) from None


def _connections_max(share: int) -> int:
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files_max == resource.RLIM_INFINITY:
        return _CONNECTIONS_MAX
    return max(_CONNECTIONS_MIN, min(files_max // share, _CONNECTIONS_MAX))
