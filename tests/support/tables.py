"""Tables for a test, and keys of entries in lanes."""

from __future__ import annotations

from pathlib import Path

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.table.interface import ChangelogRow, Identity, Table
from retry.delay_queue.table.rocksdb_table import Memory, RocksTable

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
ALL = 1 << 30
IDENTITY = Identity("cluster", "topic", 0)
MEMORY = Memory(8 << 20)
TOPIC = "orders.DLT"


def rocks(path: Path) -> RocksTable:
    """The table at a path, opened as a worker would."""
    return RocksTable.open(path, IDENTITY, MEMORY, NOW_MS, DAY_MS)


def lane(n: int, ordered: bool = False) -> bytes:
    """One of many lanes."""
    return entry_keys.lane(f"team {n}", TOPIC, "orders", ordered)


def plain_key(due_ms: int, offset: int = 0, lane: bytes = entry_keys.COMMON) -> bytes:
    """The key of an entry that waits for nobody."""
    return entry_keys.build_key(due_ms, entry_keys.build_key_stem(TOPIC, 0), offset, lane)


def ordered_key(due_ms: int, offset: int, record_key: bytes = b"k", n: int = 0) -> bytes:
    """The key of an entry that waits for earlier letters of its record key, in the ordered lane `n`."""
    stem = entry_keys.hash_record_key("team", TOPIC, record_key) + entry_keys.build_key_stem(TOPIC, 0)
    return entry_keys.build_key(due_ms, stem, offset, lane(n, ordered=True))


def named_key(due_ms: int, version: int, name: bytes = b"n", n: int = 0) -> bytes:
    """The key of an entry with a name, in the named lane `n`; a version comes from the offset of that number."""
    stem, lane = entry_keys.build_key_stem("schedules", 0), entry_keys.build_named_lane(f"team {n}", "schedules", "orders")
    return entry_keys.build_named_key(due_ms, entry_keys.hash_name("door", "schedules", name), version, stem, version, lane)


def cancel(version: int, name: bytes = b"n", until_ms: int = 0) -> ChangelogRow:
    """A record that ends a name up to a version, and is remembered for a while."""
    stem = entry_keys.build_key_stem("schedules", 0)
    return envelopes.build_cancel(entry_keys.hash_name("door", "schedules", name), version, stem, version, until_ms)


def everything(table: Table) -> dict[bytes, bytes]:
    """Every entry that waits, those behind others included."""
    rows = list_rows(table)
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def list_rows(table: Table) -> list[tuple[bytes, bytes]]:
    """List the rows of a table; where it has folded a part of a transaction that ends a block, some are there twice."""
    return [row[1:] for row in [*table.scan_entries(b"", ALL), *table.page_behind(b"", ALL)]]
