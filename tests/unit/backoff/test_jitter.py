"""Jitter stays within its bounds, reaches both ends, and spreads."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff.policy import JITTERS

DRAW_MAX = 1 - 2**-53
# Per mille of the delay: what each jitter promises.
BOUNDS = {"none": (1000, 1000), "full": (0, 1000), "equal": (500, 1000), "proportional": (900, 1100)}

delays = st.integers(0, 3_653 * 86_400_000)
draws = st.floats(0, DRAW_MAX)


def test_every_jitter_has_bounds_here():
    assert set(BOUNDS) == set(JITTERS)


@given(st.sampled_from(sorted(BOUNDS)), delays, draws)
def test_a_jittered_delay_is_within_its_bounds(name, delay_ms, draw):
    low, high = BOUNDS[name]
    jittered_ms = JITTERS[name](delay_ms, draw)
    assert type(jittered_ms) is int
    assert delay_ms * low <= 1000 * jittered_ms <= delay_ms * high


@given(st.sampled_from(sorted(BOUNDS)), delays, draws, draws)
def test_a_larger_draw_never_gives_a_shorter_delay(name, delay_ms, one, other):
    assert JITTERS[name](delay_ms, min(one, other)) <= JITTERS[name](delay_ms, max(one, other))


@pytest.mark.parametrize("name", BOUNDS)
def test_the_ends_of_the_bounds_are_reached(name):
    low, high = BOUNDS[name]
    assert [JITTERS[name](100_000, draw) for draw in (0.0, DRAW_MAX)] == [100 * low, 100 * high]


@pytest.mark.parametrize("name", ["full", "equal", "proportional"])
def test_jitter_actually_jitters_over_both_halves(name):
    low, high = BOUNDS[name]
    drawn = random.Random(7)
    jittered = [JITTERS[name](100_000, drawn.random()) for _ in range(1_000)]
    middle, steps = 50 * (low + high), (high - low) * 100 / 97
    # In steps of 97 ms.
    assert len(set(jittered)) > 0.95 * (1 - math.exp(-1_000 / steps)) * steps
    assert len({each - min(jittered) for each in jittered if (each - min(jittered)) % 97}) <= 1
    assert 400 < sum(each < middle for each in jittered) < 600


@given(draws)
def test_small_delays_survive(draw):
    assert all(0 <= jitter(small, draw) <= small for jitter in JITTERS.values() for small in (0, 1, 2, 9))
