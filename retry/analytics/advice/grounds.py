"""What advice on one kind of failure rests on, and why it is not enough.

Letters of one outage recover together, and outages are as different as they like. So advice to give up attempts asks of the
history that it has

- enough episodes: of few, an unlike one in ten would be missed;
- each weekday and each three hours of the day: an outage of each night, or of each Sunday, is not seen on other days;
- known ends: where failures are known and recoveries cannot be, later attempts look worse than they are;
- newest letters that neither fail more often (an outage under way) nor recover later than older ones (a deployment);
- letters enough that a deployment would show which came before the newest fiftieth of them, and since when half of those recover
  that come to the first attempt given up; unless so few come there that they may be lost.

Where letters of one episode end alike, a number of letters counts as fewer, see `retry.analytics.episodes`. Or else the attempts
that stay must reach so far beyond the longest outage seen that a longer one is rare: the part of outages that are longer than
all of m is at most 1 - 0.05^(1/m) with 95 % confidence, and the part that is r times as long at most this to the power of r^⅔.
The tail of a Weibull distribution with that shape is heavier than that of an exponential one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from retry.analytics.advice.evidence import Evidence
from retry.analytics.episodes import ENOUGH_EPISODES, Ends, Episode, ends_alike, estimate_correlation_high, merge_episodes
from retry.analytics.html.format import duration, noun
from retry.analytics.statistics import Counts, binomial_tail, compute_more_often_chance

_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_SLOT_HOURS = 3
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
# Where letters end alike, six-hour blocks of one run may be parts of one outage.
_BLOCKS_A_DAY = 4
_TAIL = 2 / 3
# Of an attempt's retries so few may have an end that nobody can know.
_OVERDUE_MOST = 0.01
# The normal deviate that 1 % lie above.
_FAILS_MORE = 2.33
_PENDING_MOST = 0.1
# That the newest letters need more attempts is believed where chance explains it this seldom.
_LEVEL = 0.05
# A deployment since which fewer letters came is nothing that a history can show.
_NEWEST_PART = 1 / 50
# Since it so many of the letters that come to an attempt recover by it.
_CHANGED = 0.5


@dataclass(frozen=True, slots=True)
class Coverage:
    """The weekdays and the three-hour parts of the day (UTC) in which a history has letters."""

    weekdays: frozenset[int]
    slots: frozenset[int]

    @classmethod
    def from_episodes(cls, episodes: Iterable[Episode]) -> Coverage:
        hours = {hour for each in episodes for hour in range(each.start_ms // _HOUR_MS, each.end_ms // _HOUR_MS + 1)}
        moments = [datetime.fromtimestamp(hour * 3_600, UTC) for hour in hours]
        return cls(frozenset(at.weekday() for at in moments), frozenset(at.hour // _SLOT_HOURS for at in moments))

    def describe_gap(self) -> str:
        """Say what the history has not seen; empty where it has seen all."""
        days = [name for number, name in enumerate(_DAYS) if number not in self.weekdays]
        if days:
            return f"the history has not seen a {days[-1]}"
        slots = [slot for slot in range(24 // _SLOT_HOURS) if slot not in self.slots]
        if slots:
            first = slots[0] * _SLOT_HOURS
            return f"the history has not seen the hours from {first:02}:00 to {first + _SLOT_HOURS:02}:00 UTC"
        return ""


@dataclass(frozen=True)
class Grounds:
    """The episodes of one kind, and what all kinds together have covered."""

    evidence: Evidence
    coverage: Coverage

    @cached_property
    def are_outages(self) -> bool:
        """Whether letters of one episode end alike."""
        return ends_alike(self._counts(self.evidence.episodes))

    @cached_property
    def episodes(self) -> tuple[Episode, ...]:
        found = self.evidence.episodes
        return merge_episodes(found, _BLOCKS_A_DAY) if self.are_outages else found

    @cached_property
    def longest_ms(self) -> int:
        """The longest outage seen: between two of its failures, or from a failure to a recovery."""
        return max((max(each.longest_ms, each.end_ms - each.start_ms) for each in self.episodes), default=0)

    @cached_property
    def design_effects(self) -> dict[int, float]:
        """How many letters count as an independent one, by attempt."""
        counts = self._counts(self.episodes)
        correlation = estimate_correlation_high(counts)
        found = {}
        for attempt, each in enumerate(counts, 1):
            letters = sum(n for _, n in each)
            size = sum(n * n for _, n in each) / letters if letters else 1.0
            found[attempt] = 1 + (size - 1) * correlation
        return found

    def describe_base(self) -> str:
        """Say in a few words what the advice rests on."""
        episodes = len(self.episodes)
        if not episodes:
            return ""
        if episodes >= ENOUGH_EPISODES and not self.are_outages:
            days = max(1, round((self.episodes[-1].end_ms - self.episodes[0].start_ms) / _DAY_MS))
            return f"{self.evidence.letters:,} letters in {days} {noun(days, 'day')}, each of which counts"
        return f"{self.describe_number()} seen, the longest {duration(self.longest_ms)}"

    def describe_number(self) -> str:
        """Say how many episodes there are: outages, or parts of a time in which letters failed without a pause."""
        episodes = len(self.episodes)
        is_cut = len({each.run_ms for each in self.episodes}) < episodes
        # What is cut lasts six hours, or a day where its parts are alike.
        return f"{episodes:,} {noun(episodes, ('day' if self.are_outages else 'six-hour part') if is_cut else 'outage')}"

    def find_doubt(self) -> str:
        """Say why the history is not one to give up attempts by, whatever was counted in it; empty where it is."""
        if retries := self._count_overdue():
            return (
                f"of {retries:,} {noun(retries, 'retry', 'retries')} nobody knows whether they recovered: no sample tells that"
                " their consumer group has passed them"
            )
        if (seen := len(self.episodes)) < ENOUGH_EPISODES:
            return f"only {self.describe_number()} {noun(seen, 'was', 'were')} seen, and {ENOUGH_EPISODES} are needed"
        return self.coverage.describe_gap()

    def kept_beyond(self, age_ms: float) -> float:
        """Compute the least part of outages that ends before retries reach `age_ms`, with 95 % confidence; 0 if unknown."""
        if not self.are_outages or age_ms <= self.longest_ms:
            return 0.0
        longer = 1 - 0.05 ** (1 / len(self.episodes))
        return 1 - longer ** ((age_ms / max(1, self.longest_ms)) ** _TAIL)

    def find_change(self, attempts: int, keep: float) -> str:
        """Say how the newest letters differ from older ones, of which so many attempts are known to keep enough; else empty."""
        newest = 1
        while newest <= len(self.episodes) / 2:
            new, old = self.episodes[-newest:], self.episodes[:-newest]
            late, late_old = ((_sum_recovered(of, attempts), _sum_recovered(of, 0)) for of in (new, old))
            if late[0] and min(binomial_tail(*late, 1 - keep), compute_more_often_chance(late, late_old)) < _LEVEL:
                return "the newest letters need more attempts than older ones did"
            if _fails_more(new, old, attempts):
                return "the newest letters fail more often than older ones did: an outage may be under way"
            newest *= 2
        return ""

    def find_blind_spot(self, attempts: int, keep: float) -> str:
        """Say why a change in the newest letters would go unseen where so many attempts are left; empty where it would show."""
        failed, known = _sum_failed(self.episodes, attempts)
        late = _CHANGED * failed
        if late <= (1 - keep) * (known - failed + late):
            return ""
        needed = math.ceil(math.log(_LEVEL) / math.log1p(-late / known) / _NEWEST_PART)
        if known >= needed:
            return ""
        return f"a deployment of late would not show in {known:,} {noun(known, 'letter')}, and {needed:,} are needed"

    def _list_ends(self, episodes: Sequence[Episode]) -> list[list[Ends]]:
        """List by attempt how its retries ended in each episode."""
        return [[each.ends_of(n) for each in episodes] for n in range(1, self.evidence.attempts + 1)]

    def _counts(self, episodes: Sequence[Episode]) -> list[list[Counts]]:
        return [[(each.recovered, each.ended) for each in of_attempt] for of_attempt in self._list_ends(episodes)]

    def _count_overdue(self) -> int:
        """Count the overdue retries of attempts of which they are more than 1 %."""
        ends = self._list_ends(self.evidence.episodes)
        sums = [(sum(each.overdue for each in of_attempt), sum(each.ended for each in of_attempt)) for of_attempt in ends]
        return sum(overdue for overdue, ended in sums if overdue > _OVERDUE_MOST * (overdue + ended))


def _sum_recovered(episodes: Iterable[Episode], after: int) -> int:
    """Count what recovered by later attempts than this."""
    return sum(ends.recovered for each in episodes for ends in each.ends[after:])


def _fails_more(new: Sequence[Episode], old: Sequence[Episode], attempts: int) -> bool:
    """Whether more of the newest letters have failed up to an attempt than of nearly all older ones, and wait for their end."""
    (failed, ended), (failed_old, ended_old) = _sum_failed(new, attempts), _sum_failed(old, attempts)
    given_up = sum(each.ends[-1].failed for each in new if len(each.ends) > attempts)
    waiting = failed - _sum_recovered(new, attempts) - given_up
    if not (ended and ended_old) or waiting <= _PENDING_MOST * ended:
        return False
    share, both = failed / ended, (failed + failed_old) / (ended + ended_old)
    spread = math.sqrt(both * (1 - both) * (1 / ended + 1 / ended_old))
    alike = sum(n for each in old for f, n in [_sum_failed([each], attempts)] if f >= share * n)
    return share - failed_old / ended_old > _FAILS_MORE * spread and alike < 0.05 * ended_old


def _sum_failed(episodes: Sequence[Episode], attempts: int) -> Counts:
    failed = sum(each.ends_of(attempts).failed for each in episodes)
    return failed, failed + sum(each.ends_of(n).recovered for each in episodes for n in range(1, attempts + 1))
