"""How much letters tell that failed together. Pure: numbers in, numbers out.

Letters of one outage recover together, so ten thousand of them may tell no more than one. The unit of evidence is therefore the
*episode*: first failures of one team and exception without a pause of an hour, cut after six hours. How much alike the letters of
an episode end shows between episodes: L. Kish, "Survey Sampling", 1965, calls the ratio of the variance of a share to that of as
many independent letters the *design effect*. A number of letters divided by it is the number of independent ones that tell as
much. Of few episodes that ratio is not known, and each counts as one letter, as if all of its letters had ended alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from retry.analytics.statistics import Chance, Counts, chance, chi_square_quantile, clopper_pearson

# Of fewer episodes one in ten that is unlike all others would be missed more often than in 5 % of all cases.
ENOUGH_EPISODES = 30
# Letters of so few tell nothing of how much alike they end.
_LETTERS_LEAST = 30


class Ends(NamedTuple):
    """How the retries of one attempt ended; `overdue` are those of `unknown` that their group should have passed long ago."""

    recovered: int = 0
    failed: int = 0
    unknown: int = 0
    overdue: int = 0

    @property
    def ended(self) -> int:
        return self.recovered + self.failed

    def add(self, other: Ends) -> Ends:
        # Written out: of a month of letters this is done a hundred thousand times.
        return Ends(
            self.recovered + other.recovered, self.failed + other.failed, self.unknown + other.unknown,
            self.overdue + other.overdue,
        )  # fmt: skip


_NO_ENDS = Ends()


class Episode(NamedTuple):
    """Letters that failed first together.

    Attributes:
      run_ms, block: when the first letter failed of all that follow each other without a pause, and how many times six hours
        later the episode begins.
      start_ms, end_ms: the first and the last of these first failures.
      ends: by attempt, from the first.
      longest_ms: the longest time from the first failure to a retry that recovered.
    """

    run_ms: int
    block: int
    start_ms: int
    end_ms: int
    ends: tuple[Ends, ...]
    longest_ms: int = 0

    def ends_of(self, attempt: int) -> Ends:
        return self.ends[attempt - 1] if attempt <= len(self.ends) else _NO_ENDS

    def merge(self, other: Episode) -> Episode:
        both = zip_longest(self.ends, other.ends, fillvalue=_NO_ENDS)
        return self._replace(
            start_ms=min(self.start_ms, other.start_ms), end_ms=max(self.end_ms, other.end_ms),
            ends=tuple(one.add(more) for one, more in both), longest_ms=max(self.longest_ms, other.longest_ms),
        )  # fmt: skip


def merge_episodes(episodes: Iterable[Episode], blocks: int = 1) -> tuple[Episode, ...]:
    """Merge the episodes of one run that begin in the same so many blocks; by time."""
    merged: dict[tuple[int, int], Episode] = {}
    for each in sorted(episodes):
        place = each.run_ms, each.block // blocks
        merged[place] = merged[place].merge(each) if place in merged else each
    return tuple(merged.values())


def count_effective(counts: Sequence[Counts]) -> float:
    """Count how many independent letters tell as much of a share as these; of each episode events and letters."""
    return count_effective_of_sums(*sum_counts(counts))


class Sums(NamedTuple):
    """Sums over episodes of events and letters: how many there are, and of what is added up of each, its squares."""

    episodes: int
    events: float
    letters: float
    events_squared: float
    products: float
    letters_squared: float


def sum_counts(counts: Iterable[Counts]) -> Sums:
    known = [(events, letters) for events, letters in counts if letters]
    return Sums(
        len(known), sum(e for e, _ in known), sum(n for _, n in known), sum(e * e for e, _ in known),
        sum(e * n for e, n in known), sum(n * n for _, n in known),
    )  # fmt: skip


def count_effective_of_sums(*sums: float) -> float:
    """Count them as `count_effective` does, of the fields of `Sums`."""
    each = Sums(*sums)  # type: ignore[arg-type]
    if not each.letters:
        return 0.0
    equal = each.letters**2 / each.letters_squared
    share = each.events / each.letters
    if each.episodes < ENOUGH_EPISODES or not 0 < share < 1:
        return min(each.letters, equal)
    squares = each.events_squared - 2 * share * each.products + share**2 * each.letters_squared
    spread = each.episodes / (each.episodes - 1) * squares / (each.letters * share * (1 - share))
    return each.letters / max(1.0, spread)


def compute_share(counts: Sequence[Counts]) -> Chance:
    """Compute a share with its 95 % interval, from the numbers of events and letters in each episode."""
    events, letters = sum(each[0] for each in counts), sum(each[1] for each in counts)
    return bound_share(events, letters, count_effective(counts))


def bound_share(events: float, letters: float, effective: float) -> Chance:
    """Compute the share of events among letters, with the interval that `effective` independent letters give.

    The interval is Clopper's and Pearson's as E. L. Korn and B. I. Graubard use it, Survey Methodology 24 (1998) 193-201;
    Wilson's where each letter counts as an independent one.
    """
    if not letters or effective >= letters:
        return chance(events, letters)
    low, high = clopper_pearson(events / letters * effective, effective)
    return Chance(low, events / letters, high)


def estimate_correlation_high(counts_by_attempt: Iterable[Sequence[Counts]]) -> float:
    """Estimate how much alike letters of one episode end: the upper 95 % bound of the intraclass correlation, of the attempt
    where it is largest; 0 where no attempt had both ends.

    >>> alike = [(10 * (n % 2), 10) for n in range(40)]
    >>> estimate_correlation_high([alike]), estimate_correlation_high([[(0, 10)] * 40])
    (1.0, 0.0)
    """
    found = 0.0
    for counts in counts_by_attempt:
        spread, degrees, size = _dispersion(counts)
        if degrees:
            high = spread * degrees / chi_square_quantile(degrees, 0.05)
            found = max(found, (high - 1) / (size - 1) if size > 1 else 0.0)
    return min(1.0, found)


def ends_alike(counts_by_attempt: Iterable[Sequence[Counts]]) -> bool:
    """Whether letters of one episode end alike more than chance explains: a chi-square test of all attempts, at 1 %."""
    total, degrees = 0.0, 0
    for counts in counts_by_attempt:
        spread, free, _ = _dispersion(counts)
        total, degrees = total + spread * free, degrees + free
    return degrees > 0 and total > chi_square_quantile(degrees, 0.99)


def _dispersion(counts: Sequence[Counts]) -> tuple[float, int, float]:
    """Compare the variance between episodes with that of independent letters, at one attempt; with it the degrees of freedom, and
    how many letters share an episode with one, itself included. Zeros where that is not known."""
    known = [(events, letters) for events, letters in counts if letters]
    events, letters = sum(e for e, _ in known), sum(n for _, n in known)
    if len(known) < 2 or letters < _LETTERS_LEAST or not 0 < events < letters:
        return 0.0, 0, 0.0
    share = events / letters
    squares = sum((e - share * n) ** 2 for e, n in known) / (letters * share * (1 - share))
    return squares * len(known) / (len(known) - 1), len(known) - 1, sum(n * n for _, n in known) / letters
