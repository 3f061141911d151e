"""Advice, shares and forecasts from many histories in which letters fail together, held against the truth of each world."""

from __future__ import annotations

import random

import pytest

from retry.analytics.episodes import compute_share
from tests.support.advice_worlds import (
    DAYS,
    FALSE,
    LENGTHS,
    LUCK,
    SUPPORTED,
    WEEK,
    advise,
    forecast_month,
    independent,
    is_held,
    judge_histories,
    unseen,
)  # fmt: skip
from tests.support.outages import (
    AGES_MS,
    Outage,
    draw_poisson,
    episodes,
    independent_letters,
    outage_chances,
    spread_outages,
)  # fmt: skip

QUICK = (
    "30 exponential outages", "10 causes", "a weekly outage", "60 minutes into an outage, after 3000", "100 letters of one kind"
)  # fmt: skip


@pytest.mark.check
@pytest.mark.parametrize("name", QUICK)
def test_attempts_that_matter_are_seldom_given_up(name: str) -> None:
    false = judge_histories(FALSE[name], name, range(40)).false
    assert len(false) <= 2, false


@pytest.mark.slow
@pytest.mark.parametrize("name", FALSE | SUPPORTED)
def test_advice_shares_and_forecasts_are_seldom_wrong_in_any_world(name: str) -> None:
    tally = judge_histories((FALSE | SUPPORTED)[name], name, range(200))
    assert len(tally.false) <= 10, tally.false
    # Of intervals that hold in 95 %, so many miss the truth in 199 of 200 such tests.
    assert len(tally.outside) <= 18, tally.outside
    assert len(tally.missed) <= 20, tally.missed
    assert name not in SUPPORTED or len(tally.silent) <= 40, tally.silent


@pytest.mark.check
@pytest.mark.parametrize("name", SUPPORTED)
def test_a_history_that_supports_advice_gets_it(name: str) -> None:
    silent = judge_histories(SUPPORTED[name], name, range(50)).silent
    assert len(silent) <= 10, silent


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
        low, _, high = compute_share(counts)
        covered += low <= truth * (2 / 3 if together else 1) <= high
    assert covered >= 186


@pytest.mark.check
@pytest.mark.parametrize("outages_a_month", [0, 3, 10, 40])
def test_the_forecast_holds_the_next_week(outages_a_month: int) -> None:
    held = 0
    for seed in range(100):
        chance = random.Random(f"{outages_a_month}/{seed}")
        month, week = (_draw_days(chance, outages_a_month, days) for days in (DAYS, WEEK))
        held += is_held(forecast_month(episodes(chance, month)), episodes(chance, week))
    assert held >= 90


def _draw_days(chance: random.Random, outages_a_month: int, days: int) -> list[Outage]:
    """Independent letters, and outages that come as they like."""
    count, lasts = draw_poisson(chance, outages_a_month * days / DAYS), LENGTHS["exponential"]
    found = spread_outages(
        chance, count, days, 500, lambda: lasts(chance), lambda ms: outage_chances(ms, AGES_MS, 0.1)
    ) + independent_letters(chance, 100 * days // 7, LUCK, range(days * 24))  # fmt: skip
    return sorted(found)


def test_advice_says_what_it_rests_on_and_what_is_missing() -> None:
    few = advise(FALSE["5 uniform outages"], "few")
    assert (few.verdict, few.reason) == ("unknown", "only 5 outages were seen, and 30 are needed")
    assert few.base.startswith("5 outages seen, the longest ")
    assert advise(FALSE["a weekly outage"], "week").reason == "only 24 six-hour parts were seen, and 30 are needed"
    three_weeks = [hour for hour in range(21 * 24) if hour // 24 % 7 != 6]
    assert advise(unseen(three_weeks), "week").reason == "the history has not seen a Wednesday"
    assert advise(FALSE["a nightly outage"], "night").reason == "the history has not seen the hours from 00:00 to 03:00 UTC"
    assert advise(FALSE["60 minutes into an outage, after 3000"], "now").reason.endswith("an outage may be under way")
    assert advise(FALSE["a deployment at 0.98, 10000 letters"], "new").reason.startswith("the newest letters need more attempts")
    for name in ("later attempts go where nobody samples", "letters name a group that never reads"):
        assert "nobody knows whether they recovered" in advise(FALSE[name], "none").reason
    few = advise(independent(1_000, LUCK), "some").reason
    assert few.startswith("a deployment of late would not show in 1,000 letters, and 1,")
    assert advise(SUPPORTED["independent letters"], "many").base == "3,000 letters in 30 days, each of which counts"
