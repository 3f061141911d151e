"""Steps are judged by the exact bound: a consumer that fails is found early, and one that recovers is left alone."""

from __future__ import annotations

from fractions import Fraction
from math import comb
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.delay_queue import ramp_records
from retry.delay_queue.action_records import Tally
from retry.delay_queue.ramp_records import Ramp, Step, StepTally
from retry.delivery.ramp import (
    StepCounts,
    compute_chance_of_at_most,
    compute_upper_bound,
    count_recovering,
    count_steps,
    explain_hold,
)

LETTERS = 20_000
RUNS = 100


def exactly(successes: int, trials: int, part: Fraction) -> Fraction:
    """The chance of no more than so many successes, in whole numbers."""
    return sum((comb(trials, k) * part**k * (1 - part) ** (trials - k) for k in range(successes + 1)), Fraction(0))


@given(st.integers(1, 60), st.integers(0, 60), st.integers(1, 99))
def test_few_successes_are_as_likely_as_fractions_say(trials: int, successes: int, percent: int) -> None:
    successes, part = min(successes, trials), Fraction(percent, 100)
    assert compute_chance_of_at_most(successes, trials, float(part)) == pytest.approx(
        float(exactly(successes, trials, part)), rel=1e-9, abs=1e-300
    )


@given(st.integers(1, 60), st.integers(0, 59))
def test_the_bound_is_where_so_few_successes_become_too_rare(trials: int, successes: int) -> None:
    successes = min(successes, trials - 1)
    bound = compute_upper_bound(successes, trials)
    assert successes / trials < bound < 1
    assert float(exactly(successes, trials, Fraction(bound))) == pytest.approx(0.05, rel=1e-6)


def test_of_millions_the_bound_is_close_to_the_part_that_recovered() -> None:
    assert 0.9 < compute_upper_bound(1_800_000, 2_000_000) < 0.9004
    assert compute_upper_bound(2_000_000, 2_000_000) == 1.0
    assert compute_upper_bound(0, 1) == pytest.approx(0.95)
    assert (compute_chance_of_at_most(0, 5, 0.0), compute_chance_of_at_most(4, 5, 1.0), compute_chance_of_at_most(5, 5, 1.0)) == (
        1.0,
        0.0,
        1.0,
    )


def held_at(recovers: float, seed: int, keep: float = 0.9) -> tuple[int | None, list[StepCounts]]:
    """A ramp whose letters recover with this chance: at which step it is held, and what it has come to."""
    random, sizes = Random(seed), ramp_records.compute_steps(LETTERS)
    ramp, counts = Ramp(keep, sizes, 0, 0), [StepCounts(size) for size in sizes]
    for n, size in enumerate(sizes):
        counts[n] = StepCounts(size, size, size, size, sum(random.random() >= recovers for _ in range(size)))
        if explain_hold(ramp, counts, Step(n)):
            return n, counts
    return None, counts


def test_a_consumer_that_fails_thirty_percent_is_held_at_a_step_that_the_bound_explains() -> None:
    for seed in range(RUNS):
        step, counts = held_at(0.7, seed)
        assert step is not None
        assert sum(each.members for each in counts[: step + 1]) <= 278, "most of them by 28 letters, all before a thousand"
        assert compute_upper_bound(*count_recovering(counts, Step(), step)) < 0.9
        assert all(compute_upper_bound(*count_recovering(counts, Step(), n)) >= 0.9 for n in range(step))


def test_a_consumer_that_recovers_ninety_five_percent_is_hardly_ever_stopped() -> None:
    stopped = [seed for seed in range(RUNS) if held_at(0.95, seed)[0] is not None]
    assert len(stopped) <= 5


def test_why_it_is_held_is_told_in_numbers() -> None:
    ramp, counts = Ramp(0.9, [1, 2, 5], 0, 0), [StepCounts(1, 1, 1, 1, 0), StepCounts(2, 2, 2, 2, 2), StepCounts(5)]
    told = "step 2 of 3: 2 of 3 letters failed again, so at most 86.5% recover, and 90.0% are to"
    assert explain_hold(ramp, counts, Step(1)) == told
    assert explain_hold(ramp, counts, Step()) is None
    # What was before a hold that an operator has ended does not count, nor what is not put.
    assert explain_hold(ramp, counts, Step(2, 2)) is None
    assert explain_hold(ramp, [*counts[:2], StepCounts(5, 5, 5, 5, 1)], Step(2, 2)) is None


def test_a_part_of_a_step_says_enough_only_where_it_is_large() -> None:
    ramp = Ramp(0.9, [5_000], 0, 0)
    assert explain_hold(ramp, [StepCounts(5_000, 999, 999, 999, 999)], Step()) is None
    assert explain_hold(ramp, [StepCounts(5_000, 1_000, 1_000, 0, 150)], Step()) is not None
    assert explain_hold(ramp, [StepCounts(5_000, 1_000, 1_000, 0, 110)], Step()) is None


def test_of_a_step_that_was_held_and_goes_on_only_the_rest_counts() -> None:
    ramp, at = Ramp(0.9, [5_000], 0, 0), Step(0, 0, (1_500, 300))
    assert count_recovering([StepCounts(5_000, 2_400, 2_400, 0, 320)], at, 0) == (880, 900)
    assert explain_hold(ramp, [StepCounts(5_000, 2_400, 2_400, 0, 600)], at) is None, "too few to say anything"
    assert explain_hold(ramp, [StepCounts(5_000, 2_500, 2_500, 0, 320)], at) is None
    assert explain_hold(ramp, [StepCounts(5_000, 2_500, 2_500, 0, 450)], at) is not None


def test_steps_are_counted_over_all_shards() -> None:
    ramp = Ramp(0.9, [2, 3], 0, 0)
    tallies = [Tally(steps=[StepTally(1, 1, 1)]), Tally(steps=[StepTally(1, 0, 0), StepTally(3, 2, 1)]), Tally()]
    first, second = count_steps(ramp, tallies, [0, 1])
    assert (first, second) == (StepCounts(2, 2, 1, 1, 0), StepCounts(3, 3, 2, 1, 1))
    assert (first.is_put, first.is_sent, second.is_put, second.is_sent) == (True, True, True, False)
    assert (second.recovered, StepCounts(5).is_put) == (1, False)


@given(st.integers(0, 3_000_000))
def test_steps_have_all_letters_and_grow(members: int) -> None:
    sizes = ramp_records.compute_steps(members)
    assert sum(sizes) == members
    whole = [*ramp_records.DRAWN_STEPS, *(5_000 * 5**n for n in range(10))]
    assert sizes[:-1] == whole[: len(sizes)][: max(0, len(sizes) - 1)]
    assert all(0 < size <= most for size, most in zip(sizes, whole, strict=False))


def test_the_step_that_is_open_is_never_beyond_the_last() -> None:
    ramp = Ramp(0.9, [1, 2, 4], 10_000, 120_000)
    assert [ramp.find_open_step(passed) for passed in range(4)] == [1, 2, 3, 3]
