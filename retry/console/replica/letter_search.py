"""Which letters a filter means, in order, a page at a time: found by their cells, by their keys or messages, or by walking.

Whatever is asked, an answer comes in a fraction of a second: who has looked for that long says how far it came.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from math import inf
from typing import NamedTuple

import orjson

from retry.clock import Deadline
from retry.console.replica import filter_sql
from retry.console.replica.candidates import candidates
from retry.console.replica.filter_sql import Condition
from retry.console.replica.rows import COUNT_MAX, Scope
from retry.console.replica.sql_rows import column, rows
from retry.operations.letter_filter import predicate
from retry.operations.letter_filter.syntax import Filter

# Of more cells none is looked into by itself: letters are walked over instead.
_CELLS_MAX = 1_000
_CHUNK, _WALKED = 500, 4_000
_FIRST_OF_CELL = 20
PAGE_S, COUNT_S = 0.07, 0.04
_IN_ORDER = (-(1 << 62), 0)

Position = tuple[int, int]


class Found(NamedTuple):
    """Some letters by `sort` and id, in order.

    Attributes:
      looked_to: the position behind which nothing was looked at; None where all was.
    """

    letters: list[Position]
    looked_to: Position | None


class LetterSearch:
    """One question, asked of one state of the file.

    Raises:
      FilterInvalid: it asks for what stays in Kafka.
    """

    def __init__(self, connection: sqlite3.Connection, scope: Scope, meant: Filter, now_ms: int) -> None:
        filter_sql.refuse_unkept(meant, set(column(connection, "name", "FROM long_headers")))
        self._connection, self._meant = connection, meant
        self._exact = _all(visible(scope, predicate.states(meant)), filter_sql.condition(meant, now_ms))
        self.by_cells = filter_sql.is_of_cells(meant)
        self._from = max(-(1 << 62), filter_sql.earliest_due_ms(meant, now_ms))
        self._to = min((1 << 62), predicate.latest_due_ms(meant, now_ms))
        maybe = _all(visible(scope, predicate.states(meant)), filter_sql.of_cells(meant, now_ms))
        found = rows(connection, ("c.id", "c.letters"), f"FROM cells c WHERE c.letters > 0 AND {maybe.sql}", maybe.parameters)
        self.cells: dict[int, int] = dict(found)
        self.total = sum(self.cells.values())
        self._candidates = None if self.by_cells or not self.cells else candidates(connection, meant)

    def page(self, after: Position | None, limit: int) -> Found:
        """The first letters behind a position; fewer where the time is over, and then where the next look begins."""
        begin = max(after or _IN_ORDER, (int(self._from) - 1, 1 << 62))
        if not self.cells:
            return Found([], None)
        if self.is_listed:
            found = self._listed(begin, limit + 1)
            return Found(found[:limit], found[limit - 1] if len(found) > limit else None)
        found, deadline = [], Deadline(PAGE_S)
        for chunk in self._chunks(begin):
            found += self._meant_of(chunk)
            if len(found) > limit:
                return Found(found[:limit], found[limit - 1])
            if deadline.passed():
                return Found(found, chunk[-1])
        return Found(found, None)

    def count(self) -> tuple[int, bool]:
        """How many are meant, at most `COUNT_MAX`; and whether there are more, or may be."""
        if self.by_cells:
            return min(self.total, COUNT_MAX), self.total > COUNT_MAX
        if self.is_listed:
            among, parameters = self._among_listed()
            statement = f"SELECT count(*) {among} AND {self._exact.sql}"
            return int(self._connection.execute(statement, (*parameters, *self._exact.parameters)).fetchone()[0]), False
        count, deadline = 0, Deadline(COUNT_S)
        for chunk in self._chunks((int(self._from) - 1, 1 << 62)):
            count += len(self._meant_of(chunk))
            if count > COUNT_MAX or deadline.passed():
                return min(count, COUNT_MAX), True
        return count, False

    def by_cell(self) -> tuple[dict[int, int], bool]:
        """How many letters of each cell are meant; and whether not all were looked at."""
        if self.by_cells or not self.cells:
            return self.cells, False
        counts: dict[int, int] = {}
        deadline = Deadline(PAGE_S)
        begin = int(self._from) - 1, 1 << 62
        chunks = self._parts(self._listed(_IN_ORDER, COUNT_MAX)) if self.is_listed else self._chunks(begin)
        for chunk in chunks:
            for cell, n in rows(
                self._connection, ("l.cell", "count(*)"), f"{_FROM} WHERE {_AMONG} AND {self._exact.sql} GROUP BY l.cell",
                (_ids(chunk), *self._exact.parameters),
            ):  # fmt: skip
                counts[cell] = counts.get(cell, 0) + n
            if deadline.passed():
                return counts, True
        return counts, False

    @property
    def is_listed(self) -> bool:
        """Whether so few letters come into question that each of them is looked at."""
        return self._candidates is not None or self.total <= COUNT_MAX

    def _among_listed(self) -> tuple[str, tuple[object, ...]]:
        if self._candidates is not None:
            return f"{_FROM} WHERE {_AMONG}", (orjson.dumps(self._candidates).decode(),)
        among = "FROM letters l INDEXED BY letters_by_cell CROSS JOIN cells c ON c.id = l.cell"
        return f"{among} WHERE l.cell IN (SELECT value FROM json_each(?))", (orjson.dumps(list(self.cells)).decode(),)

    def _listed(self, begin: Position, limit: int) -> list[Position]:
        among, parameters = self._among_listed()
        rest = f"{among} AND (l.sort, l.id) > (?, ?) AND {self._exact.sql} ORDER BY l.sort, l.id LIMIT ?"
        return _positions(self._connection, rest, (*parameters, *begin, *self._exact.parameters, limit))

    def _chunks(self, begin: Position) -> Iterator[list[Position]]:
        """All that come into question, in order, some at a time."""
        in_order = self._of_cells(begin) if len(self.cells) <= _CELLS_MAX else self._walk(begin)
        return self._parts(each for each in in_order)

    def _parts(self, letters: Iterator[Position] | list[Position]) -> Iterator[list[Position]]:
        each = iter(letters)
        while chunk := list(islice(each, _CHUNK)):
            yield chunk

    def _of_cells(self, begin: Position) -> Iterator[Position]:
        return merge(*(self._of_cell(cell, begin) for cell in self.cells))

    def _of_cell(self, cell: int, begin: Position) -> Iterator[Position]:
        limit = _FIRST_OF_CELL
        while found := _positions(
            self._connection, "FROM letters l INDEXED BY letters_by_cell WHERE cell = ? AND (sort, id) > (?, ?) AND sort <= ?"
            " ORDER BY sort, id LIMIT ?", (cell, *begin, self._limit_sort, limit),
        ):  # fmt: skip
            yield from found
            begin, limit = found[-1], _CHUNK

    def _walk(self, begin: Position) -> Iterator[Position]:
        cells = self.cells
        while found := rows(
            self._connection, ("sort", "id", "cell"),
            "FROM letters INDEXED BY letters_by_sort WHERE (sort, id) > (?, ?) AND sort <= ? ORDER BY sort, id LIMIT ?",
            (*begin, self._limit_sort, _WALKED),
        ):  # fmt: skip
            yield from ((sort, letter) for sort, letter, cell in found if cell in cells)
            begin = found[-1][0], found[-1][1]

    @property
    def _limit_sort(self) -> int:
        return (1 << 62) if self._to == inf else int(self._to)

    def _meant_of(self, chunk: list[Position]) -> list[Position]:
        if self.by_cells:
            return chunk
        rest = f"{_FROM} WHERE {_AMONG} AND {self._exact.sql}"
        return sorted(_positions(self._connection, rest, (_ids(chunk), *self._exact.parameters)))


def _positions(connection: sqlite3.Connection, rest: str, parameters: Sequence[object]) -> list[Position]:
    return [(sort, letter) for sort, letter in rows(connection, ("l.sort", "l.id"), rest, parameters)]


_FROM = "FROM letters l CROSS JOIN cells c ON c.id = l.cell"
_AMONG = "l.id IN (SELECT value FROM json_each(?))"


def visible(scope: Scope, states: frozenset[str] | set[str]) -> Condition:
    """Letters in these states that a viewer may see."""
    found = Condition(f"c.state IN ({','.join('?' * len(states))})", tuple(sorted(states)))
    if scope is None:
        return found
    return _all(found, Condition(f"c.team IN ({','.join('?' * len(scope))})", tuple(sorted(scope))))


def _all(one: Condition, other: Condition) -> Condition:
    return Condition(f"{one.sql} AND {other.sql}", one.parameters + other.parameters)


def _ids(chunk: list[Position]) -> str:
    return orjson.dumps([letter for _, letter in chunk]).decode()
