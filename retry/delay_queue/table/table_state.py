"""The row that says whose fold a table is, how far it goes, and when it was last current; and whether to trust the table."""

from __future__ import annotations

import msgspec

from retry import format_versions
from retry.delay_queue.entry_keys import FIRST_KEY
from retry.delay_queue.table.interface import NEVER_FOLDED_MS, Identity
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
        """The value of its row."""
        return msgspec.msgpack.encode(self)


_decode = msgspec.msgpack.Decoder(TableState).decode


def decode(row: bytes, path: object) -> TableState:
    """The state that the table at `path` has written.

    Raises:
      TableUnreadable: the row is corrupt.
    """
    try:
        return _decode(row)
    except msgspec.MsgspecError as error:
        raise TableUnreadable(f"{path}: {error}") from error


def read(db: Database, identity: Identity) -> TableState:
    """The state of a table, which is a new one's where there are no rows at all.

    Raises:
      TableUnreadable: it is corrupt, or a first fold or a wipe was cut short.
    """
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
