"""Failures that somebody who is woken up has to know of: what is new or came again, what is growing, and who is on what;
and what teams are told of while it stands: letters that are overdue, or near the end of their retention.

What is growing is said of two rates, each with the time that it was counted in: failures since the hour before this one began,
and those of the day before that, or of as much of it as the failure was there for. Hours are what failures are counted by, so the
first of these times is between one and two hours long. Of what was there for less than an hour before, no rate is known: it is
new, and not growing. A difference counts where it is twice as much, of ten failures or more, and more than chance would make of
one steady rate: four standard deviations, since the same is asked of hundreds of failures every two seconds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from retry.console.folding import notes
from retry.console.folding.attempts import HOUR_MS
from retry.console.folding.outcomes_fold import DAY_MS, MINUTE_MS
from retry.console.folding.sql import bind_ids, select_rows
from retry.console.reading import groups
from retry.console.reading.groups import list_new_groups, read_resolutions
from retry.console.reading.lists import list_pauses, read_controls, select_teams
from retry.console.reading.now import count_failed_before
from retry.console.rows import COUNT_MAX, Group, Scope

LISTED_MAX = 5
# Of those that were resolved last; each takes some questions of its own.
_REOPENED_MAX = 20
_RECENT_MIN, _TIMES_MIN, _DEVIATIONS_MIN = 10, 2.0, 4.0


@dataclass(frozen=True, slots=True)
class Rates:
    """How many letters failed in the time until now, and in the time before that."""

    recent: int
    recent_ms: int
    before: int
    before_ms: int

    @property
    def recent_per_hour(self) -> float:
        return self.recent * HOUR_MS / self.recent_ms

    @property
    def before_per_hour(self) -> float:
        return self.before * HOUR_MS / self.before_ms if self.before_ms else 0.0

    @property
    def excess(self) -> float:
        """How many more failed than at the rate of before."""
        return self.recent - self.before_per_hour * self.recent_ms / HOUR_MS

    def are_growing(self) -> bool:
        """Whether more fail now than before; see the module."""
        if self.before_ms < HOUR_MS or self.recent < _RECENT_MIN or self.recent_per_hour < _TIMES_MIN * self.before_per_hour:
            return False
        # At one steady rate each failure would fall into the recent time with this probability.
        share, total = self.recent_ms / (self.recent_ms + self.before_ms), self.recent + self.before
        return self.recent - total * share >= _DEVIATIONS_MIN * (total * share * (1 - share)) ** 0.5


@dataclass(frozen=True, slots=True)
class UrgentFailures:
    """At most five of each; of what is new with the number of all.

    Attributes:
      again: resolved ones that failed again within a day, with the moment until which they were resolved.
      growing: with their rates, those first whose letters have increased most.
      owned: open ones that somebody has written a name to, most letters first.
    """

    new: tuple[Group, ...] = ()
    new_count: int = 0
    again: tuple[tuple[Group, int], ...] = ()
    growing: tuple[tuple[Group, Rates], ...] = ()
    owned: tuple[Group, ...] = ()

    def list_without_owner(self) -> list[Group]:
        """List what is new, came again or is growing, and has nobody's name."""
        urgent = [*self.new, *(group for group, _ in self.again), *(group for group, _ in self.growing)]
        return list({group.id: group for group in urgent if not group.owner}.values())


def load_urgent_failures(connection: sqlite3.Connection, scope: Scope, now_ms: int, as_of_ms: int) -> UrgentFailures:
    """Return what is new, growing and whose; failures after `as_of_ms`, up to when the replica has everything, are not known."""
    resolutions = read_resolutions(connection)
    new = list_new_groups(connection, scope, now_ms, resolutions)
    reopened = sorted(resolutions.failed_later.items(), key=lambda each: -each[1])
    owned = [key.removeprefix(notes.NOTE) for key, value in notes.list_notes(connection, notes.NOTE) if notes.note(value).owner]

    def find(ids: Iterable[str]) -> list[Group]:
        found = (groups.find_group(connection, scope, id_, now_ms, resolutions) for id_ in ids)
        return [each for each in found if each is not None]

    compared = _compare_rates(connection, scope, min(now_ms, as_of_ms))
    growing = [(id_, rates) for id_, rates in compared if id_ not in resolutions.standing]
    of_rates = dict(growing[:LISTED_MAX])
    until_ms = dict(reopened)
    return UrgentFailures(
        tuple(find(_sort_by_letters(connection, scope, new))), len(new),
        again=tuple(
            (group, until_ms[group.id]) for group in find(list(until_ms)[:_REOPENED_MAX])
            if group.id in until_ms and (group.last_ms or 0) >= now_ms - DAY_MS
        )[:LISTED_MAX],
        growing=tuple((group, of_rates[group.id]) for group in find(of_rates) if group.id in of_rates),
        owned=tuple(group for group in find(_sort_by_letters(connection, scope, owned)) if group.owner and group.count),
    )  # fmt: skip


def _sort_by_letters(connection: sqlite3.Connection, scope: Scope, ids: Collection[str]) -> list[str]:
    in_scope, teams = select_teams(scope)
    counted = select_rows(
        connection, ("group_id", "sum(letters)"), "FROM cells WHERE group_id IN (SELECT value FROM json_each(?))"
        f" AND state IN ('waiting', 'parked') AND letters > 0{in_scope} GROUP BY 1", (bind_ids(ids), *teams),
    )  # fmt: skip
    letters = dict(counted)
    return sorted(ids, key=lambda id_: (-letters.get(id_, 0), id_))[:LISTED_MAX]


def _compare_rates(connection: sqlite3.Connection, scope: Scope, now_ms: int) -> list[tuple[str, Rates]]:
    """Compare for each group what failed lately with what failed before; those that are growing, most of all first."""
    in_scope, teams = select_teams(scope)
    recent = now_ms // HOUR_MS - 1
    first = recent - groups.HOURS + 2
    begun_ms = recent * HOUR_MS
    lately, before = (f"total(failed) FILTER (WHERE hour {sign} {recent})" for sign in (">=", "<"))
    found = select_rows(
        connection, ("group_id", lately, before, "min(first_ms)"), "FROM outcome_hours JOIN outcome_cells ON id = cell"
        f" WHERE hour >= ? AND hour <= ? AND failed > 0 AND group_id IS NOT NULL{in_scope} GROUP BY 1"
        f" HAVING {lately} >= {_RECENT_MIN}", (first, recent + 1, *teams),
    )  # fmt: skip
    compared = [
        (group, Rates(int(now), now_ms - begun_ms, int(then), max(0, begun_ms - max(first_ms or 0, first * HOUR_MS))))
        for group, now, then, first_ms in found
    ]  # fmt: skip
    growing = [each for each in compared if each[1].are_growing()]
    return sorted(growing, key=lambda each: (-each[1].excess, each[0]))


class OverdueLetters(NamedTuple):
    """Letters of one team, empty where it is not known, that were due and wait; `since_ms` is when the first of them was due."""

    team: str
    letters: int
    since_ms: int


class FadingLetters(NamedTuple):
    """Parked letters of one team, empty where it is not known, that Kafka deletes from a topic within a day."""

    team: str
    topic: str
    letters: int


def list_overdue(connection: sqlite3.Connection, before_ms: int, now_ms: int) -> list[OverdueLetters]:
    """List by team the letters that were due before a moment and that nobody has paused; at most 10,000 of them are counted."""
    minute = before_ms // MINUTE_MS
    late = connection.execute("SELECT 1 FROM due_minutes WHERE minute < ? AND letters > 0 LIMIT 1", (minute,)).fetchone()
    paused = list_pauses(read_controls(connection), now_ms)
    if not late or ("all", "") in paused:
        return []
    names = {scope: [name for each, name in paused if each == scope] for scope in ("team", "topic", "target")}
    unpaused = "".join(
        f" AND (c.{column} IS NULL OR c.{column} NOT IN ({','.join('?' * len(these))}))"
        for column, these in names.items() if these
    )  # fmt: skip
    found = connection.execute(
        "SELECT team, count(*), min(sort) FROM (SELECT c.team AS team, l.sort AS sort FROM letters l INDEXED BY letters_by_sort"
        f" CROSS JOIN cells c ON c.id = l.cell WHERE l.sort < ? AND c.state = 'waiting'{unpaused} ORDER BY l.sort LIMIT ?)"
        " GROUP BY team", (minute * MINUTE_MS, *(name for these in names.values() for name in these), COUNT_MAX),
    )  # fmt: skip
    return [OverdueLetters(team or "", letters, since_ms) for team, letters, since_ms in found]


def list_fading(connection: sqlite3.Connection, retention_ms: Mapping[str, int], now_ms: int) -> list[FadingLetters]:
    """List by team and topic the parked letters that Kafka deletes within a day, by the times of their records."""
    found: dict[tuple[str, str], int] = {}
    for topic, kept_ms in retention_ms.items():
        rows = connection.execute("SELECT id, team FROM cells WHERE state = 'parked' AND target = ? AND letters > 0", (topic,))
        for cell, team in rows.fetchall():
            place = team or "", topic
            found[place] = found.get(place, 0) + count_failed_before(connection, cell, now_ms + DAY_MS - kept_ms)
    return [FadingLetters(team, topic, min(letters, COUNT_MAX)) for (team, topic), letters in sorted(found.items()) if letters]
