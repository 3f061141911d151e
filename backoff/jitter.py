"""Spreads retries that would otherwise come back in one burst.

A jitter takes a delay in milliseconds and a draw in [0, 1) and gives a delay in milliseconds. It draws nothing itself:
the same draw gives the same delay, so a letter read twice gets the same due time. Each grows with the draw, so a draw
of 0 gives the lower bound and one just below 1 the upper. Bounds hold for delays below 2**53 ms.

Delays differ by steps of 1/1,024 of the delay, at most a second: no consumer tells them apart, and letters that are due
together can be kept together.
"""

from __future__ import annotations

from collections.abc import Callable

Jitter = Callable[[int, float], int]

_STEPS, _STEP_MS_MAX = 1_024, 1_000


def none(delay_ms: int, draw: float) -> int:  # noqa: ARG001 - one signature for every jitter
    """The delay as it is.

    >>> none(10_000, 0.7)
    10000
    """
    return delay_ms


def full(delay_ms: int, draw: float) -> int:
    """Uniform from 0 to the delay: spreads a burst best, and may retry at once.

    >>> full(10_000, 0.0), full(10_000, 0.5), full(10_000, 0.9999999)
    (0, 5004, 10000)
    """
    return _draw(delay_ms, delay_ms, draw)


def equal(delay_ms: int, draw: float) -> int:
    """Half fixed, half uniform: from half the delay to the delay.

    >>> equal(10_000, 0.0), equal(10_000, 0.5), equal(10_000, 0.9999999)
    (5000, 7502, 10000)
    """
    half_ms = delay_ms // 2
    return delay_ms - half_ms + _draw(half_ms, delay_ms, draw)


def proportional(delay_ms: int, draw: float) -> int:
    """Uniform within 10 % of the delay, on both sides; below 10 ms the delay as it is.

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
