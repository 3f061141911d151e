"""How many attempts, and which delays, are worth it for one kind of failure.

**Attempts.** The fewest of which it is known, with 95 % confidence, that they bring at least the wanted part (`keep`) of the
recoveries which all attempts bring. What is given up is bounded from above, and what is kept from below, see `Prospect`.
Candidates are gone through from the most attempts down, and the first that is not known to do ends it: so all of them together
are wrong in no more than 5 % of all cases. Where nothing ever recovered there is nothing to keep: then at most 1 - `keep` of the
*letters* may be given up, and one attempt stays, so that it shows when this changes.

**Delays.** Only such as were observed, at least 30 times, at the same attempt: another delay is proposed where letters that
waited so long recovered more often than all others together, and that by more than chance explains: there are as many chances as
there are delays to choose from, and the level is divided by their number. Of those that are as good as the best it is the
shortest. Jitter draws delays by a hash of the letter's place, so within one policy they were as good as drawn by lot. It is
assumed that the chance of an attempt depends on its number and its delay, not on the delays before it. Fewer attempts are
therefore never justified by better delays.

Letters are taken to recover independently of each other. Those of one long outage do not: a history should hold several.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from retry.analytics.advice.evidence import CELL_ENOUGH, Cell, Evidence, survival
from retry.analytics.statistics import Rate, chance, more_often, weight_rates

# Advised delays as people say them: rounded, and attempts in a row that have one delay together.

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
    """Round to the nearest delay that people would write, at most 16 % longer or shorter.

    >>> [round_delay(ms) for ms in (108_229, 61_000, 9_700, 950, 5_000_000, 90_000_000, 0)]
    [120000, 60000, 10000, 1000, 5400000, 86400000, 0]
    """
    return min(_ROUND_MS, key=lambda each: max(each, delay_ms) / min(each, delay_ms)) if delay_ms > 0 else 0


def merge_delays(delays_ms: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Merge attempts in a row that have one delay: the first, the last, and the delay.

    >>> merge_delays({1: 5, 2: 5, 4: 5, 5: 9})
    [(1, 2, 5), (4, 4, 5), (5, 5, 9)]
    """
    found = []
    # Of attempts in a row that have one delay the number less the place is one.
    for (_, delay_ms), run in groupby(enumerate(sorted(delays_ms.items())), lambda each: (each[1][0] - each[0], each[1][1])):
        attempts = [attempt for _, (attempt, _) in run]
        found.append((attempts[0], attempts[-1], delay_ms))
    return found


# What the attempts of a policy bring at least, and what those after them may bring at most, from what was seen so far.
#
# Each attempt counts with the part of all letters that reaches it, and its delays with their part of the attempt: as the policy
# of now plans them where it is known, else as they were. A delay far from all of which a retry's end is known may recover every
# letter, and so may an attempt that nobody has come to. Where a policy was changed, that is what is new of it.

# Delays that differ more are not taken for each other.
_NEAR = 2.0


@dataclass(frozen=True)
class Prospect:
    """Evidence, and planned delays by attempt, of a few letters so that jitter shows; None where the policy is unknown."""

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


# Fewer letters of a kind tell nothing that is worth a rule: half of them ± 10 %.
ENOUGH = 100
KEEP = 0.99
# How often a delay may be proposed that is no better; half of what is promised, since letters share times and jitter.
DELAYS_LEVEL = 0.025


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice for one kind of failure: how many attempts are worth making, and after which delays.

    Attributes:
      verdict: "fewer" attempts, other "delays" alone, "keep" as it is, or "unknown": there is too little data.
      attempts_now, attempts: the most that were made or are planned, and how many are worth making.
      delays_ms: by attempt, where another delay is better; as people write them, within the step of 41 % or a few per cent of it.
      letters: how many were to be retried.
      recoveries_now, recoveries: expected of so many letters.
      kept_low: which part of the recoveries of now is kept at least, with 95 % confidence; delays aside. Where nothing ever
        recovered, which part of the letters does not recover by what is given up.
      retries_now, retries: expected for so many letters.
      missing: how many more letters whose end is known it takes: for "unknown" at all, for "keep" to judge the last attempt; 0
        where that is known.
    """

    verdict: str
    attempts_now: int
    attempts: int
    delays_ms: dict[int, int]
    letters: int
    recoveries_now: float
    recoveries: float
    kept_low: float
    retries_now: float
    retries: float
    missing: int = 0

    @property
    def saved(self) -> float:
        return self.retries_now - self.retries

    @property
    def recoveries_at_risk(self) -> float:
        """Recoveries that are lost at most, with 95 % confidence. Where nothing recovered yet, letters that might have."""
        return (self.recoveries_now or self.letters) * (1 - self.kept_low) if self.verdict == "fewer" else 0.0

    @property
    def changes(self) -> bool:
        return self.verdict in ("fewer", "delays")


def choose(
    evidence: Evidence, *, planned: Sequence[Sequence[int]] | None = None,
    keep: float = KEEP, enough: int = ENOUGH, comparisons: int | None = None,
) -> Advice:  # fmt: skip
    """Choose the advice for one kind of failure.

    Args:
      planned: what the policy of now has for such letters, see `Prospect`.
      keep: which part of the recoveries must be kept at least, above 0 and up to 1.
      enough: first retries whose end must be known.
      comparisons: how many delays are chosen from in all that is advised together; None for those of this kind.
    """
    prospect = Prospect(evidence, planned)
    made = prospect.attempts
    if (ended := evidence.count_ended(1)) < enough:
        return _advice(prospect, "unknown", made, {}, 0.0, missing=enough - ended)
    attempts = made
    while attempts > 1 and prospect.kept_low(attempts - 1, keep) >= keep:
        attempts -= 1
    level = DELAYS_LEVEL / max(1, delays_tried(evidence) if comparisons is None else comparisons)
    better = {n: cell for n in range(1, attempts + 1) if (cell := _better_delay(evidence.cells.get(n, ()), level))}
    if planned is not None:
        better = {n: cell for n, cell in better.items() if set(planned[n - 1]) != {round_delay(cell.delay_ms)}}
    if attempts < made:
        return _advice(prospect, "fewer", attempts, better, prospect.kept_low(attempts, keep))
    # A last attempt that never brought anything may be worthless; how many it takes to say so is a number.
    idle = made > 1 and prospect.hazards[-1] == 0
    return _advice(prospect, "delays" if better else "keep", made, better, 1.0, missing=prospect.missing(keep) if idle else 0)


def delays_tried(evidence: Evidence) -> int:
    return sum(len(tried) for cells in evidence.cells.values() if len(tried := _select_tried(cells)) > 1)


def _select_tried(cells: tuple[Cell, ...]) -> list[Cell]:
    return [cell for cell in cells if cell.ended >= CELL_ENOUGH]


def _better_delay(cells: tuple[Cell, ...], level: float) -> Cell | None:
    """Find the shortest delay of those that are as good as the best, where that is clearly better than all others together."""
    tried = _select_tried(cells)
    if len(tried) < 2:
        return None
    best = max(tried, key=lambda cell: chance(cell.recovered, cell.ended).low)
    others = [cell for cell in cells if cell is not best]
    rest = sum(cell.recovered for cell in others), sum(cell.ended for cell in others)
    if more_often((best.recovered, best.ended), rest) > level:
        return None
    low = chance(best.recovered, best.ended).low
    return next(cell for cell in tried if cell.recovered / cell.ended >= low)


def _advice(
    prospect: Prospect, verdict: str, attempts: int, better: Mapping[int, Cell], kept_low: float, missing: int = 0
) -> Advice:
    letters, left_now = prospect.evidence.letters, prospect.reach
    left = survival(_hazard_at(prospect.evidence, n, better.get(n)) for n in range(1, attempts + 1))
    return Advice(
        verdict, attempts_now=prospect.attempts, attempts=attempts,
        delays_ms={n: round_delay(cell.delay_ms) for n, cell in better.items()}, letters=letters,
        recoveries_now=letters * (1 - left_now[-1]), recoveries=letters * (1 - left[-1]), kept_low=kept_low,
        retries_now=letters * sum(left_now[:-1]), retries=letters * sum(left[:-1]), missing=missing,
    )  # fmt: skip


def _hazard_at(evidence: Evidence, attempt: int, cell: Cell | None) -> float:
    return evidence.hazard(attempt).likely if cell is None else cell.recovered / cell.ended
