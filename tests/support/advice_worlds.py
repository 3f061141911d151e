"""Worlds that histories are drawn from, and what advice, shares and forecasts make of them; `python -m` prints the table.

What an operator may meet: outages, causes that only a late attempt cures, times that were not seen, questions in the middle of an
outage, deployments, groups that nobody samples; and histories that support advice.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from retry.analytics.advice.choose_attempts import KEEP, Advice, choose
from retry.analytics.advice.evidence import Kind
from retry.analytics.advice.forecast import forecast_week
from retry.analytics.episodes import Ends, Episode, compute_share
from tests.support.downstream import HOUR_MS, MINUTE_MS
from tests.support.outages import (
    AGES_MS,
    DAY_MS,
    LONG_AGES_MS,
    Outage,
    draw_poisson,
    episodes,
    evidence,
    independent_letters,
    outage_chances,
    plan_delays,
    recovered_part,
    spread_outages,
    under_way,
)

MONTH_HOURS, DAYS, WEEK = range(30 * 24), 30, 7
LUCK, LATE = (0.6, 0.5, 0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 1, 0, 0, 0)
LENGTHS: dict[str, Callable[[random.Random], float]] = {
    "exponential": lambda chance: chance.expovariate(1 / (20 * MINUTE_MS)),
    "uniform": lambda chance: chance.uniform(5, 40) * MINUTE_MS,
    "heavy-tailed": lambda chance: 10 * MINUTE_MS * math.exp(chance.gauss(0, 1)),
}
History = Callable[[random.Random], Sequence[Episode]]


class World(NamedTuple):
    """Histories of one kind, of which the truth is known.

    Attributes:
      history: draws one.
      kept: what a number of attempts keeps of the recoveries to come.
      ages_ms: when retries are made.
      week: draws the week that follows; None where it is nothing like the history, or nobody says.
      share: which part of the letters recovers; None like `week`.
    """

    history: History
    kept: Callable[[int], float]
    ages_ms: Sequence[int] = AGES_MS
    week: History | None = None
    share: float | None = None


def outages(count: int, letters: int, lengths: str, poison: float = 0.2) -> World:
    def draw(chance: random.Random, number: int, days: int = DAYS) -> list[Outage]:
        lasts = LENGTHS[lengths]
        return spread_outages(
            chance, number, days, letters, lambda: lasts(chance), lambda ms: outage_chances(ms, LONG_AGES_MS, poison)
        )  # fmt: skip

    return _make_world(count, draw, LONG_AGES_MS)


def _make_world(count: int, draw: Callable[..., list[Outage]], ages_ms: Sequence[int]) -> World:
    truth = draw(random.Random(0), 3_000)
    return World(
        lambda chance: episodes(chance, draw(chance, count), ages_ms), lambda n: compute_kept(truth, n), ages_ms,
        lambda chance: episodes(chance, draw(chance, draw_poisson(chance, count * WEEK / DAYS), WEEK), ages_ms),
        recovered_part(truth),
    )  # fmt: skip


def compute_kept(truth: Sequence[Outage], attempts: int) -> float:
    whole = recovered_part(truth)
    return recovered_part(truth, attempts) / whole if whole else 1.0


def causes(count: int, letters: int) -> World:
    """One cause in ten recovers at the fifth attempt alone."""

    def draw(chance: random.Random, number: int, days: int = DAYS) -> list[Outage]:
        return spread_outages(
            chance, number, days, letters, lambda: HOUR_MS, lambda _: LATE if chance.random() < 0.1 else LUCK
        )  # fmt: skip

    return _make_world(count, draw, AGES_MS)


def independent(letters: int, chances: Sequence[float], hours: Sequence[int] = MONTH_HOURS) -> World:
    truth = [Outage(0, 0, 1, chances)]
    return World(
        lambda chance: episodes(chance, independent_letters(chance, letters, chances, hours)), lambda n: compute_kept(truth, n),
        AGES_MS[: len(chances)],
        lambda chance: episodes(
            chance, independent_letters(chance, draw_poisson(chance, letters * WEEK / DAYS), chances, range(WEEK * 24))
        ),
        recovered_part(truth),
    )  # fmt: skip


def unseen(hours: Sequence[int]) -> World:
    """Outages come at times of which the history has nothing, so any attempts that are given up are missed."""
    return independent(3_000, LUCK, hours)._replace(kept=lambda _: 0.0, week=None, share=None)


def asked_in_outage(minutes: int, before: int) -> World:
    """Somebody asks some minutes into an outage of 2.5 hours, after so many letters that had nothing in common."""
    now_ms = DAYS * DAY_MS

    def history(chance: random.Random) -> Sequence[Episode]:
        older = episodes(chance, independent_letters(chance, before, LUCK, MONTH_HOURS))
        return [*older, under_way(now_ms, minutes * MINUTE_MS, 1_000)]

    return World(history, lambda _: 0.0)


def deployed_world(part: float, letters: int) -> World:
    """Make a world in which the fourth attempt helps for the last part of the history."""

    def history(chance: random.Random) -> Sequence[Episode]:
        cut = int(len(MONTH_HOURS) * part)
        older = independent_letters(chance, int(letters * part), LUCK, MONTH_HOURS[:cut])
        newer = independent_letters(chance, letters - int(letters * part), (0.6, 0.5, 0, 0.5), MONTH_HOURS[cut:])
        return episodes(chance, [*older, *newer])

    return World(history, lambda n: compute_kept([Outage(0, 0, 1, (0.6, 0.5, 0, 0.5))], n))


def nobody_samples(watched: int) -> World:
    """Attempts after so many go where no sample tells what was passed: that they failed is known, and nothing else.

    After one where a rule sends later attempts to a topic whose group is not sampled; after none where letters name a group that
    never reads the retries.
    """

    def history(chance: random.Random) -> Sequence[Episode]:
        found = episodes(chance, independent_letters(chance, 10_000, (0.5, 0.5, 0.5, 0.5), MONTH_HOURS))
        return [
            each._replace(
                ends=tuple(
                    end if n < watched else Ends(0, end.failed, end.recovered, end.recovered) for n, end in enumerate(each.ends)
                )
            )
            for each in found
        ]

    return World(history, lambda n: compute_kept([Outage(0, 0, 1, (0.5,) * 4)], n), AGES_MS[:4])


_WORKING_HOURS = [day * 24 + hour for day in range(DAYS) for hour in range(8, 20)]
FALSE = {
    **{
        f"{count} {lengths} outages": outages(count, letters, lengths)
        for count, letters in ((1, 10_000), (2, 5_000), (5, 3_000), (10, 2_000), (30, 1_000), (40, 250)) for lengths in LENGTHS
    },
    "10 causes": causes(10, 1_000), "3 causes": causes(3, 3_000), "40 causes": causes(40, 250),
    "a nightly outage": unseen(_WORKING_HOURS), "a weekly outage": unseen(range(6 * 24)),
    **{f"{n} minutes into an outage, after {before}": asked_in_outage(n, before) for n in (20, 60, 120) for before in (0, 3_000)},
    **{f"a deployment at {part}, {n} letters": deployed_world(part, n) for part in (0.9, 0.98) for n in (1_000, 3_000, 10_000)},
    "later attempts go where nobody samples": nobody_samples(1), "letters name a group that never reads": nobody_samples(0),
    **{f"{n} letters of one kind": independent(n, (0.98, 1, 1)) for n in (100, 300, 1_000)},
    "a few per cent come late": independent(3_000, (0.5, 0.5, 0.05, 0.05, 0.05)),
}  # fmt: skip
SUPPORTED = {
    "independent letters": independent(3_000, LUCK), "few independent letters": independent(2_000, LUCK),
    "what never recovers": independent(1_000, (0,) * 6), "40 uniform outages": outages(40, 250, "uniform"),
    "40 exponential outages": outages(40, 250, "exponential"),
}  # fmt: skip


class Tally(NamedTuple):
    """Seeds by what became of their histories.

    Attributes:
      false: told to give up attempts that matter.
      silent: not told to give up any, each with the reason or the verdict.
      outside: the true share of letters that recover lies outside its interval.
      missed: letters or recoveries of the next week are outside their forecast.
    """

    false: list[str]
    silent: list[str]
    outside: list[str]
    missed: list[str]


def judge_histories(world: World, name: str, numbers: Sequence[int]) -> Tally:
    """Draw the histories of these numbers, and hold what is made of them against the truth."""
    tally = Tally([], [], [], [])
    for seed in (f"{name}/{number}" for number in numbers):
        chance = random.Random(seed)
        found = world.history(chance)
        known = evidence(found, world.ages_ms)
        advice = choose(known, planned=plan_delays(world.ages_ms))
        if advice.verdict != "fewer":
            tally.silent.append(f"{seed}: {advice.reason or advice.verdict}")
        elif world.kept(advice.attempts) < KEEP:
            tally.false.append(seed)
        if world.share is not None:
            low, _, high = compute_share(
                [(sum(end.recovered for end in each.ends), each.ends_of(1).ended) for each in known.episodes]
            )
            if not low <= world.share <= high:
                tally.outside.append(seed)
        if world.week is not None and not is_held(forecast_month(found), world.week(chance)):
            tally.missed.append(seed)
    return tally


def advise(world: World, seed: str) -> Advice:
    return choose(evidence(world.history(random.Random(seed)), world.ages_ms), planned=plan_delays(world.ages_ms))


def forecast_month(found: Sequence[Episode]) -> dict[str, float]:
    """Forecast the week after a month of these episodes, in all."""
    return forecast_week({Kind("shop", "x"): evidence(found)}, 0, DAYS * DAY_MS)[0] if found else {}


def is_held(forecast: dict[str, float], week: Sequence[Episode]) -> bool:
    """Whether a week's letters, and its recoveries, are as many as was forecast."""
    letters, recovered = sum(each.ends_of(1).ended for each in week), sum(end.recovered for each in week for end in each.ends)
    held = (
        forecast.get(f"{name}_low", 0) <= number <= forecast.get(f"{name}_high", 0)
        for name, number in (("letters", letters), ("recovered", recovered))
    )
    return all(held)


def main(histories: int, chosen: Sequence[str]) -> None:
    """Print a row of a table for each world."""
    print("| world | histories | told to give up attempts | of these falsely | share outside | next week outside |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, world in (FALSE | SUPPORTED).items():
        if not chosen or any(part in name for part in chosen):
            tally = judge_histories(world, name, range(histories))
            outside = len(tally.outside) if world.share is not None else "–"
            missed = len(tally.missed) if world.week is not None else "–"
            advised = histories - len(tally.silent)
            print(f"| {name} | {histories} | {advised} | {len(tally.false)} | {outside} | {missed} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
