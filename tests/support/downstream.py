"""Downstreams of which the truth is known: each letter has a latent course of recovery, to which any policy is really applied.

A retry recovers a letter where its attempt is lucky (a draw for each letter and attempt, made once), and where what it waits
for has happened: the end of an outage, a repair some time after the failure. Policies change when it is asked, and nothing of
that. No estimate of `retry.analytics` is used here: they are held against it.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from backoff import Policy, RetryAt
from retry.analytics.advice.evidence import Cell

SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
STEPS_MS = (10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 2_400_000)
SETTLE_MS = 10 * MINUTE_MS
_MASK = (1 << 64) - 1
FATES = ("recovered", "failed", "unknown")
Delays = Callable[[int, float], int | None]


class Retry(NamedTuple):
    """A retry that was made: its delay, when, and what came of it."""

    attempt: int
    delay_ms: int
    at_ms: int
    recovers: bool


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter and what decides on it.

    Attributes:
      failed_ms: when it failed first.
      chances: of each attempt, from the first; the last repeats.
      healed_ms: when that which it waits for is there; before, no attempt recovers it.
      patience_ms: a retry that waited shorter than this does not recover.
      seed: of its draws.
    """

    failed_ms: int
    chances: Sequence[float]
    healed_ms: float
    patience_ms: int
    seed: int

    def lives(self, delays: Delays) -> list[Retry]:
        """Every retry that a policy gives it, up to the one that recovers it or the last; each fails at once."""
        made: list[Retry] = []
        at_ms, attempt = self.failed_ms, 1
        while (delay_ms := delays(attempt, draw(self.seed, 2 * attempt))) is not None:
            at_ms += delay_ms
            lucky = draw(self.seed, 2 * attempt + 1) < self.chances[min(attempt, len(self.chances)) - 1]
            recovers = lucky and at_ms >= self.healed_ms and delay_ms >= self.patience_ms
            made.append(Retry(attempt, delay_ms, at_ms, recovers))
            if recovers:
                break
            attempt += 1
        return made


@dataclass(frozen=True, slots=True)
class World:
    """A downstream and the policy that its letters were retried by.

    Attributes:
      letter: makes one, from a source of chance and the time of its failure.
      outage_ms: makes the end of an outage, for all letters that fail in it; None where letters have nothing in common.
      until_ms: when the history ends.
    """

    delays: Delays
    chances: Sequence[float]
    over_ms: int
    until_ms: int
    letters: int = 500
    heals_ms: Callable[[random.Random, int], float] = lambda chance, failed_ms: -math.inf
    patience_ms: int = 0

    def draw(self, seed: int, letters: int | None = None) -> list[Letter]:
        """So many letters that fail evenly over the world's time."""
        chance = random.Random(seed)
        times = sorted(int(chance.random() * self.over_ms) for _ in range(letters or self.letters))
        return [
            Letter(at_ms, self.chances, self.heals_ms(chance, at_ms), self.patience_ms, chance.getrandbits(62)) for at_ms in times
        ]


def steps(delays_ms: Sequence[int], attempts: int | None = None, jitter: str = "none") -> Delays:
    """A policy of given delays, of which the last repeats."""
    most = len(delays_ms) if attempts is None else attempts

    def delay(attempt: int, draw: float) -> int | None:
        if attempt > most:
            return None
        longest_ms = delays_ms[min(attempt, len(delays_ms)) - 1]
        return {"none": longest_ms, "full": int(longest_ms * draw), "tenth": int(longest_ms * (0.9 + 0.2 * draw))}[jitter]

    return delay


def of_policy(policy: Policy) -> Delays:
    """The delays of a policy of the service, ages and calendars aside."""

    def delay(attempt: int, jitter: float) -> int | None:
        decision = policy.decide(attempt=attempt, first_failed_at_ms=0, failed_at_ms=0, now_ms=0, draw=jitter)
        return decision.due_at_ms if isinstance(decision, RetryAt) else None

    return delay


def draw(seed: int, number: int) -> float:
    """In [0, 1): the output function of SplitMix64 (G. L. Steele et al., 2014)."""
    mixed = (seed + number * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
    return (mixed ^ mixed >> 31) / (_MASK + 1)


def is_end_known(retry: Retry, until_ms: int) -> bool:
    """Whether its end can be told apart by then: a retry is settled when nothing came back for a while."""
    return retry.at_ms + SETTLE_MS <= until_ms


def compute_kept(attempts: int, lives: Sequence[Sequence[Retry]]) -> float:
    """Which part of the recoveries the first so many attempts bring."""
    recovered = [life[-1].attempt for life in lives if life and life[-1].recovers]
    return sum(attempt <= attempts for attempt in recovered) / len(recovered) if recovered else 1.0


def cells(lives: Sequence[Sequence[Retry]], until_ms: int) -> list[Cell]:
    """List what a history that ends then has of them: retries by attempt and delay, in steps of 41 %.

    A retry that could not have settled by then counts as unknown, also where it is known to have failed.
    """
    counts: dict[tuple[int, ...], Counter[str]] = defaultdict(Counter)
    times_ms: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
    for life in lives:
        begun_ms = life[0].at_ms - life[0].delay_ms if life else 0
        for retry in life:
            if retry.at_ms - retry.delay_ms > until_ms:
                break
            times = retry.delay_ms, retry.at_ms - begun_ms
            place = retry.attempt, *(math.floor(2 * math.log2(max(1, each))) for each in times)
            fate = ("recovered" if retry.recovers else "failed") if is_end_known(retry, until_ms) else "unknown"
            counts[place][fate] += 1
            times_ms[place].append(times)
    return [Cell(place[0], *_cell(times_ms[place], each)) for place, each in counts.items()]


def _cell(times_ms: Sequence[tuple[int, int]], fates: Counter[str]) -> tuple[int, ...]:
    delay_ms, age_ms = (sorted(each)[len(each) // 2] for each in zip(*times_ms, strict=True))
    return delay_ms, *(fates[fate] for fate in FATES), age_ms
