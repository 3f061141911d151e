"""Bounds and tests beside values that are published or follow from exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.analytics.statistics import (
    Rate,
    chance,
    compute_difference_chance,
    compute_more_often_chance,
    gamma_quantile,
    weight_rates,
)

COUNTS = st.tuples(st.integers(0, 25), st.integers(1, 25)).map(lambda each: (min(each), max(each)))


@pytest.mark.parametrize("events", [0, 1, 2, 5, 10, 50, 1_000])
def test_quantiles_of_gamma_are_the_exact_bounds_of_a_count(events: int) -> None:
    def at_most(count: int, mean: float) -> float:
        return math.fsum(math.exp(n * math.log(mean) - mean - math.lgamma(n + 1)) for n in range(count + 1))

    assert at_most(events, gamma_quantile(events + 1, 0.975)) == pytest.approx(0.025)
    if events:
        assert at_most(events - 1, gamma_quantile(events, 0.025)) == pytest.approx(0.975)


def test_bounds_of_a_single_rate_are_those_of_garwood() -> None:
    # F. Garwood, "Fiducial limits for the Poisson distribution", Biometrika 28 (1936) 437-442.
    low, likely, high = weight_rates([Rate(1.0, 10, 1)])
    assert (round(low, 3), likely, round(high, 3)) == (4.795, 10, 18.39)


def test_of_what_was_seen_nowhere_the_part_that_was_seen_least_decides() -> None:
    assert weight_rates([Rate(0.4, 0, 400), Rate(0.4, 0, 4)]).high == pytest.approx(weight_rates([Rate(0.4, 0, 4)]).high)
    assert weight_rates([]) == (0, 0, 0)


@given(st.lists(st.tuples(st.floats(0.01, 1), COUNTS), min_size=1, max_size=5))
def test_the_bounds_hold_the_sum(parts: list[tuple[float, tuple[int, int]]]) -> None:
    low, likely, high = weight_rates(Rate(weight, *counts) for weight, counts in parts)
    assert 0 <= low <= likely < high
    assert likely == pytest.approx(sum(weight * events / trials for weight, (events, trials) in parts))


@given(COUNTS, COUNTS)
def test_the_exact_test_is_the_sum_of_the_tables(one: tuple[int, int], other: tuple[int, int]) -> None:
    events, trials = one[0] + other[0], one[1] + other[1]
    tables = {
        n: Fraction(math.comb(one[1], n) * math.comb(other[1], events - n), math.comb(trials, events))
        for n in range(max(0, events - other[1]), min(events, one[1]) + 1)
    }
    assert compute_difference_chance(one, other) == pytest.approx(
        float(sum(each for each in tables.values() if each <= tables[one[0]]))
    )
    assert compute_more_often_chance(one, other) == pytest.approx(float(sum(each for n, each in tables.items() if n >= one[0])))


def test_the_lady_tasting_tea() -> None:
    # R. A. Fisher, "The Design of Experiments", 1935: three of four cups, one of four.
    assert compute_more_often_chance((3, 4), (1, 4)) == pytest.approx(17 / 70)


@given(st.integers(0, 500), st.integers(1, 500))
def test_the_interval_holds_the_share_and_narrows(successes: int, trials: int) -> None:
    successes = min(successes, trials)
    low, likely, high = chance(successes, trials)
    assert 0 <= low <= likely + 1e-12 and likely <= high + 1e-12 <= 1 + 1e-9
    wider = chance(successes * 4, trials * 4)
    assert wider.high - wider.low < high - low
