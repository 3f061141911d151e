"""How many attempts, and which delays, are worth it for one kind of failure.

**Attempts.** The fewest of which it is known, with 95 % confidence, that they bring at least the wanted part (`keep`) of the
recoveries which all attempts so far bring. What is given up is bounded from above: the chance of a single later attempt by
Wilson's interval over all of them together, over as many of them as a letter would get; and what is kept from below. Where
nothing ever recovered there is nothing to keep: then at most 1 - `keep` of the *letters* may be given up, and one attempt
stays, so that it shows when this changes.

**Delays.** Only such as were observed, at least 30 times, at the same attempt: another delay is proposed where its chance is
higher than that of all others together, and their intervals do not overlap; of those that are as good as the best the shortest.
Jitter draws delays by a hash of the letter's place, so within one policy they were as good as drawn by lot. It is assumed that
the chance of an attempt depends on its number and its delay, not on the delays before it. Fewer attempts are therefore never
justified by better delays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from retry.analytics.advice.evidence import CELL_ENOUGH, Cell, Chance, Evidence, Z, chance, survival

# Fewer letters of a kind tell nothing that is worth a rule: half of them ± 10 %.
ENOUGH = 100
KEEP = 0.99


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do with one kind of failure.

    Attributes:
      verdict: "fewer" attempts, other "delays" alone, "keep" as it is, or "unknown": there is too little data.
      attempts_now, attempts: that were made at most, and that are worth making.
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


def choose(evidence: Evidence, *, keep: float = KEEP, enough: int = ENOUGH) -> Advice:
    """The advice for one kind of failure.

    Args:
      keep: which part of the recoveries must be kept at least, above 0 and up to 1.
      enough: first retries whose end must be known.
    """
    made = evidence.attempts
    now = evidence.hazards()
    if (ended := evidence.ended(1)) < enough:
        return _advice(evidence, "unknown", made, {}, 0.0, missing=enough - ended)
    attempts = next((n for n in range(1, made) if kept_low(evidence, n, keep) >= keep), made)
    delays_ms = {n: cell.delay_ms for n in range(1, attempts + 1) if (cell := _better_delay(evidence.cells[n]))}
    if attempts < made:
        return _advice(evidence, "fewer", attempts, delays_ms, kept_low(evidence, attempts, keep))
    verdict = "delays" if delays_ms else "keep"
    # A last attempt that never brought anything may be worthless; how many it takes to say so is a number.
    idle = made > 1 and now[-1] == 0
    return _advice(evidence, verdict, made, delays_ms, 1.0, missing=_missing(evidence, keep) if idle else 0)


def kept_low(evidence: Evidence, attempts: int, keep: float = KEEP) -> float:
    """Which part of the recoveries the first so many attempts bring at least, with 95 % confidence."""
    hazards = evidence.hazards()
    lost_high = _later(evidence, attempts).high
    recovers = 1 - survival(hazards)[attempts]
    if recovers == 0:
        return 1 - lost_high if not any(hazards) and keep < 1 else 0.0
    recovers_low = chance(round(recovers * evidence.ended(1)), evidence.ended(1)).low
    return recovers_low / (recovers_low + (1 - recovers_low) * lost_high)


def _later(evidence: Evidence, attempts: int) -> Chance:
    """How likely a letter that still fails after so many attempts would recover by a later one."""
    later = range(attempts + 1, evidence.attempts + 1)
    each = chance(sum(map(evidence.recovered, later)), sum(map(evidence.ended, later)))
    left = survival([evidence.hazard(n).likely for n in later])
    # As many retries as it would get on the average.
    made = sum(left[:-1])
    low, likely, high = (1 - (1 - hazard) ** made for hazard in each)
    return Chance(low, likely, max(high, 1 - left[-1]))


def _better_delay(cells: tuple[Cell, ...]) -> Cell | None:
    """The shortest delay of those that are as good as the best, where that is clearly better than all others together."""
    tried = [cell for cell in cells if cell.ended >= CELL_ENOUGH]
    if len(tried) < 2:
        return None
    best = max(tried, key=lambda cell: chance(cell.recovered, cell.ended).low)
    others = [cell for cell in cells if cell is not best]
    low = chance(best.recovered, best.ended).low
    if low <= chance(sum(cell.recovered for cell in others), sum(cell.ended for cell in others)).high:
        return None
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
    left = survival(evidence.hazards())
    recovers, reach = 1 - left[-2], left[-2]
    if not recovers:
        recovers, reach = 1.0, 1.0
    bearable = recovers * (1 - keep) / (keep * reach)
    # Wilson's upper bound of nothing in n is z² / (n + z²).
    z2 = Z**2
    return max(1, math.ceil(z2 / bearable - z2) - evidence.ended(evidence.attempts)) if bearable > 0 else 0
