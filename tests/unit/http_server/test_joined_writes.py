"""What is written in one turn of the loop goes out at once, in order, and nothing is held where that would cost memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from retry.http_server.connections import JoinedWrites


class Transport:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.sent.append(data)

    def close(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return 7

    def is_closing(self) -> bool:
        return self.closed


def join_writes(steps: Callable[[JoinedWrites, Transport], Any]) -> list[bytes]:
    """Take some steps of one turn and return what was sent after them."""

    async def run() -> list[bytes]:
        transport = Transport()
        steps(JoinedWrites(transport, asyncio.get_running_loop()), transport)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        return transport.sent

    return asyncio.run(run())


def test_a_head_and_its_body_are_sent_as_one() -> None:
    assert join_writes(lambda to, _: [to.write(b"head"), to.write(b"body")]) == [b"headbody"]


def test_what_is_held_is_sent_before_it_is_closed() -> None:
    def steps(to: JoinedWrites, transport: Transport) -> None:
        to.write(b"last words")
        to.close()
        assert transport.closed
        assert to.is_closing()

    assert join_writes(steps) == [b"last words"]


def test_much_is_not_held_and_counts_as_unsent_meanwhile() -> None:
    def steps(to: JoinedWrites, transport: Transport) -> None:
        to.write(b"x" * 60_000)
        assert to.get_write_buffer_size() == 60_007
        to.write(b"y" * 60_000)
        assert (len(transport.sent), to.get_write_buffer_size()) == (1, 7)
        to.write(b"z")

    assert join_writes(steps) == [b"x" * 60_000 + b"y" * 60_000, b"z"]
