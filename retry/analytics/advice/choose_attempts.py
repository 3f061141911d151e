"""How many attempts, and which delays, are worth it for one kind of failure.

**Attempts.** The fewest of which it is known, with 95 % confidence, that they bring at least the wanted part (`keep`) of the
recoveries which all attempts bring. What is given up is bounded from above: each later attempt counts with the part of the
letters that reaches it, and what is known of it; an attempt, or a delay, of which no retry's end is known may recover all that
come to it. What is kept is bounded from below. Candidates are gone through from the most attempts down, and the first that is
not known to do ends it: so all of them together are wrong in no more than 5 % of all cases. Where nothing ever recovered there
is nothing to keep: then at most 1 - `keep` of the *letters* may be given up, and one attempt stays, so that it shows when this
changes.

**Delays.** Only such as were observed, at least 30 times, at the same attempt: another delay is proposed where letters that
waited so long recovered more often than all others together, and that by more than chance explains: there are as many chances
as there are delays to choose from, and the level is divided by their number. Of those that are as good as the best it is the
shortest. Jitter draws delays by a hash of the letter's place, so within one policy they were as good as drawn by lot. It is
assumed that the chance of an attempt depends on its number and its delay, not on the delays before it. Fewer attempts are
therefore never justified by better delays.

Letters are taken to recover independently of each other. Those of one long outage do not: a history should hold several.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from retry.analytics.advice.evidence import CELL_ENOUGH, Cell, Evidence, survival
from retry.analytics.statistics.homogeneity import more_often
from retry.analytics.statistics.proportions import chance
from retry.analytics.statistics.rates import Rate, weighted

# Fewer letters of a kind tell nothing that is worth a rule: half of them ± 10 %.
ENOUGH = 100
KEEP = 0.99
# How often a delay may be proposed that is no better; half of what is promised, since letters share times and jitter.
DELAYS_LEVEL = 0.025


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do with one kind of failure.

    Attributes:
      verdict: "fewer" attempts, other "delays" alone, "keep" as it is, or "unknown": there is too little data.
      attempts_now, attempts: that were made at most, or are to be made, and that are worth making.
      delays_ms: by attempt, where another delay is better.
      letters: that were to be retried.
      recoveries_now, recoveries: expected of so many letters.
      kept_low: which part of the recoveries of now is kept at least, with 95 % confidence; delays aside.
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
        """Retries that need not be made."""
        return self.retries_now - self.retries

    @property
    def changes(self) -> bool:
        """Whether a policy file is to say something else."""
        return self.verdict in ("fewer", "delays")


def choose(evidence: Evidence, *, keep: float = KEEP, enough: int = ENOUGH, comparisons: int | None = None) -> Advice:
    """The advice for one kind of failure.

    Args:
      keep: which part of the recoveries must be kept at least, above 0 and up to 1.
      enough: first retries whose end must be known.
      comparisons: how many delays are chosen from in all that is advised together; None for those of this kind.
    """
    made = evidence.attempts
    now = evidence.hazards()
    if (ended := evidence.ended(1)) < enough:
        return _advice(evidence, "unknown", made, {}, 0.0, missing=enough - ended)
    attempts = made
    while attempts > 1 and kept_low(evidence, attempts - 1, keep) >= keep:
        attempts -= 1
    level = DELAYS_LEVEL / max(1, delays_tried(evidence) if comparisons is None else comparisons)
    delays_ms = {n: cell.delay_ms for n in range(1, attempts + 1) if (cell := _better_delay(evidence.cells[n], level))}
    if attempts < made:
        return _advice(evidence, "fewer", attempts, delays_ms, kept_low(evidence, attempts, keep))
    verdict = "delays" if delays_ms else "keep"
    # A last attempt that never brought anything may be worthless; how many it takes to say so is a number.
    idle = made > 1 and now[-1] == 0
    return _advice(evidence, verdict, made, delays_ms, 1.0, missing=_missing(evidence, keep) if idle else 0)


def kept_low(evidence: Evidence, attempts: int, keep: float = KEEP) -> float:
    """Which part of the recoveries the first so many attempts bring at least, with 95 % confidence."""
    reach = survival(evidence.hazards())
    later = range(attempts + 1, evidence.attempts + 1)
    unknown = sum(reach[n - 1] * _unknown(evidence.cells[n]) for n in later)
    seen = weighted(rate for n in later for rate in _rates(evidence.cells[n], reach[n - 1]))
    lost_high = min(reach[attempts], seen.high + unknown)
    recovers = weighted(rate for n in range(1, attempts + 1) for rate in _rates(evidence.cells[n], reach[n - 1]))
    if recovers.likely == 0:
        return 1 - lost_high if not any(evidence.hazards()) and keep < 1 else 0.0
    return recovers.low / (recovers.low + lost_high)


def delays_tried(evidence: Evidence) -> int:
    """How many delays there are to choose from."""
    return sum(len(tried) for cells in evidence.cells.values() if len(tried := _tried(cells)) > 1)


def _rates(cells: tuple[Cell, ...], reach: float) -> Iterator[Rate]:
    """What is known of one attempt, each delay with its part of the letters; pending ones are taken to be like the known."""
    letters = sum(cell.letters for cell in cells)
    for group in _like_delays(cells):
        trials = sum(cell.ended for cell in group)
        if trials:
            yield Rate(reach * sum(cell.letters for cell in group) / letters, sum(cell.recovered for cell in group), trials)


def _unknown(cells: tuple[Cell, ...]) -> float:
    """Part of the letters of an attempt that waits as long as none of which the end is known."""
    letters = sum(cell.letters for cell in cells)
    unknown = sum(cell.letters for group in _like_delays(cells) if not any(cell.ended for cell in group) for cell in group)
    return unknown / letters if letters else 1.0


def _like_delays(cells: tuple[Cell, ...]) -> list[list[Cell]]:
    """Delays that are counted together: neighbours of which one has few letters.

    Failures of long delays are known later than those of short ones. Counted apart, that makes no difference.
    """
    groups: list[list[Cell]] = []
    for cell in cells:
        is_near = bool(groups) and cell.delay_ms <= 2 * groups[-1][-1].delay_ms
        if is_near and min(cell.letters, sum(each.letters for each in groups[-1])) < CELL_ENOUGH:
            groups[-1].append(cell)
        else:
            groups.append([cell])
    return groups


def _tried(cells: tuple[Cell, ...]) -> list[Cell]:
    return [cell for cell in cells if cell.ended >= CELL_ENOUGH]


def _better_delay(cells: tuple[Cell, ...], level: float) -> Cell | None:
    """The shortest delay of those that are as good as the best, where that is clearly better than all others together."""
    tried = _tried(cells)
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
    evidence: Evidence, verdict: str, attempts: int, delays_ms: dict[int, int], kept_low: float, missing: int = 0
) -> Advice:
    now, letters = evidence.hazards(), evidence.letters
    then = [_hazard_at(evidence, n, delays_ms.get(n)) for n in range(1, attempts + 1)]
    left_now, left = survival(now), survival(then)
    return Advice(
        verdict, evidence.attempts, attempts, delays_ms, letters,
        letters * (1 - left_now[-1]), letters * (1 - left[-1]), kept_low,
        letters * sum(left_now[:-1]), letters * sum(left[:-1]), missing,
    )  # fmt: skip


def _hazard_at(evidence: Evidence, attempt: int, delay_ms: int | None) -> float:
    cell = next((each for each in evidence.cells[attempt] if each.delay_ms == delay_ms), None)
    return evidence.hazard(attempt).likely if cell is None else cell.recovered / cell.ended


def _missing(evidence: Evidence, keep: float) -> int:
    """How many more retries of the last attempt must be seen to fail before it is known not to be worth it."""
    reach = survival(evidence.hazards())
    recovers = weighted(rate for n in range(1, evidence.attempts) for rate in _rates(evidence.cells[n], reach[n - 1])).low
    bearable = recovers * (1 - keep) / keep if recovers else 1 - keep
    # The upper bound of nothing in n trials is that of one trial, divided by n.
    nothing = weighted([Rate(reach[-2], 0, 1)]).high
    return max(1, math.ceil(nothing / bearable) - evidence.ended(evidence.attempts)) if bearable > 0 else 0
