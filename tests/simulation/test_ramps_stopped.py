"""Ramps by chance, through the engine of a shard's owner: whoever fails is stopped, whoever recovers is left alone.

The code that workers run works off the slices, counts and judges, over a log in memory; a consumer fails on each letter with the
same chance, and its failures are marked as intake marks them. `tests.unit.delivery.test_ramp` has the judgement by itself.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

from retry.delay_queue import action_records, ramp_records
from retry.delay_queue.action_records import Order
from retry.delivery.ramp import StepCounts, compute_upper_bound, count_recovering
from tests.support.acted import ACTION, HOUR_MS
from tests.unit.delivery.test_ramp_runner import SETTLE_MS, Ramped, climb

pytestmark = pytest.mark.check

RUNS, KEEP = 100, 0.9
LETTERS = 328
SIZES = ramp_records.compute_steps(LETTERS)


class Climbed(NamedTuple):
    """How a ramp has gone.

    Attributes:
      held: the order by which it waits; None where it has come to its end.
      failed: letters that failed again, by step.
    """

    ramped: Ramped
    held: Order | None
    failed: list[int]


def climb_ramp(recovers: float, seed: int) -> Climbed:
    """A ramp whose letters recover with this chance, to its end or until it is held."""
    ramped, random, failed = Ramped(), Random(seed), list[int]()
    climb(ramped, *SIZES, keep=KEEP)
    while ramped.state().climbs and ramped.state().held is None:
        failed.append(go_on(ramped, random, recovers))
    return Climbed(ramped, ramped.state().held, failed)


def go_on(ramped: Ramped, random: Random, recovers: float) -> int:
    """The step that is open is sent, read and judged; how many of its letters failed again."""
    ramped.finish()
    step = ramped.opened().step
    failed = [random.getrandbits(63) for _ in ramped.send() if random.random() >= recovers]
    ramped.fail(step, *failed)
    ramped.later(1_000)
    ramped.later(SETTLE_MS)
    return len(failed)


def bound(failed: list[int]) -> float:
    """The most that may recover, by what failed again in the first steps."""
    steps = list(zip(SIZES, failed, strict=False))
    counts = [StepCounts(size, size, size, size, again) for size, again in steps]
    return compute_upper_bound(*count_recovering(counts, ramp_records.Step(), len(counts) - 1))


def test_a_consumer_that_fails_three_of_ten_is_stopped_where_the_bound_says_so_and_mended_it_ends() -> None:
    for seed in range(RUNS):
        ramped, held, failed = climb_ramp(0.7, seed)
        assert held is not None
        assert held.by == "worker"
        put = sum(SIZES[: len(failed)])
        assert f"step {len(failed)} of {len(SIZES)}: {sum(failed)} of {put} letters failed again" in held.reason
        assert bound(failed) < KEEP
        assert all(bound(failed[:n]) >= KEEP for n in range(1, len(failed)))
        assert ramped.tally.done == put, "nothing of later steps was put"
        ramped.later(HOUR_MS)
        assert ramped.state().held == held
        ramped.order(action_records.build_resumed_key, hold=held.at_ms)
        while ramped.state().climbs:
            assert go_on(ramped, Random(0), 1.0) == 0
        assert (ramped.state().held, ramped.tally.done, ramped.table.has_slices) == (None, LETTERS, False)


def test_a_consumer_that_recovers_nineteen_of_twenty_is_stopped_in_less_than_one_run_of_twenty() -> None:
    stopped = 0
    for seed in range(RUNS):
        ramped, held, _ = climb_ramp(0.95, seed)
        stopped += held is not None
        assert held is not None or (ramped.tally.done, ramped.state(ACTION).has_ended(0)) == (LETTERS, True)
    assert stopped <= 5
