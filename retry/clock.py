"""The two clocks: wall time for what is stored, monotonic time for what is waited. The only importer of `time`.

A simulation puts a clock of its own in their place, which goes on when it is told to.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Protocol, overload


class Clock(Protocol):
    """A source of wall time and monotonic time; each method does what the function of its name does."""

    def wall_ms(self) -> int: ...
    def monotonic_s(self) -> float: ...
    def pause(self, seconds: float) -> None: ...
    def wait(self, changed: threading.Condition, seconds: float) -> None: ...


class _Machine:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, changed: threading.Condition, seconds: float) -> None:
        changed.wait(seconds)


MACHINE: Clock = _Machine()
_clock = MACHINE


def use(clock: Clock) -> None:
    """Take time from another clock, in the whole process."""
    global _clock  # noqa: PLW0603 one clock for the process is the point
    _clock = clock


def wall_ms() -> int:
    """Return milliseconds since 1970 by the wall clock; for due times and whatever else is stored."""
    return _clock.wall_ms()


@overload
def iso(moment_ms: int) -> str: ...
@overload
def iso(moment_ms: int | None) -> str | None: ...
def iso(moment_ms: int | None) -> str | None:
    """Format a moment as ISO 8601 in UTC; as milliseconds since 1970 where a calendar has no such day; None where not known.

    >>> iso(1_767_225_600_000), iso(None)
    ('2026-01-01T00:00:00.000+00:00', None)
    """
    if moment_ms is None:
        return None
    try:
        return datetime.fromtimestamp(moment_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{moment_ms} ms"


def monotonic_s() -> float:
    """Return the seconds of a clock that never steps; for intervals inside this process only."""
    return _clock.monotonic_s()


def pause(seconds: float) -> None:
    """Block this thread for `seconds`; for polling loops with a `Deadline`."""
    _clock.pause(seconds)


def wait(changed: threading.Condition, seconds: float) -> None:
    """Wait until a condition, which is held, is notified, or the time is over."""
    _clock.wait(changed, seconds)


class Deadline:
    """One budget of seconds, shared by several blocking calls."""

    def __init__(self, seconds: float) -> None:
        self._end_s = monotonic_s() + seconds

    def remaining_s(self) -> float:
        """Return the seconds that are left of the budget, never below zero."""
        return max(0.0, self._end_s - monotonic_s())

    def has_passed(self) -> bool:
        return self.remaining_s() == 0.0


class Interval:
    """Lets something be done every so many seconds, by a thread that asks more often than that.

    With `at_once` it is due when it is first asked; else after the first interval.
    """

    def __init__(self, seconds: float, *, at_once: bool = False) -> None:
        self._seconds = seconds
        self._due_at_s = monotonic_s() + (0.0 if at_once else seconds)

    def is_due(self) -> bool:
        """Whether the time has come; if so the next interval begins."""
        if monotonic_s() < self._due_at_s:
            return False
        self.restart()
        return True

    def restart(self) -> None:
        self._due_at_s = monotonic_s() + self._seconds
