"""The superseded rows of a table on disk: how many there are, and where the first is, so that none cost nothing."""

from __future__ import annotations

from retry.delay_queue.table import named_entries
from retry.delay_queue.table.rocksdb import Database, new_batch

_PAGE_ROWS = 10_000
# They lie far apart, among those that ended: beyond so many, stepping over these costs more than to write the others anew.
_RECLAIM_EVERY, _ANEW_MAX = 2_000, 200
_EVERYTHING = 1 << 62


class Superseded:
    """Looked at under the lock of its table.

    Attributes:
      count: how many there are.
    """

    def __init__(self, db: Database) -> None:
        self._db, self.count, self._ended = db, 0, 0
        # No row lies below.
        self._low, at = named_entries.END_SUPERSEDED, named_entries.FIRST_SUPERSEDED
        while found := db.keys(at, named_entries.END_SUPERSEDED, _PAGE_ROWS):
            self._low = min(self._low, found[0])
            self.count, at = self.count + len(found), found[-1] + b"\0"

    def changed(self, more: int) -> None:
        """There are so many more of them now, or fewer."""
        self.count += more
        self._ended -= min(0, more)

    def put(self, row: bytes) -> None:
        """One was put."""
        self._low = min(self._low, row)

    def keys(self, rows_max: int) -> list[bytes]:
        """Of the entries of the first rows."""
        if not self.count:
            return []
        if self._ended >= _RECLAIM_EVERY and self.count <= _ANEW_MAX:
            self._write_anew()
        found = self._db.keys(self._low, named_entries.END_SUPERSEDED, rows_max)
        self._low = found[0] if found else named_entries.END_SUPERSEDED
        return [named_entries.key_of(row) for row in found]

    def _write_anew(self) -> None:
        batch, self._ended = new_batch(), 0
        batch.delete_range(named_entries.FIRST_SUPERSEDED, named_entries.END_SUPERSEDED)
        for row, envelope in self._db.scan(self._low, named_entries.END_SUPERSEDED, _ANEW_MAX, _EVERYTHING)[0]:
            batch.put(row, envelope)
        self._db.write(batch)
