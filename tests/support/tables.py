"""Tables for a test, and keys of entries in lanes."""

from __future__ import annotations

from pathlib import Path

from retry.delay_queue import entry as entries
from retry.delay_queue.table.interface import Identity, Row, Table
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
    return entries.lane(f"team {n}", TOPIC, "orders", ordered)


def plain_key(due_ms: int, offset: int = 0, lane: bytes = entries.COMMON) -> bytes:
    """The key of an entry that waits for nobody."""
    return entries.key(due_ms, entries.key_stem(TOPIC, 0), offset, lane)


def ordered_key(due_ms: int, offset: int, record_key: bytes = b"k", n: int = 0) -> bytes:
    """The key of an entry that waits for earlier letters of its record key, in the ordered lane `n`."""
    stem = entries.order("team", TOPIC, record_key) + entries.key_stem(TOPIC, 0)
    return entries.key(due_ms, stem, offset, lane(n, ordered=True))


def named_key(due_ms: int, version: int, name: bytes = b"n", n: int = 0) -> bytes:
    """The key of an entry with a name, in the named lane `n`; a version comes from the offset of that number."""
    stem, lane = entries.key_stem("schedules", 0), entries.named_lane(f"team {n}", "schedules", "orders")
    return entries.named_key(due_ms, entries.name("door", "schedules", name), version, stem, version, lane)


def cancel(version: int, name: bytes = b"n") -> Row:
    """A record that ends a name up to a version."""
    return entries.cancel(entries.name("door", "schedules", name), version, entries.key_stem("schedules", 0), version)


def everything(table: Table) -> dict[bytes, bytes]:
    """Every entry that waits, those behind others included."""
    behind = [(key, envelope) for _, key, envelope in table.behind(b"", ALL)]
    rows = table.page(b"", ALL) + behind
    assert len(dict(rows)) == len(rows)
    return dict(rows)
