"""The row that says whose fold a table is, how far it goes, and when it was last current; and whether to trust the table."""

from __future__ import annotations

import msgspec

from retry import clock, format_versions
from retry.delay_queue.entry_keys import FIRST_KEY
from retry.delay_queue.table.interface import NEVER_FOLDED_MS, Identity, Table
from retry.delay_queue.table.rocksdb import Database
from retry.errors import TableUnreadable

# It sorts before all others.
STATE_KEY = b"\0"


class TableState(msgspec.Struct, array_like=True, frozen=True):
    """Written in the same batch as the rows that it speaks of."""

    format: int
    identity: Identity
    next_offset: int
    waiting: int
    current_at_ms: int

    def is_trusted(self, identity: Identity, now_ms: int, age_ms_max: int) -> bool:
        """Whether it can be read, is of this changelog partition, and was current so short a time ago, or never folded."""
        is_current = self.current_at_ms == NEVER_FOLDED_MS or abs(now_ms - self.current_at_ms) <= age_ms_max
        return self.format in format_versions.TABLE.reads and self.identity == identity and is_current

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


_decode = msgspec.msgpack.Decoder(TableState).decode


def decode(row: bytes, path: object) -> TableState:
    """Decode the state that the table at `path` has written; raises TableUnreadable where the row is corrupt."""
    try:
        return _decode(row)
    except msgspec.MsgspecError as error:
        raise TableUnreadable(f"{path}: {error}") from error


def read(db: Database, identity: Identity) -> TableState:
    row = db.get(STATE_KEY)
    if row is None:
        # Rows without a state are what a wipe leaves behind that was cut short.
        if db.scan(FIRST_KEY, b"\xff", 1, 1)[0]:
            raise TableUnreadable(f"{db.path}: rows without a state")
        return TableState(format_versions.TABLE.writes, identity, 0, 0, NEVER_FOLDED_MS)
    state = decode(row, db.path)
    if state.current_at_ms == NEVER_FOLDED_MS:
        raise TableUnreadable(f"{db.path}: its first fold was cut short")
    return state


# When a table was last all that could be read. One that was not for too long may have missed deletes: compaction drops a delete
# `delete.retention.ms` after it was written. Who reads on only after that never sees it, and what was deleted would come back
# to life.

class Freshness:
    """When one table was last current, as far as it stores that itself: only the end of the changelog makes it so, no record.

    It has no lock: a watchdog must never wait. A table that was not current for `stale_ms` may have missed deletes.
    """

    def __init__(self, table: Table, stale_ms: int) -> None:
        self.current_at_ms, self._stale_ms = min(table.current_at_ms, clock.wall_ms()), stale_ms

    def note_current(self, at_ms: int) -> None:
        # Once it was away for too long it stays so, whatever is seen later: a process may have been frozen, too.
        if at_ms - self.current_at_ms <= self._stale_ms:
            self.current_at_ms = max(at_ms, self.current_at_ms)

    def is_stale(self) -> bool:
        return clock.wall_ms() - self.current_at_ms > self._stale_ms
