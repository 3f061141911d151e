"""The two clocks: wall time for what is stored, monotonic time for what is waited. The only importer of `time`."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def wall_ms() -> int:
    """Milliseconds since 1970 by the wall clock; for due times and whatever else is stored."""
    return time.time_ns() // 1_000_000


def iso(moment_ms: int) -> str:
    """ISO 8601 in UTC; milliseconds since 1970 where a calendar has no such day.

    >>> iso(1_767_225_600_000)
    '2026-01-01T00:00:00.000+00:00'
    """
    try:
        return datetime.fromtimestamp(moment_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{moment_ms} ms"


def monotonic_s() -> float:
    """Seconds by a clock that never steps; for intervals inside this process only."""
    return time.monotonic()


def pause(seconds: float) -> None:
    """Block this thread for `seconds`; for polling loops with a `Deadline`."""
    time.sleep(seconds)


class Deadline:
    """One budget of seconds, shared by several blocking calls."""

    def __init__(self, seconds: float) -> None:
        self._end_s = time.monotonic() + seconds

    def remaining_s(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self._end_s - time.monotonic())

    def passed(self) -> bool:
        """Whether nothing is left."""
        return self.remaining_s() == 0.0
