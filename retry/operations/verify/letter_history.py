"""One letter: all that the topics say about it, in the order in which it was written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from retry.operations.verify.rows import DeliveryRow, EntryRow, LetterRow, OutcomeRow, Row, RowKind, TableRow


class RecordedLetter:
    """All rows of one letter.

    Attributes:
      dead_letter: its record on the dead-letter topic.
      delivered: committed deliveries, but for those that were returned since.
      returned: the latter: the letter rested there, and an operator had it retried or discarded from there.
      aborted: deliveries of transactions that were aborted.
      changes: puts and deletes of its entries, in the changelog's order; those of the shard in which it was put last come last.
      waiting: by partition of the changelog and hash of the key, entries that were not deleted.
      rewritten: puts of a key that was waiting already.
      table_rows: its entries in tables on disk.
    """

    __slots__ = (
        "aborted", "changes", "dead_letter", "delivered", "offset", "outcomes", "partition", "returned", "rewritten",
        "table_rows", "waiting",
    )  # fmt: skip

    def __init__(self, rows: list[Row]) -> None:
        by_kind: tuple[list[Any], ...] = ([], [], [], [], [], [], [])
        for row in rows:
            by_kind[row.kind].append(row)
        # The number of its topic, and the partition.
        self.partition, self.offset = rows[0][1:3], rows[0].offset
        self.dead_letter: LetterRow | None = next(iter(by_kind[RowKind.LETTER]), None)
        self.outcomes: list[OutcomeRow] = by_kind[RowKind.OUTCOME]
        committed: list[DeliveryRow] = by_kind[RowKind.DELIVERY]
        self.delivered = [row for row in committed if not row.returned]
        self.returned = [row for row in committed if row.returned]
        self.aborted = _select_aborted(by_kind[RowKind.UNCOMMITTED], committed)
        self.table_rows: list[TableRow] = by_kind[RowKind.TABLE]
        self.changes: list[EntryRow] = by_kind[RowKind.PUT] + by_kind[RowKind.DELETE]
        self.waiting: dict[tuple[int, int], EntryRow] = {}
        self.rewritten: list[EntryRow] = []
        self._replay_changes()

    def _replay_changes(self) -> None:
        # It is put into another shard where it returns from a parking topic, or where its key decides the shard from then on.
        put_ms = dict[int, int]()
        for row in self.changes:
            if row.kind == RowKind.PUT:
                put_ms[row.at_partition] = max(row.appended_ms, put_ms.get(row.at_partition, 0))
        order = lambda row: (put_ms.get(row.at_partition, 0), row.at_partition, row.at_offset)  # noqa: E731
        changes, self.changes = sorted(self.changes, key=order), []
        for row in changes:
            # A letter that was moved to another shard has the same key there.
            place = row.at_partition, row.key_hash
            before = self.waiting.get(place)
            if row.kind == RowKind.PUT:
                if before is not None and not _has_left_block(before, row):
                    self.rewritten.append(row)
                self.waiting[place] = row
            elif before is None or before.in_block or not row.in_block:
                self.waiting.pop(place, None)
            else:
                # Its block has ended, and it has got a record of its own before.
                continue
            self.changes.append(row)


def group_rows(rows: Iterable[Row]) -> Iterable[RecordedLetter]:
    """Rows, letter by letter."""
    by_letter: dict[Any, list[Row]] = {}
    for row in rows:
        by_letter.setdefault(row[1:4], []).append(row)
    return map(RecordedLetter, by_letter.values())


def _select_aborted(uncommitted: list[DeliveryRow], committed: list[DeliveryRow]) -> list[DeliveryRow]:
    if len(uncommitted) == len(committed):
        # Whoever reads everything sees at least what is committed.
        return []
    records = {row[5:8] for row in committed}
    return [row for row in uncommitted if row[5:8] not in records]


def _has_left_block(before: EntryRow, put: EntryRow) -> bool:
    """Whether an entry was put again as it was since others have left its block."""
    return before.in_block and not put.in_block and before.envelope_hash == put.envelope_hash
