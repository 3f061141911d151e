"""Advice from many young histories, held against the truth of the downstream that each was drawn from."""

from __future__ import annotations

import random

import pytest

from retry.analytics.advice.choose_attempts import KEEP, Advice, choose
from retry.analytics.advice.evidence import Evidence
from tests.support.downstream import HOUR_MS, MINUTE_MS, SETTLE_MS, STEPS_MS, Retry, World, cells, compute_kept, steps

pytestmark = pytest.mark.check

HISTORIES = 400
# 5 % of them, less two standard deviations: whoever is wrong so seldom is not wrong in 5 % of all cases.
WRONG_MOST = 11
TRUTH_LETTERS = 6_000


def find_repair_ms(chance: random.Random, failed_ms: int) -> float:
    """A third of the letters waits for a repair, up to 20 minutes."""
    return failed_ms + (20 * MINUTE_MS * chance.random() if chance.random() < 1 / 3 else 0)


def _outage_over(_: random.Random, failed_ms: int) -> float:
    """Every hour begins with an outage of 5 to 40 minutes."""
    hour = failed_ms // HOUR_MS
    return hour * HOUR_MS + random.Random(hour).uniform(5, 40) * MINUTE_MS


def _patient(chance: random.Random, failed_ms: int) -> float:
    """Four in ten wait for 25 minutes."""
    return failed_ms + (25 * MINUTE_MS if chance.random() < 0.4 else 0)


_SHORT_MS = (10_000,) * 4
# Attempts that bring nothing were seen very often, and the one that helps hardly ever: late, pending, or not yet due.
YOUNG = {
    "one in two hundred has come to the cure": World(
        steps((*_SHORT_MS, HOUR_MS)), (0.6, 0, 0, 0, 0.5), HOUR_MS, HOUR_MS + SETTLE_MS + 56_000, letters=2_000
    ),
    "all wait for the cure": World(steps((*_SHORT_MS[:3], HOUR_MS)), (0.6, 0, 0, 0.5), HOUR_MS, HOUR_MS, letters=1_500),
    "a little too much to give up": World(
        steps((*_SHORT_MS, HOUR_MS)), (0.6, 0, 0, 0, 0.02), HOUR_MS, HOUR_MS + SETTLE_MS + 6 * MINUTE_MS, letters=1_500
    ),
    "repairs": World(steps(STEPS_MS), (0.9,), HOUR_MS, HOUR_MS, letters=400, heals_ms=find_repair_ms),
    "outages": World(steps(STEPS_MS), (1,), 6 * HOUR_MS, 2 * HOUR_MS, heals_ms=_outage_over),
    "long delays help, and only short ones are over": World(
        steps((10_000, 10_000, HOUR_MS), jitter="full"), (1,), 20 * MINUTE_MS, 33 * MINUTE_MS, letters=1_500, heals_ms=_patient
    ),
}


def lives(world: World, seed: int, letters: int | None = None) -> list[list[Retry]]:
    return [letter.lives(world.delays) for letter in world.draw(seed, letters)]


def advice(world: World, seed: int) -> Advice:
    return choose(Evidence.from_cells(cells(lives(world, seed), world.until_ms)))


@pytest.mark.parametrize("name", YOUNG)
def test_a_young_history_is_not_told_that_fewer_attempts_will_do(name: str) -> None:
    world = YOUNG[name]
    truth = lives(world, seed=-1, letters=TRUTH_LETTERS)
    wrong = 0
    for seed in range(HISTORIES):
        found = advice(world, seed)
        wrong += found.verdict == "fewer" and compute_kept(found.attempts, truth) < KEEP
    assert wrong <= WRONG_MOST


def test_attempts_that_bring_nothing_are_told_also_of_a_history_that_goes_on() -> None:
    world = World(steps(STEPS_MS[:6]), (0.6, 0.5, 0, 0, 0, 0), HOUR_MS, 2 * HOUR_MS, letters=1_500)
    found = [advice(world, seed) for seed in range(100)]
    assert sum((each.verdict, each.attempts) == ("fewer", 2) for each in found) >= 95


@pytest.mark.parametrize("jitter", ["full", "tenth"])
def test_a_delay_without_effect_is_not_advised(jitter: str) -> None:
    world = World(steps(STEPS_MS[:5], jitter=jitter), (0.4,), HOUR_MS, 4 * HOUR_MS)
    assert sum(bool(advice(world, seed).delays_ms) for seed in range(HISTORIES)) <= WRONG_MOST


def test_a_delay_that_helps_is_advised() -> None:
    world = World(steps((60_000,), 2, jitter="full"), (0.8,), HOUR_MS, 4 * HOUR_MS, letters=1_000, patience_ms=20_000)
    found = [advice(world, seed) for seed in range(100)]
    assert sum(each.delays_ms.get(1, 0) >= 20_000 for each in found) >= 95
