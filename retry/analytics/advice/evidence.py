"""How the retries of one kind of failure ended, by attempt, delay and age."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from retry.analytics.episodes import Episode, compute_share, merge_episodes
from retry.analytics.statistics import Chance, chance, compute_difference_chance

# Fewer retries of one attempt and delay tell less than all of that attempt together.
CELL_ENOUGH = 30
# The exception of all kinds that are too many to be told apart, which no class is called: of these nothing is advised.
OTHER = "other kinds"
# Delays are told apart where they differ by 41 %.
BINS_PER_DOUBLING = 2


class Kind(NamedTuple):
    """A kind of failure that is judged by itself.

    Attributes:
      exception: the class; None where the letters do not contain it, `OTHER` for many classes.
      topics: the dead-letter topics that its letters came from; none for all.
      policies: that decided on the first retry of its letters; none for all.
    """

    team: str
    exception: str | None
    topics: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()


class Cell(NamedTuple):
    """Retries of one attempt with delays, and ages, that are within 41 % of each other.

    Attributes:
      delay_ms, age_ms: their medians; the age is the time from the first failure to the retry.
      unknown: retries of which it is not known how they ended.
    """

    attempt: int
    delay_ms: int
    recovered: int
    failed: int
    unknown: int = 0
    age_ms: int = 0

    @property
    def ended(self) -> int:
        return self.recovered + self.failed

    @property
    def letters(self) -> int:
        return self.ended + self.unknown


@dataclass(frozen=True, slots=True)
class Evidence:
    """All cells of one kind: `cells` by attempt, from 1 without a gap, and by delay, of every age; `every` as it was counted; and
    the `episodes` that they come from. Without episodes letters are taken to be independent of each other."""

    cells: Mapping[int, tuple[Cell, ...]]
    every: tuple[Cell, ...] = field(default=(), repr=False)
    episodes: tuple[Episode, ...] = field(default=(), repr=False)

    @classmethod
    def from_cells(cls, cells: Iterable[Cell], episodes: Iterable[Episode] = ()) -> Evidence:
        every = tuple(sorted(cells))
        merged = [_merge_cells(list(group)) for _, group in groupby(every, lambda cell: (cell.attempt, find_bin(cell.delay_ms)))]
        last = max((cell.attempt for cell in merged), default=0)
        by_attempt = {n: tuple(cell for cell in merged if cell.attempt == n) for n in range(1, last + 1)}
        return cls(by_attempt, every, merge_episodes(episodes))

    @property
    def attempts(self) -> int:
        """The last attempt that any letter is to make, or has made; 0 where there is none."""
        return max(self.cells, default=0)

    @property
    def letters(self) -> int:
        """Letters that were to be retried at all."""
        return sum(cell.letters for cell in self.cells.get(1, ()))

    def count_ended(self, attempt: int) -> int:
        return sum(cell.ended for cell in self.cells.get(attempt, ()))

    def count_recovered(self, attempt: int) -> int:
        return sum(cell.recovered for cell in self.cells.get(attempt, ()))

    def likely(self, attempt: int) -> float:
        """Return the part of the retries of an attempt that recovered; 0 where no end is known."""
        return self.count_recovered(attempt) / max(1, self.count_ended(attempt))

    def hazard(self, attempt: int) -> Chance:
        """Compute the chance, with its 95 % interval, that an attempt recovers, whatever its delay."""
        if self.episodes:
            return compute_share([(each.ends_of(attempt).recovered, each.ends_of(attempt).ended) for each in self.episodes])
        return chance(self.count_recovered(attempt), self.count_ended(attempt))


def compute_survival(hazards: Iterable[float]) -> list[float]:
    """Compute the share of the letters that still fail before each attempt, and as the last item after all: Kaplan and Meier,
    JASA 53 (1958) 457-481.

    >>> compute_survival([0.5, 0.5])
    [1.0, 0.5, 0.25]
    """
    left = [1.0]
    for hazard in hazards:
        left.append(left[-1] * (1 - hazard))
    return left


def find_bin(delay_ms: int) -> int:
    """Find the step of 41 % that a delay, or an age, lies in."""
    return math.floor(BINS_PER_DOUBLING * math.log2(max(1, delay_ms)))


def _merge_cells(alike: list[Cell]) -> Cell:
    """Merge cells of one attempt and of delays alike; delay and age are of the most letters."""
    first = max(alike, key=lambda cell: cell.letters)
    recovered, failed, unknown = (sum(counts) for counts in zip(*(cell[2:5] for cell in alike), strict=True))
    return Cell(first.attempt, first.delay_ms, recovered, failed, unknown, first.age_ms)


# Which letters of one exception may be counted together: those of topics and policies that do not differ.
#
# One exception of one team may come from several topics, whose consumers need not have anything in common. So each topic and
# policy is counted by itself, and two are put together only where Fisher's exact test finds no difference at any attempt. It
# must have had something to look at: at every attempt that either has come to, both know the end of five retries.

# How often two that do not differ are kept apart nevertheless.
_LEVEL = 0.05
_TESTED = 5


def pool_evidence(evidence: Mapping[Kind, Evidence]) -> dict[Kind, Evidence]:
    """Pool evidence by team and exception, and for as many topics and policies together as do not differ; the largest first."""
    groups: dict[tuple[str, str | None], list[tuple[Kind, Evidence]]] = {}
    for kind, each in sorted(evidence.items(), key=lambda one: (-one[1].letters, str(one[0]))):
        known = groups.setdefault((kind.team, kind.exception), [])
        like = next((n for n, (_, other) in enumerate(known) if may_be_pooled(other, each)), None)
        if like is None:
            known.append((kind, each))
        else:
            known[like] = _pool_pair(known[like], (kind, each))
    return {kind: each for known in groups.values() for kind, each in known}


def may_be_pooled(one: Evidence, other: Evidence) -> bool:
    """Whether enough retries of every attempt have ended in both, and a test at each finds no difference."""
    attempts = range(1, max(one.attempts, other.attempts) + 1)
    tested = [[(each.count_recovered(n), each.count_ended(n)) for each in (one, other)] for n in attempts]
    if any(ended < _TESTED for pair in tested for _, ended in pair):
        return False
    level = _LEVEL / max(1, len(tested))
    return all(compute_difference_chance(first, second) > level for first, second in tested)


def _pool_pair(one: tuple[Kind, Evidence], other: tuple[Kind, Evidence]) -> tuple[Kind, Evidence]:
    kind, more = one[0], other[0]
    topics, policies = {*kind.topics, *more.topics}, {*kind.policies, *more.policies}
    evidence = Evidence.from_cells([*one[1].every, *other[1].every], [*one[1].episodes, *other[1].episodes])
    return kind._replace(topics=tuple(sorted(topics)), policies=tuple(sorted(policies))), evidence
