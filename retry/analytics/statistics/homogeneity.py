"""May two groups be counted together, and did one recover more often than the other.

Both ask R. A. Fisher's exact test (1922) of a table of two by two: of all tables with these sums, which part is at least as
unlikely as this one. It needs no large numbers, and with small ones it errs towards "the same".
"""

from __future__ import annotations

import math

Counts = tuple[int, int]
# Tables as likely as the one at hand count as such, whatever the last digits of their logarithms.
_SAME = 1e-9


def differ(one: Counts, other: Counts) -> float:
    """How likely two groups with one chance would differ at least as much; each is events and trials.

    >>> round(differ((1, 10), (9, 10)), 6)
    0.001093
    """
    likely = _tables(one, other)
    at = likely[one[0] - _least(one, other)]
    return min(1.0, math.fsum(math.exp(each) for each in likely if each <= at + _SAME))


def more_often(one: Counts, other: Counts) -> float:
    """How likely the first of two groups with one chance would have at least so many of the events.

    >>> round(more_often((9, 10), (1, 10)), 6)
    0.000547
    """
    return min(1.0, math.fsum(math.exp(each) for each in _tables(one, other)[one[0] - _least(one, other) :]))


def _least(one: Counts, other: Counts) -> int:
    """The fewest events that the first group can have of all."""
    return max(0, one[0] + other[0] - other[1])


def _tables(one: Counts, other: Counts) -> list[float]:
    """Logarithm of the probability of each number of events in the first group, from the fewest on: hypergeometric."""
    events, trials = one[0] + other[0], one[1] + other[1]
    most = min(events, one[1])
    whole = _choices(trials, events)
    return [_choices(one[1], n) + _choices(other[1], events - n) - whole for n in range(_least(one, other), most + 1)]


def _choices(of: int, chosen: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(chosen + 1) - math.lgamma(of - chosen + 1)
