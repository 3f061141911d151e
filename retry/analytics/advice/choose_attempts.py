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

Both hold as far as letters count themselves. Those of one outage recover together, so what the counts say is only said where the
history is one to say it by, see `retry.analytics.advice.grounds`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from retry.analytics.advice.evidence import CELL_ENOUGH, Cell, Evidence, compute_survival
from retry.analytics.advice.grounds import Coverage, Grounds
from retry.analytics.advice.prospect import Prospect
from retry.analytics.statistics import chance, compute_more_often_chance

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
      base: what the advice rests on, in a few words; empty where the times of failures are not known.
      reason: what the history lacks to give up attempts, as a sentence without its full stop, where the bare counts would do so
        and the verdict is "unknown"; else empty.
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
    base: str = ""
    reason: str = ""

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
    evidence: Evidence, *, planned: Sequence[Sequence[int]] | None = None, keep: float = KEEP, enough: int = ENOUGH,
    comparisons: int | None = None, coverage: Coverage | None = None,
) -> Advice:  # fmt: skip
    """Choose the advice for one kind of failure.

    Args:
      planned: what the policy of now has for such letters, see `Prospect`.
      keep: which part of the recoveries must be kept at least, above 0 and up to 1.
      enough: first retries whose end must be known.
      comparisons: how many delays are chosen from in all that is advised together; None for those of this kind.
      coverage: the times from which there are letters of any kind; None for those of this one.
    """
    prospect = Prospect(evidence, planned)
    if not evidence.episodes:
        return _choose(prospect, keep, enough, comparisons, None)
    grounds = Grounds(evidence, coverage or Coverage.from_episodes(evidence.episodes))
    naive, base = _choose(prospect, keep, enough, comparisons, None), grounds.describe_base()
    if naive.verdict in ("keep", "unknown"):
        return replace(naive, base=base)
    if doubt := grounds.find_doubt():
        return _refuse(prospect, base, doubt)
    found = _choose(replace(prospect, design_effects=grounds.design_effects), keep, enough, comparisons, grounds)
    attempts = (naive if found.verdict == "keep" else found).attempts
    if unlike := grounds.find_change(attempts, keep) or grounds.find_blind_spot(attempts, keep):
        return _refuse(prospect, base, unlike)
    if found.verdict == "keep":
        together = "letters that fail together recover together"
        return _refuse(prospect, base, f"{together}, and {grounds.describe_number()} tell too little")
    return replace(found, base=base)


def refuse(evidence: Evidence, planned: Sequence[Sequence[int]] | None, reason: str) -> Advice:
    """Advise nothing, and say why."""
    return _refuse(Prospect(evidence, planned), "", reason)


def _refuse(prospect: Prospect, base: str, reason: str) -> Advice:
    return replace(_advice(prospect, "unknown", prospect.attempts, {}, 0.0), base=base, reason=reason)


def _choose(prospect: Prospect, keep: float, enough: int, comparisons: int | None, grounds: Grounds | None) -> Advice:
    evidence, planned, made = prospect.evidence, prospect.planned, prospect.attempts
    if (ended := evidence.count_ended(1)) < enough:
        return _advice(prospect, "unknown", made, {}, 0.0, missing=enough - ended)

    def kept_low(attempts: int) -> float:
        beyond = grounds.kept_beyond(prospect.find_age_ms(attempts)) if grounds else 0.0
        return max(prospect.kept_low(attempts, keep), beyond)

    attempts = made
    while attempts > 1 and kept_low(attempts - 1) >= keep:
        attempts -= 1
    level = DELAYS_LEVEL / max(1, count_tried_delays(evidence) if comparisons is None else comparisons)
    effects = prospect.design_effects
    better = {
        n: cell for n in range(1, attempts + 1)
        if (cell := _better_delay(evidence.cells.get(n, ()), level, effects.get(n, 1.0)))
    }  # fmt: skip
    if planned is not None:
        better = {n: cell for n, cell in better.items() if set(planned[n - 1]) != {round_delay(cell.delay_ms)}}
    if attempts < made:
        return _advice(prospect, "fewer", attempts, better, kept_low(attempts))
    # A last attempt that never brought anything may be worthless; how many it takes to say so is a number.
    idle = made > 1 and prospect.hazards[-1] == 0
    return _advice(prospect, "delays" if better else "keep", made, better, 1.0, missing=prospect.missing(keep) if idle else 0)


def count_tried_delays(evidence: Evidence) -> int:
    return sum(len(tried) for cells in evidence.cells.values() if len(tried := _select_tried(cells)) > 1)


def _select_tried(cells: tuple[Cell, ...]) -> list[Cell]:
    return [cell for cell in cells if cell.ended >= CELL_ENOUGH]


def _better_delay(cells: tuple[Cell, ...], level: float, effect: float) -> Cell | None:
    """Find the shortest delay of those that are as good as the best, where that is clearly better than all others together."""
    tried = _select_tried(cells)
    if len(tried) < 2:
        return None
    best = max(tried, key=lambda cell: chance(cell.recovered, cell.ended).low)
    others = [cell for cell in cells if cell is not best]
    rest = sum(cell.recovered for cell in others), sum(cell.ended for cell in others)
    both = (best.recovered, best.ended), rest
    if compute_more_often_chance(*((round(events / effect), round(letters / effect)) for events, letters in both)) > level:
        return None
    low = chance(best.recovered / effect, best.ended / effect).low
    return next(cell for cell in tried if cell.recovered / cell.ended >= low)


def _advice(
    prospect: Prospect, verdict: str, attempts: int, better: Mapping[int, Cell], kept_low: float, missing: int = 0
) -> Advice:
    letters, left_now = prospect.evidence.letters, prospect.reach
    left = compute_survival(_hazard_at(prospect.evidence, n, better.get(n)) for n in range(1, attempts + 1))
    return Advice(
        verdict, attempts_now=prospect.attempts, attempts=attempts,
        delays_ms={n: round_delay(cell.delay_ms) for n, cell in better.items()}, letters=letters,
        recoveries_now=letters * (1 - left_now[-1]), recoveries=letters * (1 - left[-1]), kept_low=kept_low,
        retries_now=letters * sum(left_now[:-1]), retries=letters * sum(left[:-1]), missing=missing,
    )  # fmt: skip


def _hazard_at(evidence: Evidence, attempt: int, cell: Cell | None) -> float:
    return evidence.likely(attempt) if cell is None else cell.recovered / cell.ended
