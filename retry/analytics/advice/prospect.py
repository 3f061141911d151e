"""What the attempts of a policy bring at least, and what those after them may bring at most, from what was seen so far.

Each attempt counts with the part of all letters that reaches it, and its delays with their part of the attempt: as the policy
of now plans them where it is known, else as they were. That part is not known either: what is given up counts with its upper
bound. A delay far from all of which a retry's end is known may recover every letter, and so may an attempt that nobody has come
to. Where a policy was changed, that is what is new of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from retry.analytics.advice.evidence import CELL_ENOUGH, Cell, Evidence, compute_survival
from retry.analytics.statistics import Rate, chance, weight_rates

# Delays that differ more are not taken for each other.
_NEAR = 2.0


@dataclass(frozen=True)
class Prospect:
    """Evidence, and planned delays by attempt, of a few letters so that jitter shows; None where the policy is unknown.
    `design_effects` has by attempt how many letters count as an independent one; 1 where it has nothing."""

    evidence: Evidence
    planned: Sequence[Sequence[int]] | None = None
    design_effects: Mapping[int, float] = field(default_factory=dict)

    @property
    def attempts(self) -> int:
        """The last attempt that a letter gets which always fails."""
        return self.evidence.attempts if self.planned is None else len(self.planned)

    @cached_property
    def hazards(self) -> list[float]:
        """The likely chance of each attempt; 0 where nothing is known."""
        return [self.evidence.likely(attempt) for attempt in range(1, self.attempts + 1)]

    @cached_property
    def reach(self) -> list[float]:
        """The part of the letters that comes to each attempt, and as the last item the part that fails for good."""
        return compute_survival(self.hazards)

    @cached_property
    def reach_high(self) -> list[float]:
        """The upper 95 % bounds of `reach`, whose first item is 1."""
        letters = self.evidence.count_ended(1) / self.design_effects.get(1, 1.0)
        return [1.0, *(chance(part * letters, letters).high for part in self.reach[1:])]

    def kept_low(self, attempts: int, keep: float) -> float:
        """Compute the least part of all recoveries that the first `attempts` attempts bring, with 95 % confidence."""
        later = range(attempts + 1, self.attempts + 1)
        seen = weight_rates(rate for attempt in later for rate in self._rates(attempt, self.reach_high))
        unknown = sum(self.reach_high[attempt - 1] * self._estimate_unknown(attempt) for attempt in later)
        lost_high = min(self.reach_high[attempts], seen.high + unknown)
        recovers = weight_rates(rate for attempt in range(1, attempts + 1) for rate in self._rates(attempt, self.reach))
        if recovers.likely == 0:
            return 1 - lost_high if not any(self.hazards) and keep < 1 else 0.0
        return recovers.low / (recovers.low + lost_high)

    def find_age_ms(self, attempt: int) -> float:
        """Find how long after the first failure a retry is made: the median of those that were, else as it is planned."""
        cells = sorted((cell.age_ms, cell.letters) for cell in self.evidence.every if cell.attempt == attempt)
        reached, letters = 0, sum(number for _, number in cells)
        for age_ms, number in cells:
            reached += number
            if 2 * reached >= letters > 0:
                return age_ms
        return sum(min(delays_ms) for delays_ms in (self.planned or ())[:attempt]) if self.planned else 0.0

    def missing(self, keep: float) -> int:
        """Count how many more retries of the last attempt must fail before it is known not to be worth making."""
        recovers = weight_rates(rate for attempt in range(1, self.attempts) for rate in self._rates(attempt, self.reach)).low
        bearable = recovers * (1 - keep) / keep if recovers else 1 - keep
        # The upper bound of nothing in n trials is that of one trial, divided by n.
        nothing = weight_rates([Rate(self.reach_high[-2], 0, 1)]).high
        return max(1, math.ceil(nothing / bearable) - self.evidence.count_ended(self.attempts)) if bearable > 0 else 0

    def _rates(self, attempt: int, reach: Sequence[float]) -> Iterator[Rate]:
        """Yield the known rate of each delay of one attempt, with its part of the letters; pending ones count like these."""
        effect = self.design_effects.get(attempt, 1.0)
        for group, part in self._weigh_delays(attempt):
            trials = sum(cell.ended for cell in group)
            if trials and part:
                yield Rate(reach[attempt - 1] * part, sum(cell.recovered for cell in group) / effect, trials / effect)

    def _estimate_unknown(self, attempt: int) -> float:
        """Estimate the part of the letters of an attempt that waits as long as none of which the end is known."""
        return max(0.0, 1 - sum(part for group, part in self._weigh_delays(attempt) if any(cell.ended for cell in group)))

    def _weigh_delays(self, attempt: int) -> list[tuple[list[Cell], float]]:
        """List delays that were seen, and the part of the attempt that waits so long."""
        groups = _like_delays(self.evidence.cells.get(attempt, ()))
        if self.planned is None:
            letters = sum(cell.letters for group in groups for cell in group)
            return [(group, sum(cell.letters for cell in group) / max(1, letters)) for group in groups]
        delays_ms = self.planned[attempt - 1]
        near = [min(groups, key=lambda group: _distance(group, delay_ms), default=[]) for delay_ms in delays_ms]
        counts = [sum(each is group and _distance(group, ms) <= _NEAR for each, ms in zip(near, delays_ms, strict=True))
                  for group in groups]  # fmt: skip
        return [(group, count / len(delays_ms)) for group, count in zip(groups, counts, strict=True)]


def _like_delays(cells: tuple[Cell, ...]) -> list[list[Cell]]:
    """Group delays that are counted together: neighbours of which one has few letters.

    Failures of long delays are known later than those of short ones. Counted apart, that makes no difference.
    """
    groups: list[list[Cell]] = []
    for cell in cells:
        is_near = bool(groups) and cell.delay_ms <= _NEAR * groups[-1][-1].delay_ms
        if is_near and min(cell.letters, sum(each.letters for each in groups[-1])) < CELL_ENOUGH:
            groups[-1].append(cell)
        else:
            groups.append([cell])
    return groups


def _distance(group: Sequence[Cell], delay_ms: int) -> float:
    """How many times the longer is the shorter, of a delay and the nearest of a group."""
    times = [max(1, cell.delay_ms) / max(1, delay_ms) for cell in group]
    return min(max(each, 1 / each) for each in times)
