"""Fewer attempts and other delays are advised only where the counts speak for it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.analytics.advice.choose_attempts import KEEP, choose, round_delay
from retry.analytics.advice.evidence import Cell, Evidence, compute_survival
from retry.analytics.advice.prospect import Prospect
from retry.analytics.advice.replay import Observed


def evidence(*counts: tuple[int, int], delay_ms: int = 1_000) -> Evidence:
    """Recovered and failed of each attempt."""
    return Evidence.from_cells(Cell(attempt, delay_ms, *count) for attempt, count in enumerate(counts, 1))


def make_evidence(chances: Sequence[float], letters: int, seed: int) -> Evidence:
    """Letters that were retried up to the last chance."""
    chosen = random.Random(seed)
    cells, left = [], letters
    for attempt, likely in enumerate(chances, 1):
        recovered = sum(chosen.random() < likely for _ in range(left))
        cells.append(Cell(attempt, 1_000, recovered, left - recovered))
        left -= recovered
    return Evidence.from_cells(cells)


def test_attempts_that_bring_nothing_are_left_out() -> None:
    found = choose(evidence((500, 500), (250, 250), (0, 250), (0, 250), (0, 250)))
    assert (found.verdict, found.attempts_now, found.attempts) == ("fewer", 5, 2)
    assert found.recoveries == found.recoveries_now == 750
    assert (found.retries_now, found.retries, found.saved) == (2250, 1500, 750)
    assert KEEP <= found.kept_low < 1


def test_attempts_that_bring_something_are_kept() -> None:
    found = choose(evidence((500, 500), (250, 250), (50, 200)))
    assert (found.verdict, found.attempts, found.missing) == ("keep", 3, 0)


def test_too_few_letters_are_said_to_be_too_few() -> None:
    found = choose(evidence((30, 10), (0, 10), (0, 10)))
    assert (found.verdict, found.missing, found.changes) == ("unknown", 60, False)
    assert choose(Evidence({})).missing == 100


def test_where_the_last_attempts_were_seen_too_seldom_it_says_how_many_are_missing() -> None:
    few = ((80, 40), (0, 40))
    found = choose(evidence(*few))
    assert found.verdict == "keep"
    assert found.missing > 0
    more = found.missing * 2
    assert choose(evidence((80 + more * 2, 40 + more), (0, 40 + more))).verdict == "fewer"


def test_of_what_never_recovers_one_attempt_stays_as_a_probe() -> None:
    found = choose(evidence(*[(0, 500)] * 6))
    assert (found.verdict, found.attempts, found.recoveries_now, found.saved) == ("fewer", 1, 0, 2500)
    assert choose(evidence(*[(0, 200)] * 6)).verdict == "keep"


def test_who_wants_every_recovery_gets_no_fewer_attempts() -> None:
    assert choose(evidence((500, 500), (0, 500), (0, 500)), keep=1.0).verdict == "keep"


def test_a_letter_whose_end_is_not_known_counts_neither_way() -> None:
    known = [Cell(1, 1_000, 500, 500), Cell(2, 1_000, 0, 500), Cell(3, 1_000, 0, 500)]
    waiting = [cell._replace(unknown=5_000) for cell in known]
    assert choose(Evidence.from_cells(waiting)).kept_low == choose(Evidence.from_cells(known)).kept_low


def test_an_attempt_that_letters_only_wait_for_may_recover_them_all() -> None:
    waiting = [Cell(1, 1_000, 600, 400), Cell(2, 1_000, 0, 400), Cell(3, 1_000, 0, 295), Cell(4, 1_000, 0, 0, unknown=295)]
    found = choose(Evidence.from_cells(waiting))
    assert (found.verdict, found.attempts_now, found.attempts) == ("keep", 4, 4)
    # The part that comes to the last attempt is known no better than ± 0.03.
    assert Prospect(Evidence.from_cells(waiting)).kept_low(3, KEEP) == pytest.approx(0.56 / (0.56 + 0.43), abs=0.01)


def test_many_failures_of_early_attempts_do_not_hide_a_late_one_that_was_hardly_made() -> None:
    counts = ((600, 400), (0, 400), (0, 400), (0, 400))
    assert choose(evidence(*counts, (0, 4))).verdict == "keep"
    assert choose(evidence(*counts, (0, 400))).attempts == 1


def test_a_delay_that_letters_only_wait_for_counts_for_as_many_as_wait() -> None:
    known = [Cell(1, 1_000, 600, 400), Cell(2, 1_000, 0, 400)]
    assert choose(Evidence.from_cells(known)).attempts == 1
    assert choose(Evidence.from_cells([*known, Cell(2, 1_400, 0, 0, unknown=20)])).attempts == 1
    assert choose(Evidence.from_cells([*known, Cell(2, 3_600_000, 0, 0, unknown=20)])).verdict == "keep"


def test_what_a_young_policy_plans_and_nobody_has_seen_may_recover_all() -> None:
    seen = evidence((600, 400), (0, 400), (0, 400))
    assert choose(seen).attempts == choose(seen, planned=[[1_000], [1_100], [900]]).attempts == 1
    more = choose(seen, planned=[[1_000]] * 5)
    assert (more.verdict, more.attempts_now, more.attempts) == ("keep", 5, 5)
    later = choose(seen, planned=[[1_000], [1_000], [3_600_000]])
    assert (later.verdict, later.attempts) == ("keep", 3)
    # The present policy makes two attempts; what the third brought does not matter any more.
    assert choose(evidence((600, 400), (0, 400), (400, 0)), planned=[[1_000]] * 2).attempts == 1


def test_new_delays_of_a_young_policy_count_for_as_many_as_it_gives_them_to() -> None:
    old = [Cell(1, 1_000, 600, 400), Cell(2, 1_000, 0, 4_000)]
    young = [*old, Cell(2, 3_600_000, 0, 4, unknown=3)]
    assert choose(Evidence.from_cells(young)).attempts == 1
    assert choose(Evidence.from_cells(young), planned=[[1_000], [3_600_000]]).verdict == "keep"


def test_the_more_delays_there_are_to_choose_from_the_clearer_one_must_be() -> None:
    cells = [Cell(1, 1_000, 130, 270), Cell(1, 2_000, 180, 220)]
    assert choose(Evidence.from_cells(cells)).delays_ms == {1: 2_000}
    assert choose(Evidence.from_cells(cells), comparisons=1_000).verdict == "keep"


def test_a_delay_is_proposed_where_it_is_clearly_better_and_the_shortest_of_the_best() -> None:
    cells = [
        Cell(1, 500, 10, 190),
        Cell(1, 1_000, 20, 180),
        Cell(1, 2_000, 180, 20),
        Cell(1, 4_000, 182, 18),
        Cell(2, 4_000, 100, 200),
    ]
    found = choose(Evidence.from_cells(cells))
    assert (found.verdict, found.delays_ms) == ("delays", {1: 2_000})
    assert found.recoveries > found.recoveries_now


def test_a_delay_that_is_better_by_chance_is_not_proposed() -> None:
    assert choose(Evidence.from_cells([Cell(1, 500, 90, 110), Cell(1, 1_000, 110, 90)])).verdict == "keep"
    assert choose(Evidence.from_cells([Cell(1, 500, 50, 150), Cell(1, 1_000, 20, 0)])).verdict == "keep"


@pytest.mark.parametrize(("chances", "fewer"), [
    ((0.6, 0.5, 0.3, 0.0, 0.0, 0.0), True), ((0.9, 0.0, 0.0), True), ((0.3,) * 8, False), ((0.0,) * 8, True),
    ((0.0, 0.0, 0.5, 0.0), True), ((0.5, 0.2, 0.05, 0.001, 0.001), True), ((0.5, 0.0, 0.0, 0.0, 0.5), False),
])  # fmt: skip
def test_advice_from_generated_letters_keeps_the_recoveries_of_the_truth(chances: Sequence[float], fewer: bool) -> None:
    before, after = 0.0, 0.0
    for seed in range(4):
        found = choose(make_evidence(chances, 2_000, seed))
        left = compute_survival(chances)
        recovers, kept = 1 - left[-1], 1 - left[found.attempts]
        assert kept >= 0.99 * recovers
        before, after = before + sum(left[:-1]), after + sum(left[: found.attempts])
    assert (after < before) == fewer


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(100, 500), st.integers(0, 1 << 32))
def test_what_is_kept_is_never_less_than_is_said(chances: list[float], letters: int, seed: int) -> None:
    seen = make_evidence(chances, letters, seed)
    lows = [Prospect(seen).kept_low(attempts, KEEP) for attempts in range(1, seen.attempts + 1)]
    assert all(0 <= low <= 1 for low in lows)
    found = choose(seen)
    assert 1 <= found.attempts <= found.attempts_now
    assert found.retries <= found.retries_now + 1e-6
    assert found.verdict != "fewer" or found.recoveries >= KEEP * found.recoveries_now - 1e-6


def test_a_better_delay_is_advised_as_people_write_it_and_one_that_the_policy_has_is_not() -> None:
    cells = [Cell(1, 10_000, 100, 900), Cell(1, 108_229, 900, 100)]
    assert choose(Evidence.from_cells(cells)).delays_ms == {1: 120_000}
    assert choose(Evidence.from_cells(cells)).recoveries == pytest.approx(1_800)
    assert choose(Evidence.from_cells(cells), planned=[[120_000, 120_000]]).verdict == "keep"
    assert choose(Evidence.from_cells(cells), planned=[[10_000, 120_000]]).delays_ms == {1: 120_000}


@given(st.integers(1, 3 * 86_400_000))
def test_a_rounded_delay_counts_as_observed_where_the_delay_was(delay_ms: int) -> None:
    seen = Observed(Evidence.from_cells([Cell(1, delay_ms, 50, 50, 0, delay_ms)]))
    near = round_delay(delay_ms)
    assert 1 / 1.16 <= near / delay_ms <= 1.16
    assert seen.estimate_retry(1, near, near, 0).is_observed
    assert round_delay(near) == near
