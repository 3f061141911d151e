"""Which letters a filter means, in order, a page at a time: found by their cells, by their keys or messages, or by walking.

Whatever is asked, an answer comes in a fraction of a second: who has looked for that long says how far it came.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import orjson

from retry.clock import Deadline, monotonic_s
from retry.console.folding.letter_record import RESTING_SORT_MIN
from retry.console.folding.regrouping import Regrouping
from retry.console.folding.sql import bind_ids, select_column, select_rows
from retry.console.reading import filter_sql
from retry.console.reading.filter_sql import Condition, find_candidate_ids, join_conditions
from retry.console.rows import COUNT_MAX, Scope
from retry.operations.letter_filter import predicate
from retry.operations.letter_filter.fields import GROUP
from retry.operations.letter_filter.syntax import AllOf, Filter, Not, Range, Term, all_of, any_of, make_glob

# Of more cells none is looked into by itself: letters are walked over instead.
_CELLS_MAX = 1_000
# Of each cell so many letters are looked up at the most: whoever wants more of all walks over them.
_OF_EACH_MAX = 1_000
# So many letters come into question in the first stretch that is walked over, at least and at most; so many may lie in between.
_FIRST_STRETCH, _STRETCH_MIN, _STRETCH_MAX, _PASSED_MAX = 2_000, 250, 8_000, 400_000
# Who has no time left notices after a stretch, which therefore is to take about so long, and grows no faster than this.
_STRETCH_S, _GROWS = 0.01, 4
# Where fewer come into question than one of so many, they are found by their cells and not by their order.
_SPARSE = 5
PAGE_S, COUNT_S = 0.05, 0.02
_IN_ORDER = (-(1 << 62), 0)

Position = tuple[int, int]


class Found(NamedTuple):
    """Some letters by `sort` and id, in order; behind `looked_to` nothing was looked at, None where all was."""

    letters: list[Position]
    looked_to: Position | None


class _Stretch(NamedTuple):
    """Letters to look at: from `FROM` on, to which conditions can be added, to the position `end`, or without end."""

    sql: str
    parameters: tuple[object, ...]
    end: Position | None


class LetterSearch:
    """One question, asked of one state of the file; raises FilterInvalid where it asks for what stays in Kafka."""

    def __init__(self, connection: sqlite3.Connection, scope: Scope, letter_filter: Filter, now_ms: int) -> None:
        letter_filter = apply_regrouping(connection, letter_filter)
        filter_sql.refuse_unkept(letter_filter, set(select_column(connection, "name", "FROM long_headers")))
        self._connection = connection
        among = build_scope_condition(scope, predicate.list_states(letter_filter))
        self._exact = join_conditions("AND", [among, filter_sql.build_condition(letter_filter, now_ms)])
        self.by_cells = filter_sql.is_of_cells(letter_filter)
        self._begin = int(max(-(1 << 62), filter_sql.find_earliest_due_ms(letter_filter, now_ms))) - 1, 1 << 62
        self._last = int(min(1 << 62, predicate.find_latest_due_ms(letter_filter, now_ms)))
        maybe = join_conditions("AND", [among, filter_sql.build_cell_condition(letter_filter, now_ms)])
        # What is meant of each cell then follows on each other.
        self._is_in_order = filter_sql.is_of_cells_and_due(letter_filter)
        if self._is_in_order and not self.by_cells:
            # What rests is never due.
            self._last = min(self._last, RESTING_SORT_MIN - 1)
        rest = f"FROM cells c WHERE c.letters > 0 AND {maybe.sql}"
        found = select_rows(connection, ("c.id", "c.letters"), rest, maybe.parameters)
        self.cells: dict[int, int] = dict(found)
        self.total = sum(self.cells.values())
        # Of no use where they are about as many as the cells leave.
        most = min(COUNT_MAX, self.total // _SPARSE + _FIRST_STRETCH)
        self._candidates = (
            None if self._is_in_order or not self.cells else find_candidate_ids(connection, letter_filter, most, now_ms)
        )

    def find_page(self, after: Position | None, limit: int) -> Found:
        """Find the first letters behind a position: up to `limit`, or fewer and where to look next when the time is over."""
        begin = max(after or _IN_ORDER, self._begin)
        if not self.cells:
            return Found([], None)
        is_of_cells = self._is_in_few_cells and limit <= _OF_EACH_MAX
        if self.is_listed or is_of_cells:
            found = (self._first_of_cells if is_of_cells else self._list_positions)(begin, limit + 1)
            return Found(found[:limit], found[limit - 1] if len(found) > limit else None)
        found, deadline = [], Deadline(PAGE_S)
        for stretch in self._stretches(begin):
            rest = f"{stretch.sql} AND {self._exact.sql} ORDER BY l.sort, l.id LIMIT ?"
            wanted = limit + 1 - len(found)
            found += _positions(self._connection, rest, (*stretch.parameters, *self._exact.parameters, wanted))
            if len(found) > limit:
                return Found(found[:limit], found[limit - 1])
            if stretch.end is not None and deadline.has_passed():
                return Found(found, stretch.end)
        return Found(found, None)

    def count(self, first: Found | None = None) -> tuple[int, bool]:
        if self.by_cells:
            return min(self.total, COUNT_MAX), self.total > COUNT_MAX
        if self._is_in_few_cells:
            count = self._count_of_cells()
            return min(count, COUNT_MAX), count > COUNT_MAX
        count, begin, deadline = 0, self._begin, Deadline(COUNT_S)
        if first is not None and first.looked_to is not None and not self.is_listed:
            count, begin = len(first.letters), first.looked_to
        for stretch in [self._among_listed()] if self.is_listed else self._stretches(begin):
            one = f"SELECT count(*) FROM (SELECT 1 {stretch.sql} AND {self._exact.sql} LIMIT ?)"
            parameters = (*stretch.parameters, *self._exact.parameters, COUNT_MAX + 1 - count)
            count += int(self._connection.execute(one, parameters).fetchone()[0])
            if count > COUNT_MAX or (stretch.end is not None and deadline.has_passed()):
                return min(count, COUNT_MAX), True
        return count, False

    def count_by_cell(self) -> tuple[dict[int, int], bool]:
        """Count by cell the letters that the filter selects; the bool says whether some letters were not looked at."""
        if self.by_cells or not self.cells:
            return self.cells, False
        counts: dict[int, int] = {}
        deadline = Deadline(PAGE_S)
        for stretch in [self._among_listed()] if self.is_listed else self._stretches(self._begin):
            rest = f"{stretch.sql} AND {self._exact.sql} GROUP BY l.cell"
            parameters = (*stretch.parameters, *self._exact.parameters)
            for cell, n in select_rows(self._connection, ("l.cell", "count(*)"), rest, parameters):
                counts[cell] = counts.get(cell, 0) + n
            if stretch.end is not None and deadline.has_passed():
                return counts, True
        return counts, False

    @property
    def is_listed(self) -> bool:
        return self._candidates is not None or self.total <= COUNT_MAX

    def _among_listed(self) -> _Stretch:
        if self._candidates is not None:
            return _Stretch(f"{_FROM} WHERE l.id IN (SELECT value FROM json_each(?))", (bind_ids(self._candidates),), None)
        return _Stretch(f"{_OF_CELLS} AND l.sort > ? AND l.sort <= ?", (bind_ids(self.cells), self._begin[0], self._last), None)

    def _list_positions(self, begin: Position, limit: int) -> list[Position]:
        among = self._among_listed()
        rest = f"{among.sql} AND (l.sort, l.id) > (?, ?) AND {self._exact.sql} ORDER BY l.sort, l.id LIMIT ?"
        return _positions(self._connection, rest, (*among.parameters, *begin, *self._exact.parameters, limit))

    @property
    def _is_in_few_cells(self) -> bool:
        """Whether all from one moment to another of a few cells are meant: then no letter's row is looked at."""
        return self._is_in_order and len(self.cells) <= _CELLS_MAX

    def _count_of_cells(self) -> int:
        """How many all cells have from one moment to another, at most one more than are counted."""
        statement = (
            "SELECT count(*) FROM (SELECT 1 FROM letters INDEXED BY letters_by_cell"
            " WHERE cell IN (SELECT value FROM json_each(?)) AND sort > ? AND sort <= ? LIMIT ?)"
        )
        within = bind_ids(self.cells), self._begin[0], self._last, COUNT_MAX + 1
        return int(self._connection.execute(statement, within).fetchone()[0])

    def _first_of_cells(self, begin: Position, limit: int) -> list[Position]:
        """The first letters of all cells: those of each lie in order.

        Only cells whose own first letter is among the first have any of these, and none behind the last of such letters.
        """
        firsts = self._of_each(self.cells, begin, self._last, 1)[:limit]
        last = firsts[-1][0] if len(firsts) == limit else self._last
        found = self._of_each((cell for _, _, cell in firsts), begin, last, limit)
        return [(sort, letter) for sort, letter, _ in found[:limit]]

    def _of_each(self, cells: Iterable[int], begin: Position, last: int, limit: int) -> list[tuple[int, int, int]]:
        """The first letters of each of these cells, not behind `last`: sort, id and cell, in order."""
        statement = (
            "SELECT json_group_array(json(of_cell)) FROM (SELECT (SELECT json_group_array(json_array(sort, id, cell)) FROM ("
            "SELECT sort, id, cell FROM letters INDEXED BY letters_by_cell"
            " WHERE cell = j.value AND (sort, id) > (?, ?) AND sort <= ?"
            " ORDER BY sort, id LIMIT ?)) AS of_cell FROM json_each(?) j)"
        )
        row = self._connection.execute(statement, (*begin, last, limit, bind_ids(cells))).fetchone()
        return sorted((sort, letter, cell) for of_cell in orjson.loads(row[0]) for sort, letter, cell in of_cell)

    def _stretches(self, begin: Position) -> Iterator[_Stretch]:
        """All that come into question, in order, some thousands at a time."""
        everything = int(self._connection.execute("SELECT total(letters) FROM cells").fetchone()[0])
        sparse, wanted = everything / max(1, self.total), _FIRST_STRETCH
        among, parameters = (_OF_CELLS, (bind_ids(self.cells),)) if sparse > _SPARSE else (_BY_SORT, ())
        last = self._last
        while True:
            passed = min(_PASSED_MAX, int(wanted * sparse))
            end = self._connection.execute(
                "SELECT sort, id FROM letters INDEXED BY letters_by_sort WHERE (sort, id) > (?, ?) AND sort <= ?"
                " ORDER BY sort, id LIMIT 1 OFFSET ?", (*begin, last, passed),
            ).fetchone()  # fmt: skip
            bounds = (*begin, *(end or (last, 1 << 62)))
            began_s = monotonic_s()
            yield _Stretch(f"{among} AND (l.sort, l.id) > (?, ?) AND (l.sort, l.id) <= (?, ?)", (*parameters, *bounds), end)
            if end is None:
                return
            grows = min(_GROWS, _STRETCH_S / max(1e-6, monotonic_s() - began_s))
            begin, wanted = end, max(_STRETCH_MIN, min(_STRETCH_MAX, int(wanted * grows)))


def _positions(connection: sqlite3.Connection, rest: str, parameters: Sequence[object]) -> list[Position]:
    return [(sort, letter) for sort, letter in select_rows(connection, ("l.sort", "l.id"), rest, parameters)]


_FROM = "FROM letters l CROSS JOIN cells c ON c.id = l.cell"
_BY_SORT = "FROM letters l INDEXED BY letters_by_sort CROSS JOIN cells c ON c.id = l.cell WHERE 1"
_OF_CELLS = (
    "FROM letters l INDEXED BY letters_by_cell CROSS JOIN cells c ON c.id = l.cell"
    " WHERE l.cell IN (SELECT value FROM json_each(?))"
)


def build_scope_condition(scope: Scope, states: frozenset[str] | set[str]) -> Condition:
    """Build the condition for letters in some states that a viewer may see."""
    found = Condition(f"c.state IN ({','.join('?' * len(states))})", tuple(sorted(states)))
    if scope is None:
        return found
    of_teams = Condition(f"c.team IN ({','.join('?' * len(scope))})", tuple(sorted(scope)))
    return join_conditions("AND", [found, of_teams])


def apply_regrouping(connection: sqlite3.Connection, letter_filter: Filter) -> Filter:
    if any(term.field == GROUP for term in filter_sql.terms(letter_filter)):
        return replace_merged_groups(letter_filter, Regrouping.read_notes(connection))
    return letter_filter


def replace_merged_groups(letter_filter: Filter, grouping: Regrouping) -> Filter:
    """Replace each merged group in a filter by the group that it counts in now."""
    if isinstance(letter_filter, Term):
        if letter_filter.field != GROUP or isinstance(letter_filter.value, Range):
            return letter_filter
        return Term(GROUP, "", make_glob([grouping.resolve_group(letter_filter.value.parts[0])]))
    if isinstance(letter_filter, Not):
        return Not(replace_merged_groups(letter_filter.of, grouping))
    parts = [replace_merged_groups(each, grouping) for each in letter_filter.of]
    return all_of(parts) if isinstance(letter_filter, AllOf) else any_of(parts)
