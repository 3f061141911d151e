"""What is promised of tables: each is the fold of the changelog up to its offset, but for what was swept since."""

from __future__ import annotations

from retry.delay_queue.entry_keys import DUE_MS_MAX, NAMED, name_of
from retry.delay_queue.table import named_entries
from retry.delay_queue.table.changelog_records import OF_ACTIONS
from retry.testing.memory_table import MemoryTable
from tests.simulation.ledger import Row, Violation
from tests.support.tables import list_rows


def check(name: str, table: MemoryTable, rows: list[Row], stable: int) -> None:
    """Compare a table with committed rows, of which none is missing because it was compacted.

    Raises:
      Violation: they differ.
    """
    if table.next_offset > stable:
        raise Violation(f"table: {name} is at {table.next_offset}, and nobody may read beyond {stable}")
    fold, later = dict[bytes, bytes | None](), set[bytes]()
    for offset, key, value in sorted(rows, key=lambda row: row[0]):
        if offset < table.next_offset:
            fold[key] = value
        else:
            later.add(key)
    live = {key: value for key, value in fold.items() if value is not None}
    waiting = list_rows(table)
    if len(waiting) != table.waiting:
        raise Violation(f"table: {name} counts {table.waiting} and has {len(waiting)}")
    found = dict(waiting)
    found |= list_superseded_rows(name, table, found)
    found |= table.controls
    for kind in OF_ACTIONS:
        found |= dict(table.list_slices(kind, 1 << 30))
    for key in found.keys() | live.keys():
        if found.get(key) != live.get(key) and key not in later:
            what = "lacks" if key not in found else "has" if key not in live else "has another"
            raise Violation(f"table: {name}, folded up to {table.next_offset}, {what} {key.hex()}")


def list_superseded_rows(of: str, table: MemoryTable, found: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Rows of those that count no more and of cancels, and whether just the greatest of each name waits."""
    rows = {key: table._rows[named_entries.build_superseded_key(key)] for key in table.list_superseded(1 << 30)}
    cancels = {
        key: table._rows[named_entries.build_remembered_key(key)] for key in table.expired_cancels(DUE_MS_MAX - 1, 1 << 30)
    }
    waits = {key for key in found if key[0] == NAMED}
    greatest: dict[bytes, bytes] = {}
    for key in sorted([*rows, *cancels, *waits], key=named_entries.rank):
        greatest[name_of(key)] = key
    if {*waits, *cancels} != set(greatest.values()):
        raise Violation(f"table: {of} has not the greatest of each name")
    return rows | cancels
