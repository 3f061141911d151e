"""The judgement of a step: whether as many letters recover as an operator wants. Pure.

Of those that a ramp has put so far some failed again, and all others are taken to have recovered. The ramp is held where even the
exact 95 % upper bound (Clopper and Pearson, 1934) of the recovered part is below `keep`: so few would recover by chance in less
than one of twenty cases, if the part to be kept really did.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from retry.delay_queue.action_records import Tally
from retry.delay_queue.ramp_records import Ramp, Step

_DOUBT = 0.05
_HALVED = 60
# Of so many letters a part of a step says enough.
_ENOUGH = 1_000


class StepCounts(NamedTuple):
    """The counts of all shards together for one step of a ramp: `failed` of lineages, the others of letters, see `StepTally`."""

    members: int
    worked: int = 0
    put: int = 0
    sent: int = 0
    failed: int = 0

    @property
    def recovered(self) -> int:
        return max(0, self.put - self.failed)

    @property
    def is_put(self) -> bool:
        return self.worked >= self.members

    @property
    def is_sent(self) -> bool:
        return self.is_put and self.sent >= self.put


def count_steps(ramp: Ramp, tallies: Sequence[Tally], failed: Sequence[int]) -> list[StepCounts]:
    """Add up, for each step of a ramp, what some shards have done of it; `failed` goes by step."""
    counts = []
    for n, members in enumerate(ramp.steps):
        done = [tally.steps[n] for tally in tallies if n < len(tally.steps)]
        worked, put, sent = sum(d.worked for d in done), sum(d.put for d in done), sum(d.sent for d in done)
        counts.append(StepCounts(members, worked, put, sent, failed[n]))
    return counts


def compute_chance_of_at_most(successes: int, trials: int, part: float) -> float:
    """Compute the chance that at most `successes` of some trials succeed, where each trial succeeds with the chance `part`."""
    if successes >= trials:
        return 1.0
    if not 0.0 < part < 1.0:
        return 1.0 if part <= 0.0 else 0.0
    ways = math.lgamma(trials + 1) - math.lgamma(successes + 1) - math.lgamma(trials - successes + 1)
    term = math.exp(ways + successes * math.log(part) + (trials - successes) * math.log1p(-part))
    total, odds = 0.0, (1.0 - part) / part
    for k in range(successes, -1, -1):
        total += term
        term *= k / (trials - k + 1) * odds
        # Below the mean each term is smaller than the one before.
        if term < total * 1e-17 and k <= trials * part:
            break
    return min(1.0, total)


def compute_upper_bound(successes: int, trials: int) -> float:
    """Compute the exact upper bound of a chance, 95 % sure: with a greater chance, so few successes are too rare.

    >>> round(compute_upper_bound(1, 3), 3), compute_upper_bound(3, 3)
    (0.865, 1.0)
    """
    if successes >= trials:
        return 1.0
    low, high = successes / trials, 1.0
    for _ in range(_HALVED):
        middle = (low + high) / 2
        low, high = (middle, high) if compute_chance_of_at_most(successes, trials, middle) > _DOUBT else (low, middle)
    return high


def count_recovering(counts: Sequence[StepCounts], at: Step, step: int) -> tuple[int, int]:
    """Count letters from the first step that counts up to `step`: those that recovered, or still may, and all that were put."""
    some = counts[at.since : step + 1]
    put, failed = sum(each.put for each in some) - at.before[0], sum(each.failed for each in some) - at.before[1]
    return max(0, put - max(0, failed)), max(0, put)


def explain_hold(ramp: Ramp, counts: Sequence[StepCounts], at: Step) -> str | None:
    """Explain why a ramp must be held at a step, judged by all steps that count; None where the ramp may go on.

    A step may be judged before all of its letters were put: as time passes more of them fail again, never fewer.
    """
    recovered, put = count_recovering(counts, at, at.step)
    if not put or not (counts[at.step].is_put or put >= _ENOUGH):
        return None
    if recovered >= put * ramp.keep or compute_chance_of_at_most(recovered, put, ramp.keep) >= _DOUBT:
        return None
    return (
        f"step {at.step + 1} of {len(ramp.steps)}: {put - recovered:,} of {put:,} letters failed again, so at most "
        f"{compute_upper_bound(recovered, put):.1%} recover, and {ramp.keep:.1%} are to"
    )
