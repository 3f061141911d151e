"""Rows of letters and of what they have in common, put and dropped in batches; what is kept ready of them changes with them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from retry import clock
from retry.console.folding.letter_record import HIDDEN, SUPERSEDED, WAITING, Cell, LetterRecord, long_headers
from retry.console.folding.sql import bind_ids, insert_rows, select_rows
from retry.record import Headers

# What letters have in common, under numbers, and how many letters each of these has; kept ready while letters come and go.

_KNOWN_MAX = 50_000
_MINUTE_MS = 60_000
# So long outcomes are kept, too.
_HEARD_MS = 30 * 86_400_000
_CELL_COLUMNS = ", ".join(Cell._fields)
_INSERT_CELL = f"INSERT INTO cells (digest, group_id, {_CELL_COLUMNS}) VALUES (?, ?{', ?' * len(Cell._fields)})"
_SELECT_CELL = f"SELECT id, {_CELL_COLUMNS} FROM cells"

GroupOf = Callable[[Cell], str | None]


class Cells:
    """The tables `cells` and `due_minutes`, which count letters while these come and go, by their group after merges and splits.
    """

    def __init__(self, connection: sqlite3.Connection, group_of: GroupOf) -> None:
        self._connection, self.group_of = connection, group_of
        self._ids: dict[Cell, int] = {}
        self._cells: dict[int, Cell] = {}
        self._letters: Counter[int] = Counter()
        self._times: dict[int, tuple[int, int]] = {}
        self._minutes: Counter[tuple[int, str]] = Counter()
        self._partitions: Counter[tuple[int, int]] = Counter()
        self._actions: set[tuple[int, str]] = set()

    def id_of(self, cell: Cell) -> int:
        """Return the number of a cell; insert the cell first where it has none."""
        if (found := self._ids.get(cell)) is not None:
            return found
        digest = cell.compute_digest()
        row = self._connection.execute("SELECT id FROM cells WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            made = self._connection.execute(_INSERT_CELL, (digest, self.group_of(cell), *cell))
            return self._cache_cell(int(made.lastrowid or 0), cell)
        return self._cache_cell(int(row[0]), cell)

    def cell_of(self, number: int) -> Cell:
        if (found := self._cells.get(number)) is None:
            found = Cell(*self._connection.execute(f"{_SELECT_CELL} WHERE id = ?", (number,)).fetchone()[1:])
            self._cache_cell(number, found)
        return found

    def count(self, number: int, by: int, due_ms: int | None, partition: int | None, times: Iterable[int | None] = ()) -> None:
        """Count a letter that comes (`by` is 1), with the times of its failures, or goes (-1)."""
        self._letters[number] += by
        if partition is not None:
            self._partitions[number, partition] += by
        known = [at for at in times if at is not None]
        if known:
            first, last = self._times.get(number, (known[0], known[0]))
            self._times[number] = min(first, *known), max(last, *known)
        if due_ms is not None and (cell := self.cell_of(number)).state == WAITING:
            self._minutes[due_ms // _MINUTE_MS, cell.team or ""] += by

    def note_action(self, number: int, action: str) -> None:
        """Remember that an action has moved a letter of a cell, also when no letter of it is left."""
        self._actions.add((number, action))

    def write(self) -> None:
        execute = self._connection.executemany
        execute("UPDATE cells SET letters = letters + ? WHERE id = ?", ((n, number) for number, n in self._letters.items() if n))
        execute(
            "UPDATE cells SET first_ms = min(coalesce(first_ms, ?1), ?1), last_ms = max(coalesce(last_ms, ?2), ?2) WHERE id = ?3",
            ((first, last, number) for number, (first, last) in self._times.items()),
        )
        minutes = [(minute, team, n) for (minute, team), n in self._minutes.items() if n]
        conflict = "ON CONFLICT (minute, team) DO UPDATE SET letters = letters + excluded.letters"
        insert_rows(self._connection, "due_minutes", minutes, conflict)
        touched = bind_ids({minute for minute, _, _ in minutes})
        gone = "DELETE FROM due_minutes WHERE minute IN (SELECT value FROM json_each(?)) AND letters = 0"
        self._connection.execute(gone, (touched,))
        places = [(*of, n) for of, n in self._partitions.items() if n]
        conflict = "ON CONFLICT (cell, partition) DO UPDATE SET letters = letters + excluded.letters"
        insert_rows(self._connection, "cell_partitions", places, conflict)
        touched = bind_ids({cell for cell, _, _ in places})
        gone = "DELETE FROM cell_partitions WHERE cell IN (SELECT value FROM json_each(?)) AND letters = 0"
        self._connection.execute(gone, (touched,))
        insert_rows(self._connection, "cell_actions", sorted(self._actions), "ON CONFLICT DO NOTHING")
        for counted in (self._letters, self._times, self._minutes, self._partitions, self._actions):
            counted.clear()

    def regroup(self) -> None:
        rows = self._connection.execute(f"{_SELECT_CELL} WHERE fingerprint IS NOT NULL").fetchall()
        groups = [(self.group_of(Cell(*row[1:])), row[0]) for row in rows]
        self._connection.executemany("UPDATE cells SET group_id = ?1 WHERE id = ?2 AND group_id IS NOT ?1", groups)

    def prune(self) -> None:
        """Forget cells that no letter has any more, and those of groups that nothing was heard of for long; after `write`."""
        self._connection.execute(
            "DELETE FROM cells WHERE letters = 0 AND (fingerprint IS NULL OR last_ms < ?)", (clock.wall_ms() - _HEARD_MS,)
        )
        self._connection.execute("DELETE FROM cell_actions WHERE cell NOT IN (SELECT id FROM cells)")
        self._ids.clear()
        self._cells.clear()

    def _cache_cell(self, number: int, cell: Cell) -> int:
        if len(self._ids) >= _KNOWN_MAX:
            self._ids.clear()
            self._cells.clear()
        self._ids[cell], self._cells[number] = number, cell
        return number


# Rows of letters, put and dropped in batches; what is kept ready of them changes with them.

_COLUMNS = ", ".join(f'"{name}"' for name in LetterRecord._fields)
_INTO = f"letters (id, {_COLUMNS})"
Changes = Mapping[str, LetterRecord | None]


class StoredLetter(NamedTuple):
    """A row of `letters`, as far as it is asked for when it is dropped; partition and offset are of the dead letter."""

    id: int
    place: str
    cell: int
    due_ms: int | None
    lineage: str | None
    named: str | None
    partition: int | None
    offset: int | None
    action: str | None
    step: int | None


_COLUMNS_OF_ROW = [f'"{name}"' for name in StoredLetter._fields]


class LetterTable:
    """The table `letters`, and the trigrams (built last, once all is there) and counts that change with it."""

    def __init__(self, connection: sqlite3.Connection, cells: Cells, *, is_indexed: bool) -> None:
        self._connection, self._cells, self.is_indexed = connection, cells, is_indexed
        self._long_headers: set[str] = set()
        self._next_id = int(connection.execute("SELECT coalesce(max(id), 0) FROM letters").fetchone()[0]) + 1
        self._first_without_text = self._next_id

    def note_indexed(self) -> None:
        """Note that all present messages have trigrams; from now on each new message gets them, too."""
        self.is_indexed, self._first_without_text = True, self._next_id

    def write_texts(self) -> None:
        if self.is_indexed and self._first_without_text < self._next_id:
            self._connection.execute(
                "INSERT INTO message_text (rowid, text) SELECT id, coalesce(folded, lower(message)) FROM letters"
                " WHERE id >= ? AND message IS NOT NULL", (self._first_without_text,),
            )  # fmt: skip
        self._first_without_text = self._next_id

    def apply_changes(self, changes: Changes) -> list[StoredLetter]:
        """Put letters, and drop those of which there is None; says which were there before."""
        before = self._read_rows_at(changes)
        self._delete(before)
        self._insert([record for record in changes.values() if record is not None])
        touched = {row.named for row in before} | {record.named for record in changes.values() if record is not None}
        for name in touched - {None}:
            self._settle_name(name)
        return before

    def note_long_headers(self, headers: Headers) -> None:
        """Remember which headers are not kept of each letter, and so cannot be asked for."""
        for name in long_headers(headers):
            if name not in self._long_headers:
                self._long_headers.add(name)
                self._connection.execute("INSERT OR IGNORE INTO long_headers VALUES (?)", (name,))

    def drop_where(self, condition: str, parameters: Sequence[object]) -> None:
        """Drop letters that a condition of SQL, which is not made from anybody's text, holds for."""
        found = select_rows(self._connection, _COLUMNS_OF_ROW, f"FROM letters WHERE {condition}", parameters)
        self._delete([StoredLetter(*row) for row in found])

    def _read_rows_at(self, places: Iterable[str]) -> list[StoredLetter]:
        rest = "FROM letters WHERE place IN (SELECT value FROM json_each(?))"
        return [StoredLetter(*row) for row in select_rows(self._connection, _COLUMNS_OF_ROW, rest, (bind_ids(places),))]

    def _delete(self, gone: Sequence[StoredLetter]) -> None:
        if not gone:
            return
        among = bind_ids(row.id for row in gone)
        if self.is_indexed:
            self._connection.execute(
                "INSERT INTO message_text (message_text, rowid, text) SELECT 'delete', id, coalesce(folded, lower(message))"
                " FROM letters WHERE id IN (SELECT value FROM json_each(?)) AND id < ? AND message IS NOT NULL",
                (among, self._first_without_text),
            )  # fmt: skip
        self._connection.execute("DELETE FROM letters WHERE id IN (SELECT value FROM json_each(?))", (among,))
        for row in gone:
            self._cells.count(row.cell, -1, row.due_ms, row.partition)

    def _insert(self, records: Sequence[LetterRecord]) -> None:
        first, id_of, count = self._next_id, self._cells.id_of, self._cells.count
        self._next_id += len(records)
        new = [(n, record[0], id_of(record.cell), *record[2:]) for n, record in enumerate(records, first)]
        insert_rows(self._connection, _INTO, new)
        for row, record in zip(new, records, strict=True):
            count(row[2], 1, record.due_ms, record.partition, (record.failed_ms, record.first_failed_ms))
            if record.action is not None:
                self._cells.note_action(row[2], record.action)

    def _settle_name(self, name: str | None) -> None:
        """Let only the greatest version of a name wait, and supersede the others; where a cancel is the greatest, none waits."""
        of_name = self._connection.execute(
            "SELECT id, cell, due_ms, partition FROM letters WHERE named = ? ORDER BY version DESC", (name,)
        ).fetchall()
        for n, (letter, number, due_ms, partition) in enumerate(of_name):
            cell = self._cells.cell_of(number)
            wanted = cell.state if cell.state == HIDDEN else WAITING if n == 0 else SUPERSEDED
            if cell.state != wanted:
                other = self._cells.id_of(cell._replace(state=wanted))
                self._connection.execute("UPDATE letters SET cell = ? WHERE id = ?", (other, letter))
                self._cells.count(number, -1, due_ms, partition)
                self._cells.count(other, 1, due_ms, partition)
