"""Entries that keep an order: of each record key only the first that waits can be stuck, the others wait behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from retry.operations.verify.findings import Verdict
from retry.operations.verify.checks import overdue
from retry.operations.verify.context import Known
from retry.operations.verify.letter_history import Letter
from retry.operations.verify.rows import JUDGED, ORDERED, Row

_UNSIGNED = (1 << 64) - 1


def waiting(letter: Letter) -> list[tuple[int, ...]]:
    """Its waiting entries as rows of their record keys, for another `Spill`; where they lie in the changelog is left out."""
    ordered = [row for row in letter.live.values() if row.flags & ORDERED]
    return [] if letter.sent else [(0, 0, row.stamp & _UNSIGNED, row.kind, row.flags, *row[:3], *row[8:]) for row in ordered]


def stuck(known: Known, rows: Iterable[Row]) -> Iterator[Verdict]:
    """Of each record key the earliest letter, where it has been due for a while."""
    heads: dict[int, Row] = {}
    for row in rows:
        head = heads.setdefault(row.offset, row)
        if row[5:8] < head[5:8]:
            heads[row.offset] = row
    for row in heads.values():
        if row.flags & JUDGED and row.number < known.late_ms:
            yield from overdue(known, row._replace(topic=row.at_topic, partition=row.at_partition, offset=row.at_offset))
