"""A clock for tests: time that passes only when a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from retry import clock


class Simulated:
    """Time that passes only when a test says so."""

    now_s = 1_000.0

    def wall_ms(self) -> int:
        return int(self.now_s * 1_000)

    def monotonic_s(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.now_s += seconds


@contextmanager
def simulated_clock() -> Iterator[Simulated]:
    """The service's clock is simulated within the block."""
    simulated = Simulated()
    clock.use(simulated)
    try:
        yield simulated
    finally:
        clock.use(clock.MACHINE)
