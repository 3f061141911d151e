"""A page that is open: what it is sent while it is sent, and a viewer who may close it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.support.console import Served

DEADLINE_S = 30.0


class Stream:
    """The events that one open page is sent."""

    def __init__(self) -> None:
        self.text, self.ended = "", asyncio.Event()
        self.status, self._changed = 0, asyncio.Event()

    async def until(self, holds: Callable[[str], bool]) -> None:
        """Wait until what was sent is so."""
        async with asyncio.timeout(DEADLINE_S):
            while not holds(self.text):
                self._changed.clear()
                await self._changed.wait()

    def add(self, text: str) -> None:
        self.text += text
        self._changed.set()


@asynccontextmanager
async def looking(made: Served, cookie: str, path: str = "/live", query: str = "part=count&of=a") -> AsyncIterator[Stream]:
    """A page that is open."""
    stream, left = Stream(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            stream.status = message["status"]
        else:
            stream.add(message.get("body", b"").decode())

    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": path, "raw_path": path.encode(),
        "query_string": query.encode(), "headers": [(b"host", b"127.0.0.1:8082"), (b"cookie", cookie.encode())],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8082), "root_path": "",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
    }  # fmt: skip
    task = asyncio.create_task(made.app(scope, receive, send))
    task.add_done_callback(lambda _task: stream.ended.set())
    try:
        yield stream
    finally:
        left.set()
        await asyncio.wait_for(task, DEADLINE_S)


def run(test: Any) -> None:
    """All of a test, within a minute."""
    asyncio.run(asyncio.wait_for(test, 2 * DEADLINE_S))
