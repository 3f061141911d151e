"""A transport that sends in one go what is written in one go: an answer's head and body cost one packet and one system call."""

from __future__ import annotations

import asyncio
from typing import Any

# What is written without end, and without a pause, must reach the flow control of the transport.
_HELD_BYTES_MAX = 64 << 10


class JoinedWrites:
    """Holds what is written until the event loop's next turn; all else is done by the transport itself."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held: list[bytes] = []
        self._held_bytes = 0

    def write(self, data: bytes) -> None:
        """Send it with what else is written in this turn of the loop."""
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
        """Close it once everything is sent."""
        self._flush_writes()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        """Bytes that are not with the other side yet."""
        return self._held_bytes + self._transport.get_write_buffer_size()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
