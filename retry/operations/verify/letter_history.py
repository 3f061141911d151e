"""One letter: all that the topics say of it, in the order in which it was said."""

from __future__ import annotations

from collections.abc import Iterable

from retry.operations.verify.rows import Kind, Row


class Letter:
    """What is known of one letter.

    Attributes:
      found: its record on the dead-letter topic.
      sent, seen: deliveries; committed, and such as were undone.
      changes: puts and deletes of its entries, in the changelog's order.
      live: by hash of the key, entries that wait.
      again: puts of a key that was waiting already.
      stored: rows of tables on disk.
    """

    __slots__ = ("again", "changes", "found", "live", "offset", "outcomes", "place", "seen", "sent", "stored")

    def __init__(self, rows: list[Row]) -> None:
        by: tuple[list[Row], ...] = ([], [], [], [], [], [], [])
        for row in rows:
            by[row.kind].append(row)
        self.place, self.offset = rows[0][:2], rows[0].offset
        self.found = by[Kind.LETTER][0] if by[Kind.LETTER] else None
        self.outcomes, self.sent, self.stored = by[Kind.OUTCOME], by[Kind.SENT], by[Kind.STORED]
        self.seen = _undone(by[Kind.SEEN], self.sent)
        self.changes = by[Kind.PUT] + by[Kind.DELETE]
        self.live: dict[int, Row] = {}
        self.again: list[Row] = []
        self._fold()

    def _fold(self) -> None:
        self.changes.sort(key=_at)
        for row in self.changes:
            if row.kind == Kind.DELETE:
                self.live.pop(row.name, None)
                continue
            if row.name in self.live:
                self.again.append(row)
            self.live[row.name] = row

    def deletes(self) -> list[Row]:
        """Deletes of its entries."""
        return [row for row in self.changes if row.kind == Kind.DELETE]


def letters(rows: Iterable[Row]) -> Iterable[Letter]:
    """Rows, letter by letter."""
    found: dict[tuple[int, int, int], list[Row]] = {}
    for row in rows:
        found.setdefault(row[:3], []).append(row)
    return map(Letter, found.values())


def _undone(seen: list[Row], sent: list[Row]) -> list[Row]:
    if len(seen) == len(sent):
        # Whoever reads everything sees at least what is committed.
        return []
    committed = {row[5:8] for row in sent}
    return [row for row in seen if row[5:8] not in committed]


def _at(row: Row) -> tuple[int, int]:
    return row.at_partition, row.at_offset
