"""What is said of blocks, said of each of their entries: whoever keeps the ledger knows no blocks.

That an explosion changes nothing is held here: what stays of a block is put again as it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from retry.delay_queue import blocks, entry_keys
from retry.delay_queue.envelopes import Entry
from retry.testing.kafka import MemoryRecord, Transaction
from tests.simulation.violation import want

# Offset, key and value of a changelog record.
Row = tuple[int, bytes, bytes | None]


class Seen(NamedTuple):
    """A transaction as the ledger sees it.

    Attributes:
      again: by shard, rows that say of entries of ended blocks what stood there before: all that compaction leaves of them.
      put, exploded: how many blocks were put, and ended with entries that stay.
    """

    transaction: Transaction
    again: list[tuple[int, Row]]
    put: int
    exploded: int


def by_entry(transaction: Transaction, changelog: str, waiting: dict[int, list[Row]]) -> Seen:
    """Return the same transaction without blocks.

    Args:
      waiting: committed rows of each shard, without blocks.
    """
    own = [r for r in transaction.records if r.topic() == changelog]
    ended = [r for r in own if blocks.is_block(r.key() or b"") and r.value() is None]
    if not any(blocks.is_block(r.key() or b"") for r in own):
        return Seen(transaction, [], 0, 0)
    leaving = {(r.partition(), key) for r in ended for key in blocks.list_keys(r.key() or b"")}
    puts = {(r.partition(), r.key() or b""): value for r in own if (value := r.value()) is not None}
    again = {place: value for place, value in puts.items() if place in leaving}
    for (shard, key), envelope in again.items():
        before = max((row for row in waiting.get(shard, []) if row[1] == key), default=None, key=lambda row: row[0])
        want(before is not None and before[2] == envelope, "changed", f"{key.hex()} is another one after its block has ended")
    every = [each for r in transaction.records for each in _entries_of(r, changelog)]
    records = [each for each in every if each.topic() != changelog or (each.partition(), each.key()) not in again]
    put_again = {entry_keys.extract_letter(key) for _, key in puts if key[:1] == bytes([entry_keys.PLAIN])}
    exploded = sum(any(entry_keys.extract_letter(key) in put_again for key in blocks.list_keys(r.key() or b"")) for r in ended)
    put = sum(blocks.is_block(r.key() or b"") for r in own) - len(ended)
    rows = [(r.partition(), (r.offset(), r.key() or b"", r.value())) for r in own if (r.partition(), r.key()) in again]
    return Seen(dataclasses.replace(transaction, records=records), rows, put, exploded)


def _entries_of(record: MemoryRecord, changelog: str) -> Iterator[MemoryRecord]:
    if record.topic() != changelog or not blocks.is_block(record.key() or b""):
        yield record
        return
    for key, envelope in blocks.list_rows(record.key() or b"", record.value()):
        entry = Entry(changelog, key, envelope, [], None, "")
        yield MemoryRecord(entry, record.partition(), record.offset(), record.timestamp()[1])


def rows_by_entry(rows: Iterable[Row]) -> list[Row]:
    """Rows of a shard without blocks, in the order of their offsets."""
    found, of = list[Row](), dict[bytes, bytes]()
    for offset, key, value in rows:
        for entry, envelope in blocks.list_rows(key, value):
            if envelope is not None:
                of[entry] = key
            elif of.get(entry, key) != key:
                # Its block has ended, and it has a record of its own.
                continue
            found.append((offset, entry, envelope))
    return found
