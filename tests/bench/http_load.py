"""A cheap client and a cheap host for `make load`, each a process of its own: what is measured is the service, not its test.

    python -m tests.bench.http_load make URL COUNT CONNECTIONS DUE_MS TARGET...   makes timers, prints seconds and the p99
    python -m tests.bench.http_load host                                          answers calls, prints its port

A host tells what it was called with when asked `GET /calls`: a line for each call, milliseconds and `webhook-id`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlsplit

from retry.clock import monotonic_s, wall_ms

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_LENGTH, _ID = b"\r\ncontent-length:", b"\r\nwebhook-id:"


class Message(NamedTuple):
    """A request or an answer: its head, in lower case, and its body."""

    head: bytes
    body: bytes


def messages(received: bytearray) -> Iterator[Message]:
    """Whole messages at the beginning of what was received; they are taken away."""
    while (end := received.find(b"\r\n\r\n")) >= 0:
        head = bytes(received[:end]).lower()
        length = int(_field(head, _LENGTH) or 0)
        if len(received) < end + 4 + length:
            return
        yield Message(head, bytes(received[end + 4 : end + 4 + length]))
        del received[: end + 4 + length]


def _field(head: bytes, name: bytes) -> bytes:
    at = head.find(name)
    return head[at + len(name) :].split(b"\r\n", 1)[0].strip() if at >= 0 else b""


class _Called(asyncio.Protocol):
    """A host's side of a connection."""

    calls: list[tuple[int, bytes]] = []  # noqa: RUF012 of the whole process

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._received = transport, bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        for message in messages(self._received):
            self._transport.write(self._answer(message))  # type: ignore[attr-defined]

    def _answer(self, message: Message) -> bytes:
        if message.head.startswith(b"get /count "):
            return self._tell(b"%d" % len(self.calls))
        if message.head.startswith(b"get /calls "):
            return self._tell(b"".join(b"%d %b\n" % call for call in self.calls))
        self.calls.append((wall_ms(), _field(message.head, _ID)))
        return _OK

    def _tell(self, body: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


class _Maker(asyncio.Protocol):
    """A client's side of a connection: one request after another."""

    def __init__(self, requests: Iterator[bytes], took_s: list[float]) -> None:
        self._requests, self._took_s, self.done = requests, took_s, asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._received = transport, bytearray()
        self._next()

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            self.done.set_result(None)
            return
        self._began_s = monotonic_s()
        self._transport.write(request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._received += data
        for message in messages(self._received):
            if message.head[9:12] not in (b"200", b"201"):
                self.done.set_exception(AssertionError(message.body.decode()))
                self._transport.close()
                return
            self._took_s.append(monotonic_s() - self._began_s)
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("closed before the answer"))


class LoadHost:
    """A host in a process of its own."""

    def __enter__(self) -> LoadHost:
        self._process = subprocess.Popen([sys.executable, "-m", __name__, "host"], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()

    def count(self) -> int:
        """How many calls it got."""
        return int(self._asked("/count"))

    def calls(self) -> list[tuple[int, str]]:
        """When it was called, and with which id."""
        return [(int(at_ms), id_) for at_ms, id_ in (line.split(" ") for line in self._asked("/calls").splitlines())]

    def _asked(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return str(answer.read().decode())


def make(url: str, count: int, connections: int, due_ms: int, targets: list[str]) -> tuple[float, float]:
    """Make timers from a process of its own; seconds for all of them, and the 99th percentile of seconds for one."""
    program = [sys.executable, "-m", __name__, "make", url, str(count), str(connections), str(due_ms), *targets]
    told = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return float(told[0]), float(told[1])


async def _host() -> None:
    server = await asyncio.get_running_loop().create_server(_Called, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _make(url: str, count: int, connections: int, due_ms: int, targets: list[str]) -> None:
    at, took_s = urlsplit(url), list[float]()
    head = f"POST {at.path} HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Type: application/json\r\nContent-Length: "
    bodies = (json.dumps({"url": f"{targets[n % len(targets)]}/{n}", "at": due_ms, "body": {"n": n}}) for n in range(count))
    requests = (f"{head}{len(body)}\r\n\r\n{body}".encode() for body in bodies)
    began_s, loop = monotonic_s(), asyncio.get_running_loop()
    made = [await loop.create_connection(lambda: _Maker(requests, took_s), at.hostname, at.port) for _ in range(connections)]
    await asyncio.gather(*(maker.done for _, maker in made))
    print(monotonic_s() - began_s, sorted(took_s)[len(took_s) * 99 // 100])


if __name__ == "__main__":
    if sys.argv[1] == "host":
        asyncio.run(_host())
    else:
        _url, _count, _connections, _due_ms, *_targets = sys.argv[2:]
        asyncio.run(_make(_url, int(_count), int(_connections), int(_due_ms), _targets))
