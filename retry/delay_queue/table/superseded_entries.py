"""Rows of superseded entries and of cancels in a table on disk: where they begin, so that no scan looks for none."""

from __future__ import annotations

from retry.delay_queue.table import named_entries
from retry.delay_queue.table.rocksdb import Database, new_batch

_PAGE_ROWS = 10_000
# They lie far apart, among deleted rows: after so many of those, to step over them costs more than to write the few others again.
_RECLAIM_EVERY, _REWRITTEN_MAX = 2_000, 200
_EVERYTHING = 1 << 62


class Superseded:
    """Used under the lock of its table.

    Attributes:
      count: how many there are.
    """

    def __init__(self, db: Database) -> None:
        self._db, self.count, self._deleted = db, 0, 0
        # No row lies below.
        self._low, at = named_entries.END_SUPERSEDED, named_entries.FIRST_SUPERSEDED
        while rows := db.scan_keys(at, named_entries.END_SUPERSEDED, _PAGE_ROWS):
            self._low = min(self._low, rows[0])
            self.count, at = self.count + len(rows), rows[-1] + b"\0"

    def add_count(self, more: int) -> None:
        """Count so many more, or fewer."""
        self.count += more
        self._deleted -= min(0, more)

    def note_put(self, row: bytes) -> None:
        """The table has put this row."""
        self._low = min(self._low, row)

    def list_first_keys(self, rows_max: int) -> list[bytes]:
        """Keys of the superseded entries that come first."""
        if not self.count:
            return []
        if self._deleted >= _RECLAIM_EVERY and self.count <= _REWRITTEN_MAX:
            self._rewrite()
        rows = self._db.scan_keys(self._low, named_entries.END_SUPERSEDED, rows_max)
        self._low = rows[0] if rows else named_entries.END_SUPERSEDED
        return [named_entries.key_of(row) for row in rows]

    def _rewrite(self) -> None:
        batch, self._deleted = new_batch(), 0
        batch.delete_range(named_entries.FIRST_SUPERSEDED, named_entries.END_SUPERSEDED)
        for row, envelope in self._db.scan(self._low, named_entries.END_SUPERSEDED, _REWRITTEN_MAX, _EVERYTHING)[0]:
            batch.put(row, envelope)
        self._db.write(batch)


class RememberedCancels:
    """Rows of cancels that count, by until when they are remembered; used under the lock of its table."""

    def __init__(self, db: Database) -> None:
        # No row lies below.
        self._db, self._low = db, named_entries.FIRST_REMEMBERED

    def note_row(self, row: bytes) -> None:
        """Know of a row that the table has put."""
        self._low = min(self._low, row)

    def expired_keys(self, now_ms: int, keys_max: int) -> list[bytes]:
        """Keys of the cancels that are remembered no more, those first that expired first."""
        expired = named_entries.remembered_until(now_ms)
        if self._low >= expired or not keys_max:
            return []
        rows = self._db.scan_keys(self._low, named_entries.END_REMEMBERED, keys_max)
        self._low = rows[0] if rows else named_entries.END_REMEMBERED
        return [named_entries.cancel_of(row) for row in rows if row < expired]
