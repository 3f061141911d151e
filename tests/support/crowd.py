"""Clients that connect and send nothing, or a byte now and then."""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import threading
from types import TracebackType

from retry.clock import Deadline

_HEAD = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: " + b"x" * 1_000
# Of so many one is slow, the others are silent.
_SLOW_EVERY = 4


class Crowd:
    """Connections to a port of loopback, open until it is left; every fourth sends a byte a second."""

    def __init__(self, port: int, size: int) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * size + 1_000)), hard))
        self._port, self._size, self._left = port, size, threading.Event()
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._dribble, name="crowd")

    def __enter__(self) -> Crowd:
        for _ in range(self._size):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", self._port))
            self._sockets.append(client)
        # Those that nobody accepts stay where they are.
        deadline = Deadline(3.0)
        while not deadline.has_passed() and self.open() < self._size:
            self._left.wait(0.1)
            if self._settled():
                break
        self._thread.start()
        return self

    def _settled(self) -> bool:
        poll = select.poll()
        for client in self._sockets:
            poll.register(client, select.POLLOUT)
        return len(poll.poll(0)) == self._size

    def open(self) -> int:
        """How many the server has not closed."""
        poll = select.poll()
        for client in self._sockets:
            poll.register(client, select.POLLIN | select.POLLRDHUP)
        closed = select.POLLRDHUP | select.POLLHUP | select.POLLERR
        return self._size - sum(bool(event & closed) for _, event in poll.poll(0))

    def _dribble(self) -> None:
        for n in range(len(_HEAD)):
            if self._left.wait(1.0):
                return
            for client in self._sockets[::_SLOW_EVERY]:
                with contextlib.suppress(OSError):
                    client.send(_HEAD[n : n + 1])

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._left.set()
        self._thread.join()
        for client in self._sockets:
            client.close()
