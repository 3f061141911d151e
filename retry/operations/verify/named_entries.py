"""Entries with a name: of those of one name only the greatest waits, and none ends before those that it superseded.

Where they are delivered to is their door's business, and not read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from retry.clock import iso
from retry.delay_queue.entry import CANCEL
from retry.operations.verify.findings import TABLE, UNJUDGED, Verdict
from retry.operations.verify.context import Known
from retry.operations.verify.letter_history import Letter
from retry.operations.verify.rows import NAMES, Kind, Row


def named(known: Known, letter: Letter) -> bool:
    """Whether these rows are of one name, and not of one letter."""
    return known.words.topics[letter.place[0]] == NAMES


def waiting(known: Known, letter: Letter) -> Row | None:
    """Its entry that counts; None where there is none, or where that is a cancel."""
    return _counts(known, letter.live.values())


def judged(known: Known, letter: Letter) -> Iterator[Verdict]:
    """Everything that is wrong with a name, and what cannot be decided."""
    yield from _revived(known, letter)
    yield from _stuck(known, letter)
    if known.tables and (letter.changes or letter.stored):
        yield from _tables(known, letter)


def _revived(known: Known, letter: Letter) -> Iterator[Verdict]:
    """One that counts ended while an earlier one still stood there, which counts again now."""
    live: dict[int, Row] = {}
    for row in letter.changes:
        if row.kind == Kind.PUT:
            live[row.name] = row
            continue
        gone = live.pop(row.name, None)
        if gone is not None and row.judged and live and max(map(_rank, live.values())) < _rank(gone):
            left = known.words.place(max(live.values(), key=_rank))
            yield "torn", f"{known.words.place(row)}: ended an entry with a name, and left an earlier one at {left}"


def _stuck(known: Known, letter: Letter) -> Iterator[Verdict]:
    row = waiting(known, letter)
    if row is None or not row.judged or row.number >= known.late_ms:
        return
    lane = known.words.whose(row)
    if lane is not None and (why := known.held_named(lane)):
        yield UNJUDGED, f"due, and held: {why}"
    else:
        yield "stuck", f"{known.words.place(row)}: entry with a name, due at {iso(row.number)}, still waits"


def _tables(known: Known, letter: Letter) -> Iterator[Verdict]:
    """Rows on disk that are not the one that counts; names that have a record behind a table's offset are passed over."""
    partition = (letter.changes or letter.stored)[0].at_partition
    for table, next_offset in known.tables.get(partition, ()):
        if any(row.at_offset >= next_offset for row in letter.changes):
            continue
        counts = waiting(known, letter)
        wanted = {counts.name: counts.value} if counts else {}
        here = {row.name: row.value for row in letter.stored if row.number == table}
        if here != wanted:
            more = len(here) - len(wanted)
            what = "has another row" if more == 0 else "lacks a row" if more < 0 else "has a row too many"
            yield TABLE, f"{table}: {what}: of the name of {known.words.place((letter.changes or letter.stored)[0])}"


def _counts(known: Known, rows: Iterable[Row]) -> Row | None:
    greatest = max(rows, key=_rank, default=None)
    return None if greatest is None or known.words.lanes[greatest.extra] == CANCEL else greatest


def _rank(row: Row) -> tuple[int, int]:
    return row.stamp, row.number
