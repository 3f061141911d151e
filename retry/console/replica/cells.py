"""What letters have in common, under numbers, and how many letters each of these has; kept ready while letters come and go."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable

from retry import clock
from retry.console.replica.letter_record import WAITING, Cell
from retry.console.replica.sql_rows import ids, insert

_KNOWN_MAX = 50_000
_MINUTE_MS = 60_000
# So long outcomes are kept, too.
_HEARD_MS = 30 * 86_400_000
_COLUMNS = ", ".join(Cell._fields)
_INSERT = f"INSERT INTO cells (digest, group_id, {_COLUMNS}) VALUES (?, ?{', ?' * len(Cell._fields)})"
_SELECT = f"SELECT id, {_COLUMNS} FROM cells"

GroupOf = Callable[[Cell], str | None]


class Cells:
    """The tables `cells` and `due_minutes`, which count letters while these come and go; only for the thread that folds.

    Args:
      group_of: returns the group that letters of a cell count in, after merges and splits.
    """

    def __init__(self, connection: sqlite3.Connection, group_of: GroupOf) -> None:
        self._connection, self.group_of = connection, group_of
        self._ids: dict[Cell, int] = {}
        self._cells: dict[int, Cell] = {}
        self._letters: Counter[int] = Counter()
        self._times: dict[int, tuple[int, int]] = {}
        self._minutes: Counter[tuple[int, str]] = Counter()

    def id_of(self, cell: Cell) -> int:
        """The number of a cell, which is made where there is none."""
        if (found := self._ids.get(cell)) is not None:
            return found
        digest = cell.compute_digest()
        row = self._connection.execute("SELECT id FROM cells WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            made = self._connection.execute(_INSERT, (digest, self.group_of(cell), *cell))
            return self._cache_cell(int(made.lastrowid or 0), cell)
        return self._cache_cell(int(row[0]), cell)

    def cell_of(self, number: int) -> Cell:
        """The cell of a number."""
        if (found := self._cells.get(number)) is None:
            found = Cell(*self._connection.execute(f"{_SELECT} WHERE id = ?", (number,)).fetchone()[1:])
            self._cache_cell(number, found)
        return found

    def count(self, number: int, by: int, due_ms: int | None, times: Iterable[int | None] = ()) -> None:
        """A letter comes (1) or goes (-1).

        Args:
          times: of its failures, where it comes.
        """
        self._letters[number] += by
        known = [at for at in times if at is not None]
        if known:
            first, last = self._times.get(number, (known[0], known[0]))
            self._times[number] = min(first, *known), max(last, *known)
        if due_ms is not None and (cell := self.cell_of(number)).state == WAITING:
            self._minutes[due_ms // _MINUTE_MS, cell.team or ""] += by

    def write(self) -> None:
        """Write what was counted, before the transaction ends."""
        execute = self._connection.executemany
        execute("UPDATE cells SET letters = letters + ? WHERE id = ?", ((n, number) for number, n in self._letters.items() if n))
        execute(
            "UPDATE cells SET first_ms = min(coalesce(first_ms, ?1), ?1), last_ms = max(coalesce(last_ms, ?2), ?2) WHERE id = ?3",
            ((first, last, number) for number, (first, last) in self._times.items()),
        )
        minutes = [(minute, team, n) for (minute, team), n in self._minutes.items() if n]
        conflict = "ON CONFLICT (minute, team) DO UPDATE SET letters = letters + excluded.letters"
        insert(self._connection, "due_minutes", minutes, conflict)
        touched = ids({minute for minute, _, _ in minutes})
        gone = "DELETE FROM due_minutes WHERE minute IN (SELECT value FROM json_each(?)) AND letters = 0"
        self._connection.execute(gone, (touched,))
        self._letters.clear()
        self._times.clear()
        self._minutes.clear()

    def regroup(self) -> None:
        """Merges or splits have changed: let every cell count where it belongs now."""
        rows = self._connection.execute(f"{_SELECT} WHERE fingerprint IS NOT NULL").fetchall()
        groups = [(self.group_of(Cell(*row[1:])), row[0]) for row in rows]
        self._connection.executemany("UPDATE cells SET group_id = ?1 WHERE id = ?2 AND group_id IS NOT ?1", groups)

    def prune(self) -> None:
        """Forget cells that no letter has any more, and those of groups that nothing was heard of for long; after `write`."""
        self._connection.execute(
            "DELETE FROM cells WHERE letters = 0 AND (fingerprint IS NULL OR last_ms < ?)", (clock.wall_ms() - _HEARD_MS,)
        )
        self._ids.clear()
        self._cells.clear()

    def _cache_cell(self, number: int, cell: Cell) -> int:
        if len(self._ids) >= _KNOWN_MAX:
            self._ids.clear()
            self._cells.clear()
        self._ids[cell], self._cells[number] = number, cell
        return number
