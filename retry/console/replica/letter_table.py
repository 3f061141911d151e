"""Rows of letters, put and dropped in batches; what is kept ready of them changes with them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from retry.console.replica.cells import Cells
from retry.console.replica.letter_record import HIDDEN, SUPERSEDED, WAITING, LetterRecord, long_headers
from retry.console.replica.sql_rows import ids, insert, select_rows
from retry.record import Headers

_FIELDS = ("place", "cell", "sort", *LetterRecord._fields[3:])
_COLUMNS = ", ".join(f'"{name}"' for name in _FIELDS)
_INTO = f"letters (id, {_COLUMNS})"
Changes = Mapping[str, LetterRecord | None]


class GoneLetter(NamedTuple):
    """A letter that was dropped, as far as others want to know of it; partition and offset are of the dead letter."""

    place: str
    cell: int
    lineage: str | None
    partition: int | None
    offset: int | None


class _Row(NamedTuple):
    id: int
    place: str
    cell: int
    due_ms: int | None
    lineage: str | None
    named: str | None
    partition: int | None
    offset: int | None


_COLUMNS_OF_ROW = [f'"{name}"' for name in _Row._fields]


class LetterTable:
    """The table `letters`, and the trigrams and counts that change with it; only for the thread that folds.

    Args:
      is_indexed: whether messages have trigrams already: they are built last.
    """

    def __init__(self, connection: sqlite3.Connection, cells: Cells, *, is_indexed: bool) -> None:
        self._connection, self._cells, self.is_indexed = connection, cells, is_indexed
        self._long_headers: set[str] = set()
        self._next_id = int(connection.execute("SELECT coalesce(max(id), 0) FROM letters").fetchone()[0]) + 1

    def apply_changes(self, changes: Changes) -> list[GoneLetter]:
        """Put letters, and drop those of which there is None; says which were there before."""
        before = self._read_rows_at(changes)
        self._delete(before)
        self._insert([record for record in changes.values() if record is not None])
        touched = {row.named for row in before} | {record.named for record in changes.values() if record is not None}
        for name in touched - {None}:
            self._settle_name(name)
        return [GoneLetter(row.place, row.cell, row.lineage, row.partition, row.offset) for row in before]

    def note_long_headers(self, headers: Headers) -> None:
        """Remember which headers are not kept of each letter, and so cannot be asked for."""
        for name in long_headers(headers):
            if name not in self._long_headers:
                self._long_headers.add(name)
                self._connection.execute("INSERT OR IGNORE INTO long_headers VALUES (?)", (name,))

    def drop_where(self, condition: str, parameters: Sequence[object]) -> None:
        """Drop letters that a condition of SQL, which is not made from anybody's text, holds for."""
        found = select_rows(self._connection, _COLUMNS_OF_ROW, f"FROM letters WHERE {condition}", parameters)
        self._delete([_Row(*row) for row in found])

    def _read_rows_at(self, places: Iterable[str]) -> list[_Row]:
        rest = "FROM letters WHERE place IN (SELECT value FROM json_each(?))"
        return [_Row(*row) for row in select_rows(self._connection, _COLUMNS_OF_ROW, rest, (ids(places),))]

    def _delete(self, gone: Sequence[_Row]) -> None:
        if not gone:
            return
        among = ids(row.id for row in gone)
        if self.is_indexed:
            self._connection.execute(
                "INSERT INTO message_text (message_text, rowid, text) SELECT 'delete', id, coalesce(folded, lower(message))"
                " FROM letters WHERE id IN (SELECT value FROM json_each(?)) AND message IS NOT NULL", (among,),
            )  # fmt: skip
        self._connection.execute("DELETE FROM letters WHERE id IN (SELECT value FROM json_each(?))", (among,))
        for row in gone:
            self._cells.count(row.cell, -1, row.due_ms)

    def _insert(self, records: Sequence[LetterRecord]) -> None:
        first, id_of, count = self._next_id, self._cells.id_of, self._cells.count
        self._next_id += len(records)
        new = [(n, record[0], id_of(record.cell), *record[2:]) for n, record in enumerate(records, first)]
        insert(self._connection, _INTO, new)
        if self.is_indexed:
            self._connection.execute(
                "INSERT INTO message_text (rowid, text) SELECT id, coalesce(folded, lower(message)) FROM letters"
                " WHERE id >= ? AND message IS NOT NULL", (first,),
            )  # fmt: skip
        for row, record in zip(new, records, strict=True):
            count(row[2], 1, record.due_ms, (record.failed_ms, record.first_failed_ms))

    def _settle_name(self, name: str | None) -> None:
        """Let only the greatest version of a name wait, and supersede the others; where a cancel is the greatest, none waits."""
        of_name = self._connection.execute(
            "SELECT id, cell, due_ms FROM letters WHERE named = ? ORDER BY version DESC", (name,)
        ).fetchall()
        for n, (letter, number, due_ms) in enumerate(of_name):
            cell = self._cells.cell_of(number)
            wanted = cell.state if cell.state == HIDDEN else WAITING if n == 0 else SUPERSEDED
            if cell.state != wanted:
                other = self._cells.id_of(cell._replace(state=wanted))
                self._connection.execute("UPDATE letters SET cell = ? WHERE id = ?", (other, letter))
                self._cells.count(number, -1, due_ms)
                self._cells.count(other, 1, due_ms)
