"""The tables of one worker on disk, a directory for each changelog partition; and how an operator reads one beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from retry import format_versions
from retry.delay_queue import blocks
from retry.delay_queue.entry_keys import BLOCK, END_KEY, FIRST_KEY, NAMED, ORDERED, PLAIN
from retry.delay_queue.table import named_entries, ordered_entries, table_state
from retry.delay_queue.table.changelog_records import OF_ACTIONS
from retry.delay_queue.table.interface import CONTROL, Identity
from retry.delay_queue.table.rocksdb import Database, Memory, destroy_database
from retry.delay_queue.table.rocksdb_table import RocksTable
from retry.delay_queue.table.table_state import STATE_KEY
from retry.errors import DataDirUnusable


class RocksTables:
    """The tables of one worker in RocksDB, in a folder with a directory for each, named after topic and partition.

    A table that was not current for `age_ms_max` is wiped; with `adopt` those of another changelog of this name, too.
    """

    def __init__(
        self, folder: Path, topic: str, cluster_id: str, topic_id: str, memory: Memory, age_ms_max: int, *, adopt: bool = False
    ) -> None:
        self._folder, self._topic, self._memory, self.age_ms_max = folder, topic, memory, age_ms_max
        self._cluster_id, self._topic_id, self._adopt = cluster_id, topic_id, adopt

    def open(self, partition: int, now_ms: int) -> RocksTable:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DataDirUnusable(str(self._folder), str(error)) from error
        identity, path = Identity(self._cluster_id, self._topic_id, partition), self._path(partition)
        return RocksTable.open(path, identity, self._memory, now_ms, self.age_ms_max, adopt=self._adopt)

    def refuse_foreign(self, now_ms: int) -> None:
        """Open and close one of the tables that are there, before all else; raises ChangelogReplaced where it is foreign."""
        partitions = [path.name.removeprefix(f"{self._topic}-") for path in self._folder.glob(f"{self._topic}-*")]
        for partition in sorted(int(name) for name in partitions if name.isdecimal())[:1]:
            self.open(partition, now_ms).close()

    def delete_table(self, partition: int) -> None:
        destroy_database(self._path(partition))

    def _path(self, partition: int) -> Path:
        return self._folder / f"{self._topic}-{partition}"


# Reads a table on disk for an operator, while its worker may have it open.

_PAGE, _EVERYTHING = 1_000, 1 << 62
_ENTRIES = tuple(bytes([kind]) for kind in (PLAIN, ORDERED, NAMED, BLOCK))
_KINDS = frozenset((STATE_KEY, *_ENTRIES, *ordered_entries.ROW_KINDS, *named_entries.ROW_KINDS, CONTROL, *OF_ACTIONS))


class Stored(NamedTuple):
    """A table as it lies on disk; `usable` if its format is the one that this version reads.

    Attributes:
      rows: of its entries, those that wait behind another too, but none that is superseded.
      strange: keys of rows that no table has.
    """

    usable: bool
    identity: Identity
    next_offset: int
    waiting: int
    current_at_ms: int
    rows: Iterator[tuple[bytes, bytes]]
    strange: Iterator[bytes]


@contextmanager
def open_stored(path: Path, scratch: Path, memory: Memory) -> Iterator[Stored | None]:
    """Open for reading a table that its worker may have open; None where it has no state. Raises TableUnreadable if corrupt."""
    db = Database(path, memory, beside=scratch)
    try:
        row = db.get(STATE_KEY)
        if row is None:
            yield None
            return
        state = table_state.decode(row, path)
        rows = _scan_rows(db, ordered_entries.FIRST_BEHIND, ordered_entries.END_BEHIND)
        behind = ((ordered_entries.key_of(row), envelope) for row, envelope in rows)
        yield Stored(
            state.format in format_versions.TABLE.reads, Identity(*state.identity), state.next_offset, state.waiting,
            state.current_at_ms,
            chain(_list_entries(_scan_rows(db, FIRST_KEY, END_KEY)), behind),
            (key for key, _ in _scan_rows(db, b"", b"\xff") if key[:1] not in _KINDS),
        )  # fmt: skip
    finally:
        db.close()


def _list_entries(rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    return ((key, envelope) for row in rows for key, envelope in blocks.list_rows(*row) if envelope is not None)


def _scan_rows(db: Database, at: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    while rows := db.scan(at, end, _PAGE, _EVERYTHING)[0]:
        yield from rows
        at = rows[-1][0] + b"\0"
