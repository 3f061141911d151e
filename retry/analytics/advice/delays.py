"""Advised delays as people say them: rounded, and attempts in a row that have one delay together."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

_COUNTS = (
    1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250, 300, 400, 500, 600, 800
)  # fmt: skip
# Up to where each unit is used: the next one is said in place of so many of it.
_UNITS_MS = ((1, 1_000), (1_000, 60_000), (60_000, 3_600_000), (3_600_000, 86_400_000), (86_400_000, 1_000 * 86_400_000))
_ROUND_MS = sorted({
    int(count * unit_ms) for unit_ms, below_ms in _UNITS_MS for count in _COUNTS
    if count * unit_ms < below_ms and count * unit_ms == int(count * unit_ms)
})  # fmt: skip


def round_delay(delay_ms: int) -> int:
    """The nearest delay that people would write, at most 16 % longer or shorter.

    >>> [round_delay(ms) for ms in (108_229, 61_000, 9_700, 950, 5_000_000, 90_000_000, 0)]
    [120000, 60000, 10000, 1000, 5400000, 86400000, 0]
    """
    return min(_ROUND_MS, key=lambda each: max(each, delay_ms) / min(each, delay_ms)) if delay_ms > 0 else 0


def merge_delays(delays_ms: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Attempts in a row that have one delay: the first, the last, and the delay.

    >>> merge_delays({1: 5, 2: 5, 4: 5, 5: 9})
    [(1, 2, 5), (4, 4, 5), (5, 5, 9)]
    """
    found = []
    # Of attempts in a row that have one delay the number less the place is one.
    places = enumerate(sorted(delays_ms.items()))
    for (_, delay_ms), run in groupby(places, lambda each: (each[1][0] - each[0], each[1][1])):
        attempts = [attempt for _, (attempt, _) in run]
        found.append((attempts[0], attempts[-1], delay_ms))
    return found
