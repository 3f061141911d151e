"""What is known of a retry that was not made: its chance where such retries were made, and what time alone tells elsewhere.

A retry was *observed* where others of the same attempt waited about as long, and were made about as long after the first failure:
in the same step of 41 %, in which they are counted, or within 20 % of some. It is counted with all that are within 41 %. The
chance of anything else is not known: it lies between 0 and 1.

The likely chance of a retry that was not observed is that of an outage, which ends when it ends, whatever the attempt: of the
letters that still failed at the age of the retry before, as many recover as were seen to recover from that age up to this one.
Where none was seen between the two it brings nothing, and so does a retry that is made sooner, or later, than any other.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import NamedTuple

from retry.analytics.advice.evidence import Cell, Evidence, bin_of, survival
from retry.analytics.statistics.proportions import Chance, chance

# Half of a step of 41 %: wherever in its step a delay lies, the median of the step is as near as this.
_SAME = 1.2
_NEAR = 1.42


class Seen(NamedTuple):
    """The chance of a retry, and whether such a retry was observed."""

    chance: Chance
    is_observed: bool


class Observed:
    """The evidence of one kind, to be asked for retries of any attempt, delay and age."""

    def __init__(self, evidence: Evidence) -> None:
        self._by_attempt: dict[int, list[Cell]] = {}
        for cell in evidence.every:
            if cell.ended:
                self._by_attempt.setdefault(cell.attempt, []).append(cell)
        self.attempts = max(self._by_attempt, default=0)
        self._ages_ms, self._parts = _recovered_by_age(evidence)
        self._known: dict[tuple[int, int, int], Chance | None] = {}

    def retry(self, attempt: int, delay_ms: int, age_ms: int, age_before_ms: int) -> Seen:
        """The chance of a retry that was preceded by one of another age, 0 for none."""
        place = attempt, delay_ms, age_ms
        if place not in self._known:
            self._known[place] = self._like(*place)
        if (known := self._known[place]) is not None:
            return Seen(known, True)
        before, by_then = self._estimate_recovered(age_before_ms), self._estimate_recovered(age_ms)
        likely = (by_then - before) / (1 - before) if before < 1 else 0.0
        return Seen(Chance(0.0, likely, 1.0), False)

    def _like(self, attempt: int, delay_ms: int, age_ms: int) -> Chance | None:
        like = [
            cell for cell in self._by_attempt.get(attempt, ())
            if _distance(cell.delay_ms, delay_ms) <= _NEAR and _distance(cell.age_ms, age_ms) <= _NEAR
        ]  # fmt: skip
        delays_ms, ages_ms = [cell.delay_ms for cell in like], [cell.age_ms for cell in like]
        if not like or not (_within(delay_ms, delays_ms) and _within(age_ms, ages_ms)):
            return None
        ended = sum(cell.ended for cell in like)
        low, likely, high = chance(sum(cell.recovered for cell in like), ended)
        # Of an outage, twice the time brings up to twice the recoveries.
        off = max(_distance(delay_ms, _middle(like, delays_ms)), _distance(age_ms, _middle(like, ages_ms)))
        return Chance(low / off, likely, min(1.0, high * off))

    def _estimate_recovered(self, age_ms: int) -> float:
        """Part of the letters that was seen to recover up to an age."""
        return self._parts[bisect_right(self._ages_ms, age_ms)]


def _recovered_by_age(evidence: Evidence) -> tuple[list[int], list[float]]:
    """Ages, and the part that had recovered before the first, up to the first, and so on."""
    reach = survival(evidence.hazards())
    letters = {attempt: sum(cell.letters for cell in cells if cell.ended) for attempt, cells in evidence.cells.items()}
    gains = sorted(
        (cell.age_ms, reach[cell.attempt - 1] * cell.letters / letters[cell.attempt] * cell.recovered / cell.ended)
        for cell in evidence.every if cell.ended
    )  # fmt: skip
    parts = [0.0]
    for _, gain in gains:
        parts.append(min(1.0, parts[-1] + gain))
    return [age_ms for age_ms, _ in gains], parts


def _distance(one_ms: float, other_ms: float) -> float:
    """How many times the longer is the shorter; none is taken for 1 ms."""
    one_ms, other_ms = max(one_ms, 1.0), max(other_ms, 1.0)
    return max(one_ms, other_ms) / min(one_ms, other_ms)


def _within(time_ms: int, seen_ms: list[int]) -> bool:
    if min(seen_ms) / _SAME <= max(1, time_ms) <= max(*seen_ms, 1) * _SAME:
        return True
    return any(bin_of(time_ms) == bin_of(each) for each in seen_ms)


def _middle(cells: list[Cell], times_ms: list[int]) -> float:
    ended = sum(cell.ended for cell in cells)
    return math.exp(sum(cell.ended * math.log(max(1, ms)) for cell, ms in zip(cells, times_ms, strict=True)) / ended)
