"""Kinds of failures: how many letters each has, its last 24 hours, how many of its retries came back, and what is noted of it."""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from retry.console.folding import notes
from retry.console.folding.attempts import HOUR_MS, SLOT_MS
from retry.console.folding.regrouping import Regrouping
from retry.console.folding.sql import bind_ids, select_column, select_rows
from retry.console.reading import letters
from retry.console.reading.letter_search import LetterSearch
from retry.console.reading.lists import select_teams
from retry.console.rows import COUNT_MAX, Group, Page, Scope
from retry.operations.letter_filter.syntax import EVERYTHING, Filter

HOURS = 24
NAMES_MAX = 20
_NO_NOTE = notes.Note("", "", "", "", 0)
# A group, and what it was split into, whose ids begin with its own.
OF_GROUP = "(group_id = ?1 OR (group_id > ?1 || '~' AND group_id < ?1 || '\x7f'))"


class Counted(NamedTuple):
    group: str
    waiting: int
    parked: int

    @property
    def place(self) -> tuple[int, str]:
        """In the list: most letters first."""
        return -(self.waiting + self.parked), self.group


def list_groups(
    connection: sqlite3.Connection, file_id: str, scope: Scope, letter_filter: Filter, after: str | None, limit: int, now_ms: int,
    *, resolved: bool,
) -> Page[Group]:
    """Return one page of groups of failures, most letters first; see `Replica.list_groups`."""
    question = f"groups {letter_filter} {resolved} {sorted(scope) if scope is not None else None}"
    position = letters.decode_cursor(file_id, question, after)
    by_cell, is_partial = LetterSearch(connection, scope, letter_filter, now_ms).by_cell()
    counted = _of_cells(connection, by_cell.items())
    if letter_filter == EVERYTHING:
        counted += _without_letters(connection, scope, {each.group for each in counted}, now_ms)
    done = resolved_groups(connection)
    listed = sorted((each for each in counted if (each.group in done) == resolved), key=lambda each: each.place)
    numbers, begin = [each.place[0] for each in listed], 0
    if position is not None:
        # The number of letters, and how many of the groups with as many were shown.
        begin = min(bisect_right(numbers, position[0]), bisect_left(numbers, position[0]) + position[1])
    shown = listed[begin : begin + limit]
    groups = [_build_group(connection, scope, each, now_ms, done) for each in shown]
    following = None
    if shown and begin + limit < len(listed):
        last = shown[-1].place[0]
        following = last, begin + len(shown) - bisect_left(numbers, last)
    cursor = letters.encode_cursor(file_id, question, following)
    return Page(groups, cursor, min(len(listed), COUNT_MAX), is_partial, None, is_partial)


def find_group(connection: sqlite3.Connection, scope: Scope, group_id: str, now_ms: int) -> Group | None:
    wanted = current_id(connection, group_id)
    found = _of_cells(connection, _cells_of(connection, scope, wanted))
    counted = Counted(wanted, sum(each.waiting for each in found), sum(each.parked for each in found))
    group = _build_group(connection, scope, counted, now_ms, resolved_groups(connection))
    return group if found or group.last_ms is not None else None


def current_id(connection: sqlite3.Connection, group_id: str) -> str:
    """Return the id of the group that a merged group counts in; its own where it was not merged, or was split."""
    return Regrouping.read_notes(connection).resolve_group(group_id)


def resolved_groups(connection: sqlite3.Connection) -> dict[str, int]:
    """Groups about which nothing is to be done, with the moment until which that holds; none with a later failure."""
    return {group: until_ms for group, until_ms, last_ms in _list_resolved(connection) if last_ms <= until_ms}


def find_reopened(connection: sqlite3.Connection) -> dict[str, int]:
    """Groups that somebody has resolved and that failed later, with the moment until which they were."""
    return {group: until_ms for group, until_ms, last_ms in _list_resolved(connection) if last_ms > until_ms}


def _list_resolved(connection: sqlite3.Connection) -> Iterator[tuple[str, int, int]]:
    """Groups that somebody has resolved, each with the moment until which that holds and that of its last failure, 0 for none."""
    for key, value in notes.list_notes(connection, notes.RESOLVED):
        group = key.removeprefix(notes.RESOLVED)
        last_ms = connection.execute(
            "SELECT max(last_ms) FROM (SELECT last_ms FROM cells WHERE group_id = ?1 UNION ALL"
            " SELECT last_ms FROM outcome_cells WHERE group_id = ?1)", (group,),
        ).fetchone()[0]  # fmt: skip
        yield group, notes.resolved(value).at_ms, last_ms or 0


def _without_letters(connection: sqlite3.Connection, scope: Scope, known: set[str], now_ms: int) -> list[Counted]:
    """Groups whose letters have all gone, and that failed within a day: whether they come back is seen there."""
    in_scope, teams = select_teams(scope)
    rest = f"FROM outcome_cells WHERE last_ms >= ? AND group_id IS NOT NULL{in_scope}"
    found = select_column(connection, "group_id", rest, (now_ms - HOURS * HOUR_MS, *teams))
    return [Counted(group, 0, 0) for group in {*found} - known]


def _of_cells(connection: sqlite3.Connection, cells: Iterable[tuple[int, int]]) -> list[Counted]:
    counts = dict(cells)
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    of_groups = "FROM cells WHERE id IN (SELECT value FROM json_each(?)) AND group_id IS NOT NULL"
    for number, group, state in select_rows(connection, ("id", "group_id", "state"), of_groups, (bind_ids(counts),)):
        sums[group][state != "waiting"] += counts[number]
    return [Counted(group, *both) for group, both in sums.items()]


def _cells_of(connection: sqlite3.Connection, scope: Scope, group_id: str) -> list[tuple[int, int]]:
    in_scope, teams = select_teams(scope)
    of_group = f"FROM cells WHERE {OF_GROUP} AND state IN ('waiting', 'parked') AND letters > 0{in_scope}"
    return [(number, letters) for number, letters in select_rows(connection, ("id", "letters"), of_group, (group_id, *teams))]


def _build_group(connection: sqlite3.Connection, scope: Scope, counted: Counted, now_ms: int, resolved: dict[str, int]) -> Group:
    in_scope, teams = select_teams(scope)
    cells = select_rows(
        connection, ("team", "topic", "coalesce(cause, exception)", "common", "first_ms", "last_ms", "fingerprint"),
        f"FROM cells WHERE {OF_GROUP} AND state IN ('waiting', 'parked', 'discarded'){in_scope} ORDER BY letters DESC",
        (counted.group, *teams),
    )  # fmt: skip
    columns = ("team", "topic", "id", "cause", "first_ms", "last_ms")
    outcomes = select_rows(connection, columns, f"FROM outcome_cells WHERE {OF_GROUP}{in_scope}", (counted.group, *teams))
    times = [at for row in (*(each[4:6] for each in cells), *(each[4:6] for each in outcomes)) for at in row if at is not None]
    trend, sent, came_back, pending = _load_outcome_counts(connection, [row[2] for row in outcomes], now_ms)
    cause = next((row[2] for row in cells), None) or next((row[3] for row in outcomes), None)
    row = connection.execute("SELECT value FROM notes WHERE key = ?", (f"{notes.NOTE}{counted.group}",)).fetchone()
    note = notes.note(row[0]) if row else _NO_NOTE
    if not note.is_for(scope):
        note = _NO_NOTE
    members = {each[6] for each in cells if each[6]} - {counted.group.partition("~")[0]}
    return Group(
        counted.group, cause=cause, message=next((each[3] for each in cells), None), waiting=counted.waiting,
        parked=counted.parked, trend=trend, first_ms=min(times, default=None), last_ms=max(times, default=None), sent=sent,
        came_back=came_back, owner=note.owner, note=note.note, link=note.link, resolved_at_ms=resolved.get(counted.group),
        merged=tuple(sorted(members)), topics=_sort_names(row[1] for row in (*cells, *outcomes)),
        teams=_sort_names(row[0] for row in (*cells, *outcomes)), pending=pending,
    )  # fmt: skip


def _load_outcome_counts(
    connection: sqlite3.Connection, cells: Sequence[int], now_ms: int
) -> tuple[tuple[int, ...], int | None, int | None, int]:
    """Failures in each of 24 hours; of the retries sent in them how many are known, came back, and are not known yet."""
    trend, known, came_back = [0] * HOURS, 0, 0
    first, wanted = now_ms // HOUR_MS - HOURS + 1, bind_ids(cells)
    for hour, failed, sent, back in select_rows(
        connection, ("hour", "sum(failed)", "sum(sent)", "sum(came_back)"),
        "FROM outcome_hours WHERE cell IN (SELECT value FROM json_each(?)) AND hour >= ? AND hour < ? GROUP BY hour",
        (wanted, first, first + HOURS),
    ):  # fmt: skip
        trend[hour - first] = failed
        known, came_back = known + sent, came_back + back
    pending = connection.execute(
        "SELECT coalesce(sum(sent), 0) FROM outcome_slots WHERE cell IN (SELECT value FROM json_each(?)) AND slot >= ?",
        (wanted, first * HOUR_MS // SLOT_MS),
    ).fetchone()[0]  # fmt: skip
    return tuple(trend), known if cells else None, came_back if cells else None, pending


def _sort_names(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({name for name in names if name})[:NAMES_MAX])


def list_new_groups(connection: sqlite3.Connection, scope: Scope, since_ms: int) -> list[str]:
    """List the ids of open kinds of failures that were first seen since a moment."""
    done = resolved_groups(connection)
    in_scope, teams = select_teams(scope)
    known = f"WHERE group_id IS NOT NULL AND first_ms IS NOT NULL{in_scope}"
    new = select_column(
        connection, "group_id", f"FROM (SELECT group_id, first_ms FROM cells {known} UNION ALL SELECT group_id, first_ms"
        f" FROM outcome_cells {known}) GROUP BY group_id HAVING min(first_ms) >= ?", (*teams, *teams, since_ms),
    )  # fmt: skip
    return [group for group in new if group not in done]


# Kinds of failures that were not there before, and resolved ones that failed again: what a webhook is told of.
#
# Whoever asks again and again pays for what is new alone, however many kinds there are.

class GroupsCursor(NamedTuple):
    """Up to which numbers of cells somebody has looked; of another file all is looked at again."""

    file_id: str = ""
    cell: int = 0
    outcome_cell: int = 0


class Kind(NamedTuple):
    fingerprint: str
    group: str


def find_new_kinds(connection: sqlite3.Connection, file_id: str, seen: GroupsCursor) -> tuple[GroupsCursor, list[Kind]]:
    """Kinds of what came since then, some of which may have been there before; and up to where that is."""
    if seen.file_id != file_id:
        seen = GroupsCursor(file_id)
    found: set[Kind] = set()
    numbers = []
    for table, last in (("cells", seen.cell), ("outcome_cells", seen.outcome_cell)):
        rows = connection.execute(f"SELECT id, fingerprint, group_id FROM {table} WHERE id > ?", (last,)).fetchall()
        numbers.append(max((row[0] for row in rows), default=last))
        found.update(Kind(fingerprint, group) for _, fingerprint, group in rows if fingerprint and group)
    return GroupsCursor(file_id, *numbers), sorted(found)
