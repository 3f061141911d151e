"""Kinds of failures that were not there before, and resolved ones that failed again: what a webhook is told of.

Whoever asks again and again pays for what is new alone, however many kinds there are.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from retry.console.replica import note_records


class Seen(NamedTuple):
    """Up to where somebody has looked; of another file all is looked at again.

    Attributes:
      cell, outcome_cell: numbers of the last ones.
    """

    file_id: str = ""
    cell: int = 0
    outcome_cell: int = 0


class Kind(NamedTuple):
    """Failures with one fingerprint, and the group that they count in."""

    fingerprint: str
    group: str


def since(connection: sqlite3.Connection, file_id: str, seen: Seen) -> tuple[Seen, list[Kind]]:
    """Kinds of what came since then, some of which may have been there before; and up to where that is."""
    if seen.file_id != file_id:
        seen = Seen(file_id)
    found: set[Kind] = set()
    numbers = []
    for table, last in (("cells", seen.cell), ("outcome_cells", seen.outcome_cell)):
        rows = connection.execute(f"SELECT id, fingerprint, group_id FROM {table} WHERE id > ?", (last,)).fetchall()
        numbers.append(max((row[0] for row in rows), default=last))
        found.update(Kind(fingerprint, group) for _, fingerprint, group in rows if fingerprint and group)
    return Seen(file_id, *numbers), sorted(found)


def find_reopened(connection: sqlite3.Connection) -> dict[str, int]:
    """Groups that somebody has resolved and that failed later, with the moment until which they were."""
    last_ms = (
        "SELECT max(last_ms) FROM (SELECT last_ms FROM cells WHERE group_id = ?1"
        " UNION ALL SELECT last_ms FROM outcome_cells WHERE group_id = ?1)"
    )
    notes = {
        key.removeprefix(note_records.RESOLVED): note_records.resolved(value).at_ms
        for key, value in note_records.list_under(connection, note_records.RESOLVED)
    }
    return {group: at_ms for group, at_ms in notes.items() if (connection.execute(last_ms, (group,)).fetchone()[0] or 0) > at_ms}
