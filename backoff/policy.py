"""When a failed letter may try again: time and a draw in, a decision out. No clock, no randomness.

A curve is a function of the attempt alone (1 is the first retry): total for every attempt from 1 upwards, never negative and
never above its `max_delay_ms`. All but `Steps`, which waits as listed, never shrink from one attempt to the next. The
constructors trust their numbers: `backoff.parse` is where a person's mistakes are found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from backoff.calendar import Calendar

Curve = Callable[[int], int]
Jitter = Callable[[int, float], int]


class RetryAt(NamedTuple):
    """The retry is made once the wall clock shows `due_at_ms`, milliseconds since 1970; at once if that is past."""

    due_at_ms: int


class Park(NamedTuple):
    """The retry is not made; `reason` is "max_attempts" or "max_age"."""

    reason: str


Decision = RetryAt | Park

_MAX_ATTEMPTS = Park("max_attempts")
_MAX_AGE = Park("max_age")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules for one kind of failure.

    Attributes:
      curve: attempt (1 is the first retry) to delay in ms, before jitter.
      jitter: (delay in ms, draw in [0, 1)) to delay in ms.
      max_attempts: the last retry that is still made; 0 means none is.
      max_age_ms: how long after its first failure a letter may still be retried; counts to the retry, or to now
        where that is later.
      max_delay_ms: the longest wait from now, jitter and a letter's own wish included.
      honour_retry_at: whether a letter may ask for its own time.
      calendar: moves a retry, also beyond `max_delay_ms`, to a time at which retries may be made; None for any time.
    """

    curve: Curve
    jitter: Jitter
    max_attempts: int
    max_age_ms: int
    max_delay_ms: int
    honour_retry_at: bool
    calendar: Calendar | None = None

    def decide(
        self, *, attempt: int, first_failed_at_ms: int, failed_at_ms: int, now_ms: int, draw: float,
        retry_at_ms: int | None = None,
    ) -> Decision:  # fmt: skip
        """Say when retry number `attempt` is due, or why it is not made. Called for every letter, so it stays small.

        Arguments:
          first_failed_at_ms: when the first of all attempts failed; the age counts from here.
          failed_at_ms: when the last attempt failed; the delay counts from here.
          now_ms: bounds the due time from above, so that a wrong clock elsewhere cannot postpone a letter for years.
          draw: in [0, 1), from whatever the caller wants the jitter to depend on.
          retry_at_ms: the time that the letter itself asks for.
        """
        due_at_ms = self.due_at_ms(attempt, first_failed_at_ms, failed_at_ms, now_ms, draw, retry_at_ms)
        return due_at_ms if isinstance(due_at_ms, Park) else RetryAt(due_at_ms)

    def due_at_ms(
        self, attempt: int, first_failed_at_ms: int, failed_at_ms: int, now_ms: int, draw: float, retry_at_ms: int | None
    ) -> int | Park:
        """Decide as `decide` does, but return the bare due time in ms since 1970, for calls ten thousand times a second."""
        if attempt > self.max_attempts:
            return _MAX_ATTEMPTS
        if retry_at_ms is not None and self.honour_retry_at:
            due_at_ms = retry_at_ms
        else:
            # Jitter may add to a delay that is already at the cap.
            due_at_ms = failed_at_ms + min(self.jitter(self.curve(attempt), draw), self.max_delay_ms)
        if due_at_ms > (latest_ms := now_ms + self.max_delay_ms):
            due_at_ms = latest_ms
        # Overdue, it would be made now, and now may be quiet.
        if self.calendar is not None and (open_at_ms := self.calendar(soonest_ms := max(due_at_ms, now_ms))) > soonest_ms:
            due_at_ms = open_at_ms
        # Overdue, it would be made now.
        if max(due_at_ms, now_ms) - first_failed_at_ms > self.max_age_ms:
            return _MAX_AGE
        return due_at_ms


# How much of a delay is left to chance, so that what failed together does not come back together.

_STEPS, _STEP_MS_MAX = 1_024, 1_000


def none(delay_ms: int, draw: float) -> int:  # noqa: ARG001 - one signature for every jitter
    """Return the delay as it is, without jitter.

    >>> none(10_000, 0.7)
    10000
    """
    return delay_ms


def full(delay_ms: int, draw: float) -> int:
    """Return a uniform delay from 0 to `delay_ms`: spreads a burst best, and may retry at once.

    >>> full(10_000, 0.0), full(10_000, 0.5), full(10_000, 0.9999999)
    (0, 5004, 10000)
    """
    return _draw(delay_ms, delay_ms, draw)


def equal(delay_ms: int, draw: float) -> int:
    """Return a delay that is half fixed, half uniform: from half of `delay_ms` to `delay_ms`.

    >>> equal(10_000, 0.0), equal(10_000, 0.5), equal(10_000, 0.9999999)
    (5000, 7502, 10000)
    """
    half_ms = delay_ms // 2
    return delay_ms - half_ms + _draw(half_ms, delay_ms, draw)


def proportional(delay_ms: int, draw: float) -> int:
    """Return a uniform delay within 10 % of `delay_ms`, on both sides; below 10 ms the delay as it is.

    >>> proportional(10_000, 0.0), proportional(10_000, 0.5), proportional(10_000, 0.9999999)
    (9000, 9999, 11000)
    """
    tenth_ms = delay_ms // 10
    return delay_ms - tenth_ms + _draw(2 * tenth_ms, delay_ms, draw)


def _draw(span_ms: int, delay_ms: int, draw: float) -> int:
    """Uniform from 0 to the span, in steps, of which the last one ends with the span."""
    step_ms = max(1, min(delay_ms // _STEPS, _STEP_MS_MAX))
    last = span_ms // step_ms
    step = int((last + 1) * draw)
    return step * step_ms if step < last else span_ms


JITTERS: dict[str, Jitter] = {"none": none, "full": full, "equal": equal, "proportional": proportional}


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
