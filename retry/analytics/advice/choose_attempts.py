"""How many attempts, and which delays, are worth it for one kind of failure.

**Attempts.** The fewest of which it is known, with 95 % confidence, that they bring at least the wanted part (`keep`) of the
recoveries which all attempts bring. What is given up is bounded from above, and what is kept from below; see
`retry.analytics.advice.prospect`. Candidates are gone through from the most attempts down, and the first that is
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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from retry.analytics.advice.delays import round_delay
from retry.analytics.advice.evidence import CELL_ENOUGH, Cell, Evidence, survival
from retry.analytics.advice.prospect import Prospect
from retry.analytics.statistics.homogeneity import more_often
from retry.analytics.statistics.proportions import chance

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
        """Retries that need not be made."""
        return self.retries_now - self.retries

    @property
    def recoveries_at_risk(self) -> float:
        """Recoveries that are lost at most, with 95 % confidence. Where nothing recovered yet, letters that might have."""
        return (self.recoveries_now or self.letters) * (1 - self.kept_low) if self.verdict == "fewer" else 0.0

    @property
    def changes(self) -> bool:
        """Whether a policy file is to say something else."""
        return self.verdict in ("fewer", "delays")


def choose(
    evidence: Evidence, *, planned: Sequence[Sequence[int]] | None = None,
    keep: float = KEEP, enough: int = ENOUGH, comparisons: int | None = None,
) -> Advice:  # fmt: skip
    """The advice for one kind of failure.

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
    verdict = "delays" if better else "keep"
    # A last attempt that never brought anything may be worthless; how many it takes to say so is a number.
    idle = made > 1 and prospect.hazards[-1] == 0
    return _advice(prospect, verdict, made, better, 1.0, missing=prospect.missing(keep) if idle else 0)


def delays_tried(evidence: Evidence) -> int:
    """How many delays there are to choose from."""
    return sum(len(tried) for cells in evidence.cells.values() if len(tried := _select_tried(cells)) > 1)


def _select_tried(cells: tuple[Cell, ...]) -> list[Cell]:
    return [cell for cell in cells if cell.ended >= CELL_ENOUGH]


def _better_delay(cells: tuple[Cell, ...], level: float) -> Cell | None:
    """The shortest delay of those that are as good as the best, where that is clearly better than all others together."""
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
