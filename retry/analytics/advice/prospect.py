"""What the attempts of a policy bring at least, and what those after them may bring at most, from what was seen so far.

Each attempt counts with the part of all letters that reaches it, and its delays with their part of the attempt: as the policy of
now plans them where it is known, else as they were. A delay far from all of which a retry's end is known may recover every
letter, and so may an attempt that nobody has come to. Where a policy was changed, that is what is new of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from retry.analytics.advice.evidence import CELL_ENOUGH, Cell, Evidence, survival
from retry.analytics.statistics.rates import Rate, weight_rates

# Delays that differ more are not taken for each other.
_NEAR = 2.0


@dataclass(frozen=True)
class Prospect:
    """Evidence, and what is planned.

    Attributes:
      planned: delays by attempt, from the first; of a few letters, so that jitter shows. None where the policy is not known.
    """

    evidence: Evidence
    planned: Sequence[Sequence[int]] | None = None

    @property
    def attempts(self) -> int:
        """The last attempt that a letter gets which always fails."""
        return self.evidence.attempts if self.planned is None else len(self.planned)

    @cached_property
    def hazards(self) -> list[float]:
        """The likely chance of each attempt; 0 where nothing is known."""
        return [self.evidence.hazard(attempt).likely for attempt in range(1, self.attempts + 1)]

    @cached_property
    def reach(self) -> list[float]:
        """The part of the letters that comes to each attempt, and as the last item the part that fails for good."""
        return survival(self.hazards)

    def kept_low(self, attempts: int, keep: float) -> float:
        """Which part of the recoveries the first so many attempts bring at least, with 95 % confidence."""
        later = range(attempts + 1, self.attempts + 1)
        seen = weight_rates(rate for attempt in later for rate in self._rates(attempt))
        unknown = sum(self.reach[attempt - 1] * self._estimate_unknown(attempt) for attempt in later)
        lost_high = min(self.reach[attempts], seen.high + unknown)
        recovers = weight_rates(rate for attempt in range(1, attempts + 1) for rate in self._rates(attempt))
        if recovers.likely == 0:
            return 1 - lost_high if not any(self.hazards) and keep < 1 else 0.0
        return recovers.low / (recovers.low + lost_high)

    def missing(self, keep: float) -> int:
        """How many more retries of the last attempt must be seen to fail before it is known not to be worth it."""
        recovers = weight_rates(rate for attempt in range(1, self.attempts) for rate in self._rates(attempt)).low
        bearable = recovers * (1 - keep) / keep if recovers else 1 - keep
        # The upper bound of nothing in n trials is that of one trial, divided by n.
        nothing = weight_rates([Rate(self.reach[-2], 0, 1)]).high
        return max(1, math.ceil(nothing / bearable) - self.evidence.count_ended(self.attempts)) if bearable > 0 else 0

    def _rates(self, attempt: int) -> Iterator[Rate]:
        """Yield the known rate of each delay of one attempt, with its part of the letters; pending ones count like these."""
        for group, part in self._weigh_delays(attempt):
            trials = sum(cell.ended for cell in group)
            if trials and part:
                yield Rate(self.reach[attempt - 1] * part, sum(cell.recovered for cell in group), trials)

    def _estimate_unknown(self, attempt: int) -> float:
        """Part of the letters of an attempt that waits as long as none of which the end is known."""
        known = sum(part for group, part in self._weigh_delays(attempt) if any(cell.ended for cell in group))
        return max(0.0, 1 - known)

    def _weigh_delays(self, attempt: int) -> list[tuple[list[Cell], float]]:
        """Delays that were seen, and the part of the attempt that waits so long."""
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
    """Delays that are counted together: neighbours of which one has few letters.

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
