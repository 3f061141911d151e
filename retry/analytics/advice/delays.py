"""Advised delays as people say them: attempts in a row that have one delay together."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby


def merged(delays_ms: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Attempts in a row that have one delay: the first, the last, and the delay.

    >>> merged({1: 5, 2: 5, 4: 5, 5: 9})
    [(1, 2, 5), (4, 4, 5), (5, 5, 9)]
    """
    found = []
    # Of attempts in a row that have one delay the number less the place is one.
    places = enumerate(sorted(delays_ms.items()))
    for (_, delay_ms), run in groupby(places, lambda each: (each[1][0] - each[0], each[1][1])):
        attempts = [attempt for _, (attempt, _) in run]
        found.append((attempts[0], attempts[-1], delay_ms))
    return found
