"""Entries with a name: of those of one name only the greatest waits, and none ends before those that it superseded.

Where they are delivered to is their entry source's business, and not read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from retry.clock import iso
from retry.delay_queue.entry_keys import CANCEL
from retry.operations.verify.context import VerifyContext
from retry.operations.verify.findings import HELD, TABLE, UNCHECKED, Finding
from retry.operations.verify.letter_history import RecordedLetter
from retry.operations.verify.rows import NAMES, EntryRow, RowKind


def is_named(context: VerifyContext, letter: RecordedLetter) -> bool:
    """Whether these rows are of one name, and not of one letter."""
    return context.names.topics[letter.partition[0]] == NAMES


def find_waiting(context: VerifyContext, letter: RecordedLetter) -> EntryRow | None:
    """Find the greatest version among the waiting entries of a name; None where there is none, or it is a cancel."""
    return _find_effective_entry(context, letter.waiting.values())


def check_name(context: VerifyContext, letter: RecordedLetter) -> Iterator[Finding]:
    """Everything that is wrong with a name, and what cannot be checked."""
    yield from _find_revived(context, letter)
    yield from _stuck(context, letter)
    if context.tables and (letter.changes or letter.table_rows):
        yield from _tables(context, letter)


def _find_revived(context: VerifyContext, letter: RecordedLetter) -> Iterator[Finding]:
    """An entry that counts ended while an earlier one still stood there, which counts again now."""
    entries: dict[int, EntryRow] = {}
    for row in letter.changes:
        if row.kind == RowKind.PUT:
            entries[row.key_hash] = row
            continue
        ended = entries.pop(row.key_hash, None)
        rank = partial(_rank, context)
        if ended is not None and row.in_scope and entries and max(map(rank, entries.values())) < rank(ended):
            left = context.names.record(max(entries.values(), key=rank))
            yield "torn", f"{context.names.record(row)}: ended an entry with a name, and left an earlier one at {left}"


def _stuck(context: VerifyContext, letter: RecordedLetter) -> Iterator[Finding]:
    row = find_waiting(context, letter)
    if row is None or not row.in_scope or row.due_ms >= context.stuck_before_ms:
        return
    lane = context.names.lane_of(row)
    if context.names.is_held(row):
        yield UNCHECKED, HELD
    elif lane is not None and (why := context.named_blocked(lane)):
        yield UNCHECKED, f"due, and blocked: {why}"
    else:
        yield "stuck", f"{context.names.record(row)}: entry with a name, due at {iso(row.due_ms)}, still waits"


def _tables(context: VerifyContext, letter: RecordedLetter) -> Iterator[Finding]:
    """Rows on disk that are not the one that counts; names that have a record behind a table's offset are passed over."""
    partition = (letter.changes or letter.table_rows)[0].at_partition
    for table, next_offset in context.tables.get(partition, ()):
        if any(row.at_offset >= next_offset for row in letter.changes):
            continue
        row = find_waiting(context, letter)
        expected = {row.key_hash: row.envelope_hash} if row else {}
        in_table = {row.key_hash: row.envelope_hash for row in letter.table_rows if row.table == table}
        if in_table != expected:
            more = len(in_table) - len(expected)
            what = "has another row" if more == 0 else "lacks a row" if more < 0 else "has a row too many"
            where = context.names.record(letter.changes[0]) if letter.changes else f"changelog partition {partition}"
            yield TABLE, f"{table}: {what}: of the name of {where}"


def _find_effective_entry(context: VerifyContext, rows: Iterable[EntryRow]) -> EntryRow | None:
    greatest = max(rows, key=partial(_rank, context), default=None)
    return None if greatest is None or _is_cancel(context, greatest) else greatest


def _rank(context: VerifyContext, row: EntryRow) -> tuple[int, bool, int]:
    return row.version, _is_cancel(context, row), row.due_ms


def _is_cancel(context: VerifyContext, row: EntryRow) -> bool:
    return context.names.lanes[row.lane] == CANCEL
