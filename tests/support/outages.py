"""Histories in which letters fail in episodes, of which the truth is known: fast, since letters are counted and not made.

Outages come at times by chance. Letters fail evenly while one lasts, and recover by the first retry after its end.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from retry.analytics.advice.evidence import Cell, Evidence, compute_survival
from retry.analytics.episodes import Ends, Episode
from tests.support.downstream import HOUR_MS, MINUTE_MS, SETTLE_MS, STEPS_MS

DAY_MS = 24 * HOUR_MS
# When each retry is made after the first failure: up to 78 minutes, and up to half a day.
AGES_MS = tuple(accumulate(STEPS_MS))
LONG_AGES_MS = tuple(accumulate((*STEPS_MS, 80 * MINUTE_MS, 160 * MINUTE_MS, 240 * MINUTE_MS, 240 * MINUTE_MS)))
# More than so many are drawn from the normal distribution.
_EXACTLY = 60


class Outage(NamedTuple):
    """Letters that fail first within some time, and the chances of each attempt that they have in common."""

    start_ms: int
    lasts_ms: int
    letters: int
    chances: Sequence[float]


def draw_binomial(chance: random.Random, trials: int, part: float) -> int:
    if trials <= 0 or not 0 < part < 1:
        return trials if part >= 1 else 0
    mean, spread = trials * part, math.sqrt(trials * part * (1 - part))
    if trials > _EXACTLY and min(mean, trials - mean) > _EXACTLY / 2:
        return min(trials, max(0, round(chance.gauss(mean, spread))))
    if part > 0.5:
        return trials - draw_binomial(chance, trials, 1 - part)
    # The gaps between events are geometric: a draw for each event.
    found, place = -1, 0
    while place <= trials:
        found, place = found + 1, place + 1 + int(math.log(1 - chance.random()) / math.log1p(-part))
    return found


def draw_poisson(chance: random.Random, mean: float) -> int:
    """Draw how many events come in a time that brings so many on average; of many by the normal distribution."""
    if mean > _EXACTLY:
        return max(0, round(chance.gauss(mean, math.sqrt(mean))))
    count, at = 0, chance.expovariate(1)
    while at < mean:
        count, at = count + 1, at + chance.expovariate(1)
    return count


def outage_chances(lasts_ms: float, ages_ms: Sequence[int], poison: float = 0.0) -> list[float]:
    """The chance of each attempt of letters that fail evenly over an outage; the part `poison` never recovers."""
    by_then = [min(1.0, age_ms / lasts_ms) * (1 - poison) for age_ms in (0, *ages_ms)]
    return [(after - before) / (1 - before) if before < 1 else 0.0 for before, after in pairwise(by_then)]


def spread_outages(
    chance: random.Random, count: int, days: float, letters: int, lasts: Callable[[], float],
    chances: Callable[[float], Sequence[float]],
) -> list[Outage]:  # fmt: skip
    """So many outages at times by chance."""
    lengths = [max(1_000.0, lasts()) for _ in range(count)]
    found = [Outage(int(chance.random() * days * DAY_MS), int(each), letters, chances(each)) for each in lengths]
    return sorted(found, key=lambda each: each.start_ms)


def independent_letters(
    chance: random.Random, letters: int, chances: Sequence[float], hours: Iterable[int]
) -> list[Outage]:  # fmt: skip
    """Letters that have nothing in common, counted by the hour of their failure, in these hours."""
    at = [*hours]
    counts = [0] * len(at)
    for _ in range(letters):
        counts[int(chance.random() * len(at))] += 1
    return [Outage(hour * HOUR_MS, HOUR_MS - 1, number, chances) for hour, number in zip(at, counts, strict=True) if number]


def episodes(chance: random.Random, outages: Sequence[Outage], ages_ms: Sequence[int] = AGES_MS) -> list[Episode]:
    """List what became of the letters, in runs without a pause of an hour that are cut after six."""
    found: list[Episode] = []
    run_ms, last_ms = 0, -math.inf
    for each in outages:
        if each.start_ms - last_ms > HOUR_MS:
            run_ms = each.start_ms
        last_ms = max(last_ms, each.start_ms + each.lasts_ms)
        ends, left, longest_ms = [], each.letters, 0
        for part, age_ms in zip(each.chances, ages_ms, strict=False):
            recovered = draw_binomial(chance, left, part)
            ends.append(Ends(recovered, left - recovered))
            longest_ms, left = age_ms if recovered else longest_ms, left - recovered
            if not left:
                break
        block = (each.start_ms - run_ms) // (6 * HOUR_MS)
        found.append(Episode(run_ms, block, each.start_ms, each.start_ms + each.lasts_ms, tuple(ends), longest_ms))
    return found


def under_way(start_ms: int, since_ms: int, letters: int, ages_ms: Sequence[int] = AGES_MS) -> Episode:
    """An outage that began so long ago and goes on: what has been retried long enough ago is known to have failed."""
    ends = []
    for before_ms, age_ms in pairwise((0, *ages_ms)):
        reached, failed = (max(0, round(letters * (1 - each / since_ms))) for each in (before_ms, age_ms + SETTLE_MS))
        ends.append(Ends(0, failed, reached - failed))
    while ends and not sum(ends[-1]):
        ends.pop()
    return Episode(start_ms, 0, start_ms, start_ms + since_ms, tuple(ends))


def evidence(found: Sequence[Episode], ages_ms: Sequence[int] = AGES_MS) -> Evidence:
    cells = []
    for attempt, (before_ms, age_ms) in enumerate(pairwise((0, *ages_ms)), 1):
        ends = [each.ends[attempt - 1] for each in found if attempt <= len(each.ends)]
        recovered, failed, unknown = (sum(each[n] for each in ends) for n in range(3))
        if recovered + failed + unknown:
            cells.append(Cell(attempt, age_ms - before_ms, recovered, failed, unknown, age_ms))
    return Evidence.from_cells(cells, found)


def plan_delays(ages_ms: Sequence[int] = AGES_MS) -> list[list[int]]:
    return [[age_ms - before_ms] for before_ms, age_ms in pairwise((0, *ages_ms))]


def recovered_part(outages: Sequence[Outage], attempts: int | None = None) -> float:
    """Which part of the letters recovers within so many attempts, on average."""
    letters = sum(each.letters for each in outages)
    return sum(each.letters * (1 - compute_survival(each.chances[:attempts])[-1]) for each in outages) / letters
