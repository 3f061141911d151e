"""Advice, shares and forecasts from many histories in which letters fail together, held against the truth of each world."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from retry.analytics.advice.choose_attempts import KEEP, Advice, choose
from retry.analytics.advice.evidence import Kind
from retry.analytics.advice.forecast import forecast_week
from retry.analytics.episodes import Ends, Episode, share_of
from tests.support.downstream import HOUR_MS, MINUTE_MS
from tests.support.outages import (
    AGES_MS,
    DAY_MS,
    LONG_AGES_MS,
    Outage,
    episodes,
    evidence,
    independent_letters,
    outage_chances,
    planned,
    recovered_part,
    spread_outages,
    under_way,
)

MONTH_HOURS, DAYS = range(30 * 24), 30
LUCK, LATE = (0.6, 0.5, 0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 1, 0, 0, 0)
LENGTHS: dict[str, Callable[[random.Random], float]] = {
    "exponential": lambda chance: chance.expovariate(1 / (20 * MINUTE_MS)),
    "uniform": lambda chance: chance.uniform(5, 40) * MINUTE_MS,
    "heavy-tailed": lambda chance: 10 * MINUTE_MS * math.exp(chance.gauss(0, 1)),
}
History = Callable[[random.Random], Sequence[Episode]]


class World(NamedTuple):
    """How a history of it comes about, what a number of attempts keeps of the recoveries to come, and when retries are made."""

    history: History
    kept: Callable[[int], float]
    ages_ms: Sequence[int] = AGES_MS


def outages(count: int, letters: int, lengths: str, poison: float = 0.2) -> World:
    def draw(chance: random.Random, number: int) -> list[Outage]:
        lasts = LENGTHS[lengths]
        return spread_outages(
            chance, number, DAYS, letters, lambda: lasts(chance), lambda ms: outage_chances(ms, LONG_AGES_MS, poison)
        )  # fmt: skip

    truth = draw(random.Random(0), 3_000)
    return World(lambda chance: episodes(chance, draw(chance, count), LONG_AGES_MS), lambda n: kept(truth, n), LONG_AGES_MS)


def kept(truth: Sequence[Outage], attempts: int) -> float:
    return recovered_part(truth, attempts) / recovered_part(truth)


def causes(count: int, letters: int) -> World:
    """One cause in ten recovers at the fifth attempt alone."""

    def draw(chance: random.Random, number: int) -> list[Outage]:
        return spread_outages(
            chance, number, DAYS, letters, lambda: HOUR_MS, lambda _: LATE if chance.random() < 0.1 else LUCK
        )  # fmt: skip

    truth = draw(random.Random(0), 3_000)
    return World(lambda chance: episodes(chance, draw(chance, count)), lambda n: kept(truth, n))


def independent(letters: int, chances: Sequence[float], hours: Sequence[int] = MONTH_HOURS) -> World:
    truth = [Outage(0, 0, 1, chances)]
    return World(
        lambda chance: episodes(chance, independent_letters(chance, letters, chances, hours)), lambda n: kept(truth, n),
        AGES_MS[: len(chances)],
    )  # fmt: skip


def unseen(hours: Sequence[int]) -> World:
    """Outages come at times of which the history has nothing, so any attempts that are given up are missed."""
    return independent(3_000, LUCK, hours)._replace(kept=lambda _: 0.0)


def asked_in_outage(minutes: int, before: int) -> World:
    """Somebody asks some minutes into an outage of 2.5 hours, after so many letters that had nothing in common."""
    now_ms = DAYS * DAY_MS

    def history(chance: random.Random) -> Sequence[Episode]:
        older = episodes(chance, independent_letters(chance, before, LUCK, MONTH_HOURS))
        return [*older, under_way(now_ms, minutes * MINUTE_MS, 1_000)]

    return World(history, lambda _: 0.0)


def deployed(part: float, letters: int) -> World:
    """For the last part of the history the fourth attempt helps."""

    def history(chance: random.Random) -> Sequence[Episode]:
        cut = int(len(MONTH_HOURS) * part)
        older = independent_letters(chance, int(letters * part), LUCK, MONTH_HOURS[:cut])
        newer = independent_letters(chance, letters - int(letters * part), (0.6, 0.5, 0, 0.5), MONTH_HOURS[cut:])
        return episodes(chance, [*older, *newer])

    return World(history, lambda n: kept([Outage(0, 0, 1, (0.6, 0.5, 0, 0.5))], n))


def nobody_samples() -> World:
    """Attempts from the second on go where no sample tells what was passed: that they failed is known, and nothing else."""

    def history(chance: random.Random) -> Sequence[Episode]:
        found = episodes(chance, independent_letters(chance, 10_000, (0.5, 0.5, 0.5, 0.5), MONTH_HOURS))
        return [
            each._replace(ends=(each.ends[0], *(Ends(0, end.failed, end.recovered, end.recovered) for end in each.ends[1:])))
            for each in found
        ]

    return World(history, lambda n: kept([Outage(0, 0, 1, (0.5,) * 4)], n), AGES_MS[:4])


_WORKING_HOURS = [day * 24 + hour for day in range(DAYS) for hour in range(8, 20)]
FALSE = {
    **{
        f"{count} {lengths} outages": outages(count, letters, lengths)
        for count, letters in ((1, 10_000), (2, 5_000), (5, 3_000), (10, 2_000), (30, 1_000), (40, 250)) for lengths in LENGTHS
    },
    "10 causes": causes(10, 1_000), "3 causes": causes(3, 3_000), "40 causes": causes(40, 250),
    "a nightly outage": unseen(_WORKING_HOURS), "a weekly outage": unseen(range(6 * 24)),
    **{f"{n} minutes into an outage, after {before}": asked_in_outage(n, before) for n in (20, 60, 120) for before in (0, 3_000)},
    **{f"a deployment at {part}, {n} letters": deployed(part, n) for part in (0.9, 0.98) for n in (3_000, 10_000)},
    "nobody samples": nobody_samples(),
    **{f"{n} letters of one kind": independent(n, (0.98, 1, 1)) for n in (100, 300, 1_000)},
    "a few per cent come late": independent(3_000, (0.5, 0.5, 0.05, 0.05, 0.05)),
}  # fmt: skip
SUPPORTED = {
    "independent letters": independent(3_000, LUCK), "few independent letters": independent(1_000, LUCK),
    "what never recovers": independent(1_000, (0,) * 6), "40 uniform outages": outages(40, 250, "uniform"),
    "40 exponential outages": outages(40, 250, "exponential"),
}  # fmt: skip
QUICK = (
    "30 exponential outages", "10 causes", "a weekly outage", "60 minutes into an outage, after 3000", "100 letters of one kind"
)  # fmt: skip


def advice(world: World, seed: str) -> Advice:
    found = world.history(random.Random(seed))
    return choose(evidence(found, world.ages_ms), planned=planned(world.ages_ms))


def count_false(world: World, name: str, histories: int) -> list[str]:
    """The seeds of histories that are told to give up attempts which matter."""
    seeds = [f"{name}/{n}" for n in range(histories)]
    found = {seed: advice(world, seed) for seed in seeds}
    return [seed for seed, each in found.items() if each.verdict == "fewer" and world.kept(each.attempts) < KEEP]


@pytest.mark.check
@pytest.mark.parametrize("name", QUICK)
def test_attempts_that_matter_are_seldom_given_up(name: str) -> None:
    false = count_false(FALSE[name], name, 40)
    assert len(false) <= 2, false


@pytest.mark.slow
@pytest.mark.parametrize("name", FALSE)
def test_attempts_that_matter_are_given_up_in_no_more_than_one_history_in_twenty(name: str) -> None:
    false = count_false(FALSE[name], name, 200)
    assert len(false) <= 10, false


@pytest.mark.check
@pytest.mark.parametrize("name", SUPPORTED)
def test_a_history_that_supports_advice_gets_it(name: str) -> None:
    found = [advice(SUPPORTED[name], f"{name}/{n}") for n in range(50)]
    refused = [each.reason or each.verdict for each in found if each.verdict != "fewer"]
    assert len(refused) <= 10, refused


SHARES = {
    "single failures": (500, 1, 0.0), "50 outages of 40": (50, 40, 1.0), "5 outages of 2,000": (5, 2_000, 1.0),
    "30 outages of 1,000": (30, 1_000, 1.0),
}  # fmt: skip


@pytest.mark.check
@pytest.mark.parametrize("name", SHARES)
def test_the_interval_of_a_share_holds_the_truth(name: str) -> None:
    count, letters, together = SHARES[name]
    shares = [0.7, 0.7] if not together else [min(1.0, n / 20) for n in range(8, 21)]
    truth, covered = sum(shares) / len(shares), 0
    for seed in range(200):
        chance = random.Random(f"{name}/{seed}")
        counts = []
        for _ in range(count):
            # One outage in three outlasts every retry, and of the others more or less recovers.
            part = 0.0 if together and chance.random() < 1 / 3 else chance.choice(shares)
            counts.append((sum(chance.random() < part for _ in range(min(letters, 40))) * letters / min(letters, 40), letters))
        low, _, high = share_of(counts)
        covered += low <= truth * (2 / 3 if together else 1) <= high
    assert covered >= 186


@pytest.mark.check
@pytest.mark.parametrize("outages_a_month", [0, 3, 10, 40])
def test_the_forecast_holds_the_next_week(outages_a_month: int) -> None:
    covered = {"letters": 0, "recovered": 0}
    for seed in range(100):
        chance = random.Random(f"{outages_a_month}/{seed}")
        month, week = (_draw_days(chance, outages_a_month, days) for days in (DAYS, 7))
        found, truth = episodes(chance, month), episodes(chance, week)
        (total, _) = forecast_week({Kind("shop", "x"): evidence(found)}, 0, DAYS * DAY_MS) if found else ({}, {})
        recovered = sum(end.recovered for each in truth for end in each.ends)
        for name, number in (("letters", sum(each.ends_of(1).ended for each in truth)), ("recovered", recovered)):
            covered[name] += total.get(f"{name}_low", 0) <= number <= total.get(f"{name}_high", 0)
    assert min(covered.values()) >= 90, covered


def _draw_days(chance: random.Random, outages_a_month: int, days: int) -> list[Outage]:
    """Independent letters, and outages that come as they like."""
    count, at = 0, chance.expovariate(1)
    while at < outages_a_month * days / DAYS:
        count, at = count + 1, at + chance.expovariate(1)
    lasts = LENGTHS["exponential"]
    found = spread_outages(
        chance, count, days, 500, lambda: lasts(chance), lambda ms: outage_chances(ms, AGES_MS, 0.1)
    ) + independent_letters(chance, 100 * days // 7, LUCK, range(days * 24))  # fmt: skip
    return sorted(found)


def test_advice_says_what_it_rests_on_and_what_is_missing() -> None:
    few = advice(FALSE["5 uniform outages"], "few")
    assert (few.verdict, few.reason) == ("unknown", "only 5 outages were seen, and 30 are needed")
    assert few.base.startswith("5 outages seen, the longest ")
    assert advice(FALSE["a weekly outage"], "week").reason == "only 24 six-hour parts were seen, and 30 are needed"
    three_weeks = [hour for hour in range(21 * 24) if hour // 24 % 7 != 6]
    assert advice(unseen(three_weeks), "week").reason == "the history has not seen a Wednesday"
    assert advice(FALSE["a nightly outage"], "night").reason == "the history has not seen the hours from 00:00 to 03:00 UTC"
    assert advice(FALSE["60 minutes into an outage, after 3000"], "now").reason.endswith("an outage may be under way")
    assert advice(FALSE["a deployment at 0.98, 10000 letters"], "new").reason.startswith("the newest letters need more attempts")
    assert "nobody knows whether they recovered" in advice(FALSE["nobody samples"], "none").reason
    assert advice(SUPPORTED["independent letters"], "many").base == "3,000 letters in 30 days, each of which counts"
