"""Kinds of failures: their state to an operator, how many letters each has, its last 24 hours, what came back, what is noted."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from retry.console.folding import notes
from retry.console.folding.attempts import HOUR_MS, KNOWN_BACK, KNOWN_SENT, PENDING, SLOT_MS
from retry.console.folding.regrouping import Regrouping
from retry.console.folding.sql import bind_ids, select_rows
from retry.console.reading.lists import select_teams
from retry.console.rows import FailureState, Group, Scope

HOURS = 24
NAMES_MAX = 20
_NO_NOTE = notes.Note("", "", "", "", 0)
# A group, and what it was split into, whose ids begin with its own.
OF_GROUP = "(group_id = ?1 OR (group_id > ?1 || '~' AND group_id < ?1 || '\x7f'))"


class CountedGroup(NamedTuple):
    id: str
    waiting: int
    parked: int

    @property
    def letters(self) -> int:
        return self.waiting + self.parked


def find_group(
    connection: sqlite3.Connection, scope: Scope, group_id: str, now_ms: int, resolutions: Resolutions | None = None
) -> Group | None:
    """Find a group; whoever looks for several gives what is resolved, so that it is read once."""
    wanted = find_current_id(connection, group_id)
    found = sum_by_group(read_cell_groups(connection, dict(_cells_of(connection, scope, wanted))))
    counted = CountedGroup(wanted, sum(each.waiting for each in found), sum(each.parked for each in found))
    group = build_group(connection, scope, counted, now_ms, resolutions or read_resolutions(connection))
    return group if found or group.last_ms is not None else None


class CellCount(NamedTuple):
    cell: int
    group: str
    is_waiting: bool
    letters: int


def read_cell_groups(connection: sqlite3.Connection, counts: Mapping[int, int]) -> list[CellCount]:
    """Read which group each of these cells counts in; cells of no group are left out. `counts` is by the number of a cell."""
    of_groups = "FROM cells WHERE id IN (SELECT value FROM json_each(?)) AND group_id IS NOT NULL"
    rows = select_rows(connection, ("id", "group_id", "state = 'waiting'"), of_groups, (bind_ids(counts),))
    return [CellCount(number, group, bool(is_waiting), counts[number]) for number, group, is_waiting in rows]


def sum_by_group(cells: Iterable[CellCount]) -> list[CountedGroup]:
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for each in cells:
        sums[each.group][not each.is_waiting] += each.letters
    return [CountedGroup(group, waiting, parked) for group, (waiting, parked) in sums.items()]


def find_current_id(connection: sqlite3.Connection, group_id: str) -> str:
    """Return the id of the group that a merged group counts in; its own where it was not merged, or was split."""
    return Regrouping.read_notes(connection).resolve_group(group_id)


def _cells_of(connection: sqlite3.Connection, scope: Scope, group_id: str) -> list[tuple[int, int]]:
    in_scope, teams = select_teams(scope)
    of_group = f"FROM cells WHERE {OF_GROUP} AND state IN ('waiting', 'parked') AND letters > 0{in_scope}"
    return [(number, letters) for number, letters in select_rows(connection, ("id", "letters"), of_group, (group_id, *teams))]


def build_group(
    connection: sqlite3.Connection, scope: Scope, counted: CountedGroup, now_ms: int, resolutions: Resolutions
) -> Group:
    in_scope, teams = select_teams(scope)
    cells = select_rows(
        connection,
        ("team", "topic", "coalesce(cause, exception)", "common", "first_ms", "last_ms", "fingerprint", "consumer_group"),
        f"FROM cells WHERE {OF_GROUP} AND state IN ('waiting', 'parked', 'discarded'){in_scope} ORDER BY letters DESC",
        (counted.id, *teams),
    )  # fmt: skip
    columns = ("team", "topic", "id", "cause", "first_ms", "last_ms", "consumer_group")
    outcomes = select_rows(connection, columns, f"FROM outcome_cells WHERE {OF_GROUP}{in_scope}", (counted.id, *teams))
    times = [at for row in (*(each[4:6] for each in cells), *(each[4:6] for each in outcomes)) for at in row if at is not None]
    trend, sent, came_back, pending = _load_outcome_counts(connection, [row[2] for row in outcomes], now_ms)
    cause = next((row[2] for row in cells), None) or next((row[3] for row in outcomes), None)
    row = connection.execute("SELECT value FROM notes WHERE key = ?", (f"{notes.NOTE}{counted.id}",)).fetchone()
    note = notes.note(row[0]) if row else _NO_NOTE
    if not note.is_for(scope):
        note = _NO_NOTE
    members = {each[6] for each in cells if each[6]} - {counted.id.partition("~")[0]}
    first_ms = min(times, default=None)
    return Group(
        counted.id, cause=cause, message=next((each[3] for each in cells), None), waiting=counted.waiting,
        parked=counted.parked, trend=trend, first_ms=first_ms, last_ms=max(times, default=None), sent=sent,
        came_back=came_back, owner=note.owner, note=note.note, link=note.link,
        resolved_at_ms=resolutions.standing.get(counted.id),
        merged=tuple(sorted(members)), topics=_sort_names(row[1] for row in (*cells, *outcomes)),
        teams=_sort_names(row[0] for row in (*cells, *outcomes)), pending=pending,
        consumer_groups=_sort_names([*(row[7] for row in cells), *(row[6] for row in outcomes)]),
        state=resolutions.state_of(counted.id, first_ms, now_ms),
    )  # fmt: skip


def _load_outcome_counts(
    connection: sqlite3.Connection, cells: Sequence[int], now_ms: int
) -> tuple[tuple[int, ...], int | None, int | None, int]:
    trend, known, came_back = [0] * HOURS, 0, 0
    first, wanted = now_ms // HOUR_MS - HOURS + 1, bind_ids(cells)
    for hour, failed, sent, back in select_rows(
        connection, ("hour", "sum(failed)", "sum(sent)", "sum(came_back)"),
        "FROM outcome_hours WHERE cell IN (SELECT value FROM json_each(?)) AND hour >= ? AND hour < ? GROUP BY hour",
        (wanted, first, first + HOURS),
    ):  # fmt: skip
        trend[hour - first] = failed
        known, came_back = known + sent, came_back + back
    sent, back, pending = connection.execute(
        f"SELECT {KNOWN_SENT}, {KNOWN_BACK}, {PENDING} FROM outcome_slots"
        " WHERE cell IN (SELECT value FROM json_each(?)) AND slot >= ?",
        (wanted, first * HOUR_MS // SLOT_MS),
    ).fetchone()  # fmt: skip
    known, came_back = known + (sent or 0), came_back + (back or 0)
    return tuple(trend), known if cells else None, came_back if cells else None, pending or 0


def _sort_names(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({name for name in names if name})[:NAMES_MAX])


# What failed first within this time is new, on every page.
NEW_MS = 24 * HOUR_MS
# What failed, of letters that are there and of outcomes: a letter that was superseded, or never goes anywhere, is no failure.
FAILED_CELLS = "group_id IS NOT NULL AND state IN ('waiting', 'parked', 'discarded')"


class Resolutions(NamedTuple):
    """Groups that somebody has resolved, each with the moment until which that holds; `failed_later` are those that came again.
    """

    standing: Mapping[str, int]
    failed_later: Mapping[str, int]

    def state_of(self, group: str, first_ms: int | None, now_ms: int) -> FailureState:
        """Decide the state of a group that failed first at that time."""
        if group in self.standing:
            return FailureState.RESOLVED
        if group in self.failed_later:
            return FailureState.CAME_AGAIN
        is_new = first_ms is not None and now_ms - first_ms < NEW_MS
        return FailureState.NEW if is_new else FailureState.ONGOING


class FailureTimes(NamedTuple):
    """When a group failed first and last, as far as it is known."""

    first_ms: int | None = None
    last_ms: int | None = None


def read_resolutions(connection: sqlite3.Connection) -> Resolutions:
    """Read all that operators have resolved; what failed later counts, of whichever team it is."""
    resolved = {
        key.removeprefix(notes.RESOLVED): notes.resolved(value).at_ms
        for key, value in notes.list_notes(connection, notes.RESOLVED)
    }
    among = "WHERE group_id IN (SELECT value FROM json_each(?))"
    last = dict(select_rows(
        connection, ("group_id", "max(last_ms)"),
        f"FROM (SELECT group_id, last_ms FROM cells {among} UNION ALL SELECT group_id, last_ms FROM outcome_cells {among})"
        " GROUP BY group_id", (bind_ids(resolved),) * 2,
    ))  # fmt: skip
    failed_later = {group: until_ms for group, until_ms in resolved.items() if (last.get(group) or 0) > until_ms}
    return Resolutions({group: at_ms for group, at_ms in resolved.items() if group not in failed_later}, failed_later)


def read_times(connection: sqlite3.Connection, scope: Scope) -> dict[str, FailureTimes]:
    """Read when each group failed first and last, as far as a viewer sees its letters and outcomes."""
    in_scope, teams = select_teams(scope)
    rows = select_rows(
        connection, ("group_id", "min(first_ms)", "max(last_ms)"),
        f"FROM (SELECT group_id, first_ms, last_ms FROM cells WHERE {FAILED_CELLS}{in_scope} UNION ALL"
        f" SELECT group_id, first_ms, last_ms FROM outcome_cells WHERE group_id IS NOT NULL{in_scope}) GROUP BY group_id",
        (*teams, *teams),
    )  # fmt: skip
    return {group: FailureTimes(first_ms, last_ms) for group, first_ms, last_ms in rows}


def list_new_groups(connection: sqlite3.Connection, scope: Scope, now_ms: int, resolutions: Resolutions) -> list[str]:
    """List the ids of the groups that a viewer sees and that are new."""
    times = read_times(connection, scope)
    return [group for group, each in times.items() if resolutions.state_of(group, each.first_ms, now_ms) is FailureState.NEW]
