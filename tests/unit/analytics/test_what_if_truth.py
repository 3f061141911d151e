"""What-if, held against letters to which the other policy was really applied."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import NamedTuple

import pytest

from retry.analytics.advice.evidence import Evidence, Kind
from retry.analytics.advice.replay import Expected, Start, replay
from retry.policies.policy_file import parse
from retry.policies.registry import Registry
from tests.support.downstream import HOUR_MS, MINUTE_MS, Letter, Retry, World, cells, of_policy

KIND = Kind("shop", "x")
CASES = 100
# 90 of them, and two standard deviations more: who covers so many covers 90 % of all.
COVERED_LEAST = 96
# In so many cases letters fail in outages, whose end so many have in common, and in so many delays are tried that nobody had.
OUTAGES_LEAST, TOGETHER_LEAST, UNSEEN_LEAST = 8, 10, 70
BACKOFFS = (
    "{kind: constant, delay: 1s}", "{kind: constant, delay: 10s}", "{kind: constant, delay: 5m}", "{kind: constant, delay: 1h}",
    "{kind: exponential, delay: 10s, factor: 2}", "{kind: exponential, delay: 1m, factor: 3}",
    "{kind: steps, delays: [10s, 30s, 1m, 2m, 5m, 10m, 20m, 40m]}", "{kind: linear, delay: 30s, step: 1m}",
)  # fmt: skip
JITTERS = ("none", "full", "equal", "proportional")


class Case(NamedTuple):
    """The failures as they were, and as they would have been."""

    expected: Expected
    truth: int


def registry(backoff: str, jitter: str, attempts: int) -> Registry:
    keys = f"backoff: {backoff}, jitter: {jitter}, max_attempts: {attempts}"
    return parse(f"teams: {{shop: {{topics: [{{dead_letters: d, retry_to: r, {keys}}}]}}}}", "p")


def lives(letters: list[Letter], policies: Registry) -> list[list[Retry]]:
    delays = of_policy(policies.route("d").default_plan.policy)
    return [letter.lives(delays) for letter in letters]


def case(letters: list[Letter], now: Registry, tried: Registry) -> Case:
    evidence = Evidence.from_cells(cells(lives(letters, now), 10**18))
    hours = Counter(letter.failed_ms // HOUR_MS * HOUR_MS for letter in letters)
    starts = [Start("shop", "d", "x", False, hour_ms, count) for hour_ms, count in hours.items()]
    found = replay(tried, starts, {KIND: evidence})[KIND]
    truth = sum(life[-1].recovers for life in lives(letters, tried) if life)
    return Case(found, truth)


def outages(over_ms: int, least_ms: int, most_ms: int, seed: int) -> World:
    """An outage a hour, of a length by chance; who fails in it recovers when it is over."""

    def over(_: random.Random, failed_ms: int) -> float:
        hour = failed_ms // HOUR_MS
        return hour * HOUR_MS + random.Random(f"{seed}/{hour}").uniform(least_ms, most_ms)

    return World(lambda *_: None, (1,), over_ms, 0, heals_ms=over)


def world(chance: random.Random, seed: int) -> World:
    """Transient failures, outages, repairs, failures that need patience; some letters never recover."""
    letters = chance.choice((150, 400, 1_000))
    kind = chance.choice(("luck", "outages", "repairs", "patience", "mixed"))
    chances = [chance.choice((0, 0.05, 0.3, 0.6, 0.9)) for _ in range(chance.randint(1, 5))]
    over_ms = chance.choice((2, 24)) * HOUR_MS
    if kind == "outages":
        most_ms = chance.choice((1, 20, 50)) * MINUTE_MS
        return outages(over_ms, 0, most_ms, seed)
    if kind == "luck":
        return World(lambda *_: None, chances, over_ms, 0, letters=letters)
    if kind == "patience":
        return World(lambda *_: None, (0.7,), over_ms, 0, letters=letters, patience_ms=chance.choice((15_000, 90_000)))
    scale_ms = chance.choice((30_000, 10 * MINUTE_MS))
    part = chance.choice((0.3, 1)) if kind == "mixed" else 1

    def find_healing_ms(source: random.Random, failed_ms: int) -> float:
        return failed_ms - scale_ms * math.log(1 - source.random()) if source.random() < part else -math.inf

    return World(
        lambda *_: None, (chances[0] or 0.5,) if kind == "mixed" else (1,), over_ms, 0, letters, heals_ms=find_healing_ms
    )


@pytest.mark.check
@pytest.mark.parametrize(("what", "narrow_least"), [("another policy", 0), ("the same policy", 80), ("fewer attempts", 80)])
def test_its_interval_holds_the_truth(what: str, narrow_least: int) -> None:
    covered, narrow, unseen, in_outages = 0, 0, 0, 0
    for seed in range(CASES):
        chance = random.Random(seed)
        letters = world(chance, seed).draw(seed)
        present, other = ((chance.choice(BACKOFFS), chance.choice(JITTERS), chance.randint(2, 8)) for _ in range(2))
        tried = {"another policy": other, "the same policy": present, "fewer attempts": (*present[:2], present[2] // 2)}[what]
        found = case(letters, registry(*present), registry(*tried))
        low, high = found.expected.recovered_low, found.expected.recovered_high
        covered += low - 1e-9 <= found.truth <= high + 1e-9
        narrow += high - low <= 0.3 * len(letters)
        unseen += found.expected.unobserved_delays > 0
        ends = Counter(letter.healed_ms for letter in letters if letter.healed_ms > letter.failed_ms)
        in_outages += max(ends.values(), default=0) >= TOGETHER_LEAST
    assert covered >= COVERED_LEAST
    assert in_outages >= OUTAGES_LEAST
    assert what != "another policy" or unseen >= UNSEEN_LEAST
    # Who says "between none and all" is always right.
    assert narrow >= narrow_least


def test_a_delay_that_was_never_seen_is_said_to_bring_anything_and_nothing() -> None:
    world = World(lambda *_: None, (0.9,), 2 * HOUR_MS, 0, patience_ms=8_000)
    now = registry("{kind: exponential, delay: 10s, factor: 2}", "none", 3)
    found = case(world.draw(1), now, registry("{kind: constant, delay: 1s}", "none", 3))
    assert found.truth == 0
    assert found.expected.recovered == 0
    assert (found.expected.recovered_low, found.expected.recovered_high) == (0, 500)
    assert found.expected.unobserved_delays == found.expected.retries == 1_500


def test_more_attempts_within_an_outage_do_not_end_it() -> None:
    letters = outages(24 * HOUR_MS, 20 * MINUTE_MS, 20 * MINUTE_MS, 1).draw(1, 3_000)
    inside = [letter for letter in letters if letter.failed_ms < letter.healed_ms]
    now = registry("{kind: steps, delays: [10s, 30s, 1m, 2m, 5m, 10m, 20m, 40m]}", "none", 8)
    found = case(inside, now, registry("{kind: constant, delay: 10s}", "none", 8))
    assert found.truth < 0.1 * len(inside)
    assert found.expected.recovered == pytest.approx(found.truth, abs=0.04 * len(inside))
    assert found.expected.recovered_low <= found.truth <= found.expected.recovered_high
    assert found.expected.unobserved > 0.8 * found.expected.retries
