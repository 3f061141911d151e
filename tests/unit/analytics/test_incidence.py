"""Curves of what recovers, is parked or expires, beside exact fractions and beside another's implementation."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retry.analytics.statistics import Incidence, Step, Z, compute_curves
from tests.fixtures.make_incidence import FILE, WAYS

Lives = Sequence[tuple[int, str]]
LIVES = st.lists(st.tuples(st.integers(1, 8), st.sampled_from([*WAYS, "undecided"])), min_size=1, max_size=40)


def steps(lives: Lives) -> tuple[list[int], list[Step]]:
    """The times at which anything was decided, and what."""
    times = sorted({time for time, way in lives if way in WAYS})
    return times, [
        Step(sum(each >= time for each, _ in lives), Counter(way for each, way in lives if each == time and way in WAYS))
        for time in times
    ]


def curves(lives: Lives) -> tuple[list[int], list[Incidence]]:
    times, counted = steps(lives)
    return times, list(compute_curves(counted, WAYS))


def exact(lives: Lives) -> dict[tuple[int, str], tuple[Fraction, Fraction]]:
    """Part and variance by time and way, as the definition says, in fractions."""
    times, counted = steps(lives)
    before, failing, parts = [], Fraction(1), dict.fromkeys(WAYS, Fraction(0))
    found: dict[tuple[int, str], tuple[Fraction, Fraction]] = {}
    reached: list[dict[str, Fraction]] = []
    for time, (n, events) in zip(times, counted, strict=True):
        before.append(failing)
        parts = {way: parts[way] + failing * Fraction(events[way], n) for way in WAYS}
        reached.append(parts)
        failing *= 1 - Fraction(events.total(), n)  # type: ignore[attr-defined]
        for way in WAYS:
            variance = Fraction(0)
            for past, then, (m, decided) in zip(reached, before, counted, strict=False):
                left, own, all_ = parts[way] - past[way], decided[way], sum(decided.values())
                variance += left**2 * Fraction(all_, m * (m - all_)) if left else 0
                variance += then**2 * Fraction(own * (m - own), m**3) - 2 * left * then * Fraction(own, m**2)
            found[time, way] = parts[way], variance
        assert sum(parts.values()) + failing == 1
    return found


@given(LIVES)
@example([(1, "expired"), (1, "undecided"), (2, "expired"), (2, "expired"), (2, "expired")])
def test_the_curves_are_those_of_the_definition_in_fractions(lives: Lives) -> None:
    expected = exact(lives)
    for time, found in zip(*curves(lives), strict=True):
        assert sum(part.likely for part in found.parts.values()) + found.failing.likely == pytest.approx(1, abs=1e-12)
        for way in WAYS:
            part, variance = expected[time, way]
            low, likely, high = found.parts[way]
            assert likely == pytest.approx(float(part), abs=1e-12)
            assert 0 <= low <= likely <= high <= 1
            if 0 < part < 1 and variance > 1e-9:
                assert _standard_error(found, way) == pytest.approx(float(variance) ** 0.5, rel=1e-6)


def test_parked_letters_can_no_longer_recover() -> None:
    # Of 100 letters 20 are parked at the first failure, 40 recover at the first retry, of 40 all others at the second.
    (*_, last) = compute_curves([Step(100, {"parked": 20}), Step(80, {"recovered": 40}), Step(40, {"recovered": 40})], WAYS)
    assert [last.parts[way].likely for way in WAYS] == pytest.approx([0.8, 0.2, 0])
    assert last.failing.likely == 0


@given(st.lists(st.integers(1, 40), min_size=3, max_size=3), st.floats(1, 50))
@example([1, 17, 1], 1.1)
@example([1, 1, 1], 3.1)
def test_no_part_is_less_than_nothing_where_several_letters_count_as_one(counts: list[int], effect: float) -> None:
    events = dict(zip(WAYS, counts, strict=True))
    (all_decided,) = compute_curves([Step(sum(counts), events)], WAYS, effect)
    assert all_decided.failing.likely == 0
    for each in (*all_decided.parts.values(), all_decided.failing):
        assert 0 <= each.low <= each.likely <= each.high <= 1


@given(st.lists(st.integers(0, 40), min_size=6, max_size=6).filter(lambda counts: any(counts[3:])), st.floats(1, 50))
@example([7, 64, 0, 2, 1, 0], 5.057953700839281)
def test_bounds_are_those_of_as_many_letters_as_they_tell_no_more_than(counts: list[int], effect: float) -> None:
    """At the last step all are decided, of whom as many as `effect` tell no more than one."""
    first, last = (dict(zip(WAYS, each, strict=True)) for each in (counts[:3], counts[3:]))
    steps = [Step(sum(counts), first), Step(sum(last.values()), last)]
    (*_, one), (*_, many) = compute_curves(steps, WAYS), compute_curves(steps, WAYS, effect)
    for way in WAYS:
        alone, together = one.parts[way], many.parts[way]
        assert together.likely == alone.likely
        assert together.low <= alone.low + 1e-9 and together.high >= alone.high - 1e-9
        # What is less has lost its digits.
        if 1e-9 < alone.likely < 1 - 1e-9 and together.low > 1e-100:
            assert _standard_error(many, way) == pytest.approx(_standard_error(one, way) * effect**0.5, rel=1e-6)


def test_without_other_ways_it_is_the_curve_of_kaplan_and_meier() -> None:
    # Freireich et al. 1963, 6-mercaptopurine, 21 patients: the textbook example.
    times = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
    events = [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    lives = [(time, "recovered" if event else "undecided") for time, event in zip(times, events, strict=True)]
    curve = dict(zip(*curves(lives), strict=True))
    expected = {6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}
    assert {week: round(curve[week].failing.likely, 3) for week in expected} == expected
    assert (round(curve[6].failing.low, 2), round(curve[6].failing.high, 2)) == (0.62, 0.95)


def test_where_all_go_one_way_the_interval_is_wilsons() -> None:
    ((none,), (every,)) = (list(compute_curves([Step(10, {way: 10})], WAYS)) for way in ("parked", "recovered"))
    assert (none.parts["recovered"].low, round(none.parts["recovered"].high, 4)) == (0, 0.2775)
    assert (round(every.parts["recovered"].low, 4), every.parts["recovered"].high) == (0.7225, 1)


@pytest.mark.parametrize("case", json.loads(FILE.read_text())["cases"], ids=lambda case: f"{len(case['lives'])} letters")
def test_they_are_those_of_lifelines_where_no_two_ways_fall_on_one_time(case: dict[str, Any]) -> None:
    times, found = curves([(time, way) for time, way in case["lives"]])
    bounded = 0
    for way in WAYS:
        assert [time for time, *_ in case["parts"][way]] == times
        for each, (_, part, low, high) in zip(found, case["parts"][way], strict=True):
            assert each.parts[way].likely == pytest.approx(part, abs=1e-9)
            if low is not None and 1e-9 < part < 1 - 1e-9:
                # Its quantile of the normal distribution has more digits.
                assert (each.parts[way].low, each.parts[way].high) == pytest.approx((low, high), abs=1e-7)
                bounded += 1
    assert bounded


def _standard_error(found: Incidence, way: str) -> float:
    """Out of the lower bound, which is the part to the power of exp(z · SE / (part · |log part|))."""
    low, part, _ = found.parts[way]
    return math.log(math.log(low) / math.log(part)) * part * abs(math.log(part)) / Z if low > 0 else math.inf
