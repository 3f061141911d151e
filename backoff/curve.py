"""How long retry number N waits, before jitter.

A curve is a function of the attempt alone (1 is the first retry). It is total for every attempt from 1 upwards, never
negative and never above its `max_delay_ms`. All but `Steps`, which waits as listed, never shrink from one attempt to
the next. The constructors trust their numbers: `backoff.parse` is where a person's mistakes are found.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constant:
    """Every retry waits equally long.

    >>> [Constant(delay_ms=5_000, max_delay_ms=60_000)(attempt) for attempt in range(1, 6)]
    [5000, 5000, 5000, 5000, 5000]
    """

    delay_ms: int
    max_delay_ms: int

    def __call__(self, attempt: int) -> int:  # noqa: ARG002 - one signature for every curve
        return min(self.delay_ms, self.max_delay_ms)


@dataclass(frozen=True, slots=True)
class Linear:
    """Every retry waits `step_ms` longer than the one before.

    >>> [Linear(delay_ms=1_000, step_ms=2_000, max_delay_ms=8_000)(attempt) for attempt in range(1, 6)]
    [1000, 3000, 5000, 7000, 8000]
    """

    delay_ms: int
    step_ms: int
    max_delay_ms: int

    def __call__(self, attempt: int) -> int:
        return min(self.delay_ms + self.step_ms * (attempt - 1), self.max_delay_ms)


@dataclass(frozen=True, slots=True)
class Exponential:
    """Every retry waits `factor` times as long as the one before; `factor` is at least 1.

    >>> [Exponential(delay_ms=10_000, factor=2.0, max_delay_ms=100_000)(attempt) for attempt in range(1, 6)]
    [10000, 20000, 40000, 80000, 100000]

    A power too large for a float is above any cap:

    >>> Exponential(delay_ms=1, factor=2.0, max_delay_ms=3_600_000)(1_000_000)
    3600000
    """

    delay_ms: int
    factor: float
    max_delay_ms: int

    def __call__(self, attempt: int) -> int:
        # Nothing grows from nothing: without this, zero would jump to the cap where the power overflows.
        if not self.delay_ms:
            return 0
        try:
            return int(min(self.delay_ms * self.factor ** (attempt - 1), self.max_delay_ms))
        except OverflowError:
            return self.max_delay_ms


@dataclass(frozen=True, slots=True)
class Steps:
    """The retries wait as listed; the last delay repeats. At least one delay.

    >>> [Steps(delays_ms=(60_000, 300_000, 1_800_000), max_delay_ms=600_000)(attempt) for attempt in range(1, 6)]
    [60000, 300000, 600000, 600000, 600000]
    """

    delays_ms: tuple[int, ...]
    max_delay_ms: int

    def __call__(self, attempt: int) -> int:
        return min(self.delays_ms[min(attempt, len(self.delays_ms)) - 1], self.max_delay_ms)
