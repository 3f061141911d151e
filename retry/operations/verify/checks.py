"""The rows of one letter → findings. Pure: what the checks go by is in `VerifyContext`.

Findings rest on records that are *in scope*: everything that was committed with them can be seen. Others are evidence only.
What retention or compaction has taken away is counted as unchecked, with the reason, and never as a finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from retry.clock import iso
from retry.delay_queue.entry_keys import CANCEL
from retry.operations.verify.context import HELD, READ_AGAIN, TABLE, UNCHECKED, Finding, RecordedLetter, VerifyContext
from retry.operations.verify.rows import NAMES, UNKNOWN, DeliveryRow, EntryRow, NameTable, Returned, RowKind


def find_lost(context: VerifyContext, letter: RecordedLetter) -> Iterator[Finding]:
    """Find a letter that was taken in and is nowhere, or that intake passed by without an outcome."""
    if not letter.outcomes:
        if letter.dead_letter and letter.dead_letter.in_scope and letter.offset >= context.outcomes_from(letter):
            yield "lost", f"{context.names.format_letter(letter.dead_letter)}: intake has passed it by, and it has no outcome"
        return
    outcome = letter.outcomes[0]
    if letter.waiting or letter.delivered or not outcome.in_scope or _in_flight(letter) or _never_existed(context, letter):
        return
    name, taken = context.names.format_letter(outcome), iso(outcome.taken_ms)
    if why := context.why_no_delivery(letter, _not_before_ms(letter)):
        yield UNCHECKED, why
    else:
        yield "lost", f"{name}: taken in at {taken}, not waiting, not retried, not parked"


def find_duplicate(context: VerifyContext, letter: RecordedLetter) -> Iterator[Finding]:
    """Find a letter that was delivered or taken in more than once, or that waits more than once."""
    names = context.names
    if context.may_be_read_again(letter) and len(letter.delivered) + len(letter.waiting) <= len(letter.outcomes):
        yield UNCHECKED, READ_AGAIN
        return
    # How often it was returned may be told behind what was sent since, which is not in scope then.
    delivered = [row for row in letter.delivered if row.in_scope]
    for what, rows in (("delivered", delivered), ("outcome written", letter.outcomes)):
        if len(rows) > 1:
            records = ", ".join(map(context.name_with_writer, rows[:4]))
            yield "duplicate", f"{names.format_letter(rows[0])}: {what} {len(rows)} times: {records}"
    if letter.rewritten:
        row = letter.rewritten[0]
        yield "duplicate", f"{names.format_letter(row)}: entry written again while it waited: {context.name_with_writer(row)}"
    if len(letter.waiting) > 1 and all(row.in_scope for row in letter.waiting.values()):
        row = next(iter(letter.waiting.values()))
        yield "duplicate", f"{names.format_letter(row)}: waits {len(letter.waiting)} times: {_entries(names, letter)}"


def find_torn(context: VerifyContext, letter: RecordedLetter) -> Iterator[Finding]:
    """Find a letter that was delivered without its delete, or deleted without a delivery."""
    if context.may_be_read_again(letter):
        return
    names = context.names
    delivery = next((row for row in letter.delivered if row.in_scope), None)
    waits = any(row.in_scope for row in letter.waiting.values())
    if delivery is not None and waits:
        delivered = f"{names.format_letter(delivery)}: delivered as {names.record(delivery)}"
        yield "torn", f"{delivered}, and still waits: {_entries(names, letter)}"
    elif delivery is not None and not letter.changes and letter.outcomes:
        if max(_not_before_ms(letter), delivery.appended_ms) >= context.deletes_kept_from_ms:
            yield "torn", f"{names.format_letter(delivery)}: delivered as {names.record(delivery)}, and no entry was deleted"
        else:
            yield UNCHECKED, "deletes: compaction has removed them by now"
    delete = letter.changes[-1] if letter.changes else None
    nowhere = letter.outcomes and not letter.waiting and not letter.delivered and not _in_flight(letter)
    if delete is not None and nowhere and not context.why_no_delivery(letter, _not_before_ms(letter)):
        yield "torn", f"{names.format_letter(delete)}: entry deleted at {names.record(delete)}, and not delivered"


def find_early(context: VerifyContext, letter: RecordedLetter) -> Iterator[Finding]:
    """Find deliveries, committed or aborted, that were appended before they were due, by the broker's clock."""
    for row in (*letter.delivered, *letter.returned, *letter.aborted):
        if row.due_ms == UNKNOWN or row.appended_ms == UNKNOWN:
            if row.kind == RowKind.DELIVERY:
                topic = context.names.topics[row.at_topic]
                yield UNCHECKED, f"time of delivery: {topic} keeps no broker time, or the record no due time"
        elif row.appended_ms < row.due_ms - context.skew_ms:
            aborted, by_ms = " (aborted)" if row.kind == RowKind.UNCOMMITTED else "", row.due_ms - row.appended_ms
            name = context.names.format_letter(row)
            yield "early", f"{name}: {context.names.record(row)}{aborted}, {by_ms} ms before it was due"


def find_phantom(context: VerifyContext, letter: RecordedLetter) -> Iterator[Finding]:
    """Find records that go back to no letter."""
    names = context.names
    if letter.outcomes:
        outcome = letter.outcomes[0]
        if outcome.in_scope and _never_existed(context, letter):
            yield "phantom", f"{names.format_letter(outcome)}: outcome {names.record(outcome)} of a letter that never was"
        return
    written: list[DeliveryRow | EntryRow] = [*letter.delivered, *letter.returned, *letter.aborted, *letter.changes]
    rows = [row for row in written if row.in_scope]
    if rows and letter.offset < context.outcomes_from(letter):
        yield UNCHECKED, "origin of deliveries and entries: outcomes of that time are not kept"
        return
    for row in rows:
        aborted = ", aborted" if row.kind == RowKind.UNCOMMITTED else ""
        yield "phantom", f"{names.record(row)}{aborted}: names {names.format_letter(row)} as its letter, which has no outcome"


def find_wrong_topic(context: VerifyContext, letter: RecordedLetter) -> Iterator[Finding]:
    """Find deliveries on another topic than was decided."""
    if not letter.delivered or not letter.outcomes:
        return
    names, lane = context.names, context.lane(letter)
    expected = lane.destination if lane else names.topics[letter.outcomes[0].target]
    for row in letter.delivered:
        topic = names.topics[row.at_topic]
        if topic == expected or not row.in_scope:
            continue
        if lane is None and topic in context.permitted(names.topics[row.topic]):
            yield UNCHECKED, "targets: the entry may have been moved, and compaction has removed it"
        else:
            yield "wrong_topic", f"{names.format_letter(row)}: {names.record(row)}, not on {expected}"


def find_stuck(context: VerifyContext, letter: RecordedLetter) -> Iterator[Finding]:
    """Find entries that have been due for a minute with nothing in their way. For ordered entries see `find_stuck_first`."""
    if letter.delivered:
        return  # Just now, or torn.
    for row in letter.waiting.values():
        if row.ordering_key == UNKNOWN:
            yield from find_overdue(context, row)


def find_overdue(context: VerifyContext, row: EntryRow) -> Iterator[Finding]:
    """Find out whether an entry waits though it has been due for a minute."""
    if not row.in_scope or row.due_ms >= context.stuck_before_ms:
        return
    names, is_named = context.names, context.names.topics[row.topic] == NAMES
    lane, blocked = names.lane_of(row), context.named_blocked if is_named else context.blocked
    if names.is_held(row):
        yield UNCHECKED, HELD
    elif lane is not None and (why := blocked(lane)):
        yield UNCHECKED, f"due, and blocked: {why}"
    elif is_named:
        yield "stuck", f"{names.record(row)}: entry with a name, due at {iso(row.due_ms)}, still waits"
    else:
        yield "stuck", f"{names.format_letter(row)}: due at {iso(row.due_ms)}, and still waits: {names.record(row)}"


def check_tables(context: VerifyContext, letter: RecordedLetter) -> Iterator[Finding]:
    """Find rows on disk that are not those of the fold up to the table's own offset.

    What has another record behind that offset is passed over: a sweep's deletes are made there before they are read back.
    """
    partitions = {row.at_partition for row in letter.changes} | {row.at_partition for row in letter.table_rows}
    for partition in sorted(partitions):
        yield from _compare_tables(context, letter, partition)


def _compare_tables(context: VerifyContext, letter: RecordedLetter, partition: int) -> Iterator[Finding]:
    fold: dict[int, EntryRow] = {row.key_hash: row for row in letter.changes if row.at_partition == partition}
    for table, next_offset in context.tables.get(partition, ()):
        in_table = {row.key_hash: row.envelope_hash for row in letter.table_rows if row.table == table}
        for key in fold.keys() | in_table.keys():
            last = fold.get(key)
            if last is not None and last.at_offset >= next_offset:
                continue
            expected = last.envelope_hash if last is not None and last.kind == RowKind.PUT else None
            if in_table.get(key) != expected:
                what = "has a row too many" if expected is None else "lacks a row" if key not in in_table else "has another row"
                yield TABLE, f"{table}: {what}: {context.names.format_letter((letter.changes or letter.table_rows)[0])}"


CHECKS = (find_lost, find_duplicate, find_torn, find_early, find_phantom, find_wrong_topic, find_stuck)


def check_letter(context: VerifyContext, letter: RecordedLetter) -> Iterator[Finding]:
    for check in CHECKS:
        yield from check(context, letter)
    if context.tables and (letter.changes or letter.table_rows):
        yield from check_tables(context, letter)


def _in_flight(letter: RecordedLetter) -> bool:
    """Whether an entry was deleted, or the letter returned, so late that what was committed with that may not be seen."""
    returning = any(row.returned == Returned.OUT_OF_SCOPE for row in letter.returned)
    return returning or any(row.kind == RowKind.DELETE and not row.in_scope for row in letter.changes)


def _not_before_ms(letter: RecordedLetter) -> int:
    """Compute a time before which the delivery of a letter cannot have been."""
    return max([row.taken_ms for row in letter.outcomes[:1]] + [row.due_ms for row in letter.changes[-1:]])


def _never_existed(context: VerifyContext, letter: RecordedLetter) -> bool:
    """Whether the offset of a letter was read on its topic, where it would have to be, and it is not there."""
    read = context.dead_letters.get(letter.partition)
    if read is None or letter.dead_letter is not None:
        return False
    return letter.offset >= read.end or (read.uncompacted and read.first <= letter.offset < read.stop)


def _entries(names: NameTable, letter: RecordedLetter) -> str:
    return ", ".join(map(names.record, letter.waiting.values()))


# Entries with a name: of those of one name only the greatest waits, and none ends before those that it superseded.
#
# Where they are delivered to is their entry source's business, and not read here.

def is_named(context: VerifyContext, letter: RecordedLetter) -> bool:
    """Whether these rows are of one name, and not of one letter."""
    return context.names.topics[letter.partition[0]] == NAMES


def find_waiting(context: VerifyContext, letter: RecordedLetter) -> EntryRow | None:
    """Find the greatest version among the waiting entries of a name; None where there is none, or it is a cancel."""
    greatest = max(letter.waiting.values(), key=partial(_rank, context), default=None)
    return None if greatest is None or _is_cancel(context, greatest) else greatest


def check_name(context: VerifyContext, letter: RecordedLetter) -> Iterator[Finding]:
    yield from _find_revived(context, letter)
    if (row := find_waiting(context, letter)) is not None:
        yield from find_overdue(context, row)
    if context.tables and (letter.changes or letter.table_rows):
        yield from _tables(context, letter)


def _find_revived(context: VerifyContext, letter: RecordedLetter) -> Iterator[Finding]:
    """Find an entry that counted and ended while an earlier one still stood there, which counts again now."""
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


def _tables(context: VerifyContext, letter: RecordedLetter) -> Iterator[Finding]:
    """Find rows on disk that are not the one that counts; names with a record behind a table's offset are passed over."""
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


def _rank(context: VerifyContext, row: EntryRow) -> tuple[int, bool, int]:
    return row.version, _is_cancel(context, row), row.due_ms


def _is_cancel(context: VerifyContext, row: EntryRow) -> bool:
    return context.names.lanes[row.lane] == CANCEL


# Entries that keep an order: of each record key only the first that waits can be stuck, the others wait behind it.

def list_waiting_ordered(letter: RecordedLetter) -> list[EntryRow]:
    """List the waiting entries of a letter that keep an order; none once it is delivered."""
    return [] if letter.delivered else [row for row in letter.waiting.values() if row.ordering_key != UNKNOWN]


def find_stuck_first(context: VerifyContext, rows: Iterable[Any]) -> Iterator[Finding]:
    """Check whether the earliest entry of each record key still waits though it has been due for a minute."""
    heads: dict[int, EntryRow] = {}
    for row in rows:
        head = heads.setdefault(row.ordering_key, row)
        if row[1:4] < head[1:4]:
            heads[row.ordering_key] = row
    for row in heads.values():
        yield from find_overdue(context, row)
