"""Entries that keep an order: of each record key only the first that waits can be stuck, the others wait behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from retry.operations.verify.checks import overdue
from retry.operations.verify.context import VerifyContext
from retry.operations.verify.findings import Finding
from retry.operations.verify.letter_history import RecordedLetter
from retry.operations.verify.rows import UNKNOWN, EntryRow


def list_waiting(letter: RecordedLetter) -> list[EntryRow]:
    """List the waiting entries of a letter that keep an order; none once it is delivered."""
    return [] if letter.delivered else [row for row in letter.waiting.values() if row.ordering_key != UNKNOWN]


def stuck(context: VerifyContext, rows: Iterable[Any]) -> Iterator[Finding]:
    """Check whether the earliest entry of each record key still waits though it has been due for a minute."""
    heads: dict[int, EntryRow] = {}
    for row in rows:
        head = heads.setdefault(row.ordering_key, row)
        if row[1:4] < head[1:4]:
            heads[row.ordering_key] = row
    for row in heads.values():
        yield from overdue(context, row)
