"""The rows of one letter → findings. Pure: what it goes by is in `Known`.

A record is *judged* where everything that was committed with it can be seen; others are there as evidence only. What
retention or compaction has taken away is counted as unjudged, with the reason, and never as a finding.
"""

from __future__ import annotations

from collections.abc import Iterator

from retry.clock import iso
from retry.operations.verify.findings import TABLE, UNJUDGED, Verdict
from retry.operations.verify.context import Known
from retry.operations.verify.letter_history import Letter
from retry.operations.verify.rows import ORDERED, UNKNOWN, Kind, Row, Words


def lost(known: Known, letter: Letter) -> Iterator[Verdict]:
    """Taken in and nowhere, or passed by without an outcome."""
    if not letter.outcomes:
        if letter.found and letter.found.judged and letter.offset >= known.floor(letter):
            yield "lost", f"{known.words.letter(letter.found)}: intake has passed it by, and it has no outcome"
        return
    outcome = letter.outcomes[0]
    if letter.live or letter.sent or not outcome.judged or _under_way(letter) or _never_was(known, letter):
        return
    why = known.gone(letter, _not_before(letter))
    if why:
        yield UNJUDGED, why
    else:
        yield "lost", f"{known.words.letter(outcome)}: taken in at {iso(outcome.stamp)}, not waiting, not retried, not parked"


def duplicate(known: Known, letter: Letter) -> Iterator[Verdict]:
    """Delivered, taken in or waiting more than once."""
    words = known.words
    for what, rows in (("delivered", letter.sent), ("outcome written", letter.outcomes)):
        if len(rows) > 1:
            yield "duplicate", f"{words.letter(rows[0])}: {what} {len(rows)} times: {', '.join(map(words.place, rows[:4]))}"
    if letter.again:
        yield "duplicate", f"{words.letter(letter.again[0])}: entry written again while it waited: {words.place(letter.again[0])}"
    if len(letter.live) > 1 and all(row.judged for row in letter.live.values()):
        first = next(iter(letter.live.values()))
        yield "duplicate", f"{words.letter(first)}: waits {len(letter.live)} times: {_places(words, letter)}"


def torn(known: Known, letter: Letter) -> Iterator[Verdict]:
    """Delivered without its delete, or deleted without a delivery."""
    words = known.words
    sent = next((row for row in letter.sent if row.judged), None)
    if sent is not None and letter.live:
        yield "torn", f"{words.letter(sent)}: delivered as {words.place(sent)}, and still waits: {_places(words, letter)}"
    elif sent is not None and not letter.changes and letter.outcomes:
        if max(_not_before(letter), sent.stamp) >= known.deletes_from_ms:
            yield "torn", f"{words.letter(sent)}: delivered as {words.place(sent)}, and no entry was deleted"
        else:
            yield UNJUDGED, "deletes: compaction has removed them by now"
    deleted = letter.changes[-1] if letter.changes else None
    nowhere = letter.outcomes and not letter.live and not letter.sent and not _under_way(letter)
    if deleted is not None and nowhere and not known.gone(letter, _not_before(letter)):
        yield "torn", f"{words.letter(deleted)}: entry deleted at {words.place(deleted)}, and not delivered"


def early(known: Known, letter: Letter) -> Iterator[Verdict]:
    """Appended before it was due, by the broker's clock; undone or not."""
    for row in (*letter.sent, *letter.seen):
        if row.number == UNKNOWN or row.stamp == UNKNOWN:
            if row.kind == Kind.SENT:
                topic = known.words.topics[row.at_topic]
                yield UNJUDGED, f"time of delivery: {topic} keeps no broker time, or the record no due time"
        elif row.stamp < row.number - known.skew_ms:
            undone, by_ms = " (undone)" if row.kind == Kind.SEEN else "", row.number - row.stamp
            yield "early", f"{known.words.letter(row)}: {known.words.place(row)}{undone}, {by_ms} ms before it was due"


def phantom(known: Known, letter: Letter) -> Iterator[Verdict]:
    """Something that goes back to no letter."""
    words = known.words
    if letter.outcomes:
        outcome = letter.outcomes[0]
        if outcome.judged and _never_was(known, letter):
            yield "phantom", f"{words.letter(outcome)}: outcome {words.place(outcome)} of a letter that never was"
        return
    strange = [row for row in (*letter.sent, *letter.seen, *letter.changes) if row.judged]
    if strange and letter.offset < known.floor(letter):
        yield UNJUDGED, "origin of deliveries and entries: outcomes of that time are not kept"
        return
    for row in strange:
        undone = ", undone" if row.kind == Kind.SEEN else ""
        yield "phantom", f"{words.place(row)}{undone}: says that it comes from {words.letter(row)}, of which there is no outcome"


def wrong_topic(known: Known, letter: Letter) -> Iterator[Verdict]:
    """On another topic than was decided."""
    if not letter.sent or not letter.outcomes:
        return
    words, lane = known.words, known.lane(letter)
    expected = lane.destination if lane else words.topics[letter.outcomes[0].extra]
    for row in letter.sent:
        topic = words.topics[row.at_topic]
        if topic == expected:
            continue
        if lane is None and topic in known.permitted(words.topics[row.topic]):
            yield UNJUDGED, "targets: the entry may have been moved, and compaction has removed it"
        else:
            yield "wrong_topic", f"{words.letter(row)}: {words.place(row)}, not on {expected}"


def stuck(known: Known, letter: Letter) -> Iterator[Verdict]:
    """Due for a minute, and nothing is known that holds it. Ordered entries are for `queues`."""
    if letter.sent:
        return  # Just now, or torn.
    for row in letter.live.values():
        if row.flags & ORDERED or not row.judged or row.number >= known.late_ms:
            continue
        yield from overdue(known, row)


def overdue(known: Known, row: Row) -> Iterator[Verdict]:
    """What to say of an entry that waits though it has been due for a while."""
    lane = known.words.whose(row)
    why = known.held(lane) if lane else None
    if why:
        yield UNJUDGED, f"due, and held: {why}"
    else:
        yield "stuck", f"{known.words.letter(row)}: due at {iso(row.number)}, and still waits: {known.words.place(row)}"


def tables(known: Known, letter: Letter) -> Iterator[Verdict]:
    """Rows on disk that are not those of the fold up to the table's own offset.

    What has another record behind that offset is passed over: a sweep's deletes are made there before they are read back.
    """
    stored = {(row.number, row.name): row.value for row in letter.stored}
    partition = (letter.changes or letter.stored)[0].at_partition
    for table, next_offset in known.tables.get(partition, ()):
        fold: dict[int, Row] = {row.name: row for row in letter.changes}
        here = {name: value for (number, name), value in stored.items() if number == table}
        for name in fold.keys() | here.keys():
            last = fold.get(name)
            if last is not None and last.at_offset >= next_offset:
                continue
            wanted = last.value if last is not None and last.kind == Kind.PUT else None
            if here.get(name) != wanted:
                what = "has a row too many" if wanted is None else "lacks a row" if name not in here else "has another row"
                yield TABLE, f"{table}: {what}: {known.words.letter((letter.changes or letter.stored)[0])}"


CHECKS = (lost, duplicate, torn, early, phantom, wrong_topic, stuck)


def judged(known: Known, letter: Letter) -> Iterator[Verdict]:
    """Everything that is wrong with a letter, and what cannot be decided."""
    for check in CHECKS:
        yield from check(known, letter)
    if known.tables and (letter.changes or letter.stored):
        yield from tables(known, letter)


def _under_way(letter: Letter) -> bool:
    """Whether something was deleted so late that what was committed with it may not be seen."""
    return any(not row.judged for row in letter.changes if row.kind == Kind.DELETE)


def _not_before(letter: Letter) -> int:
    """A time before which its delivery cannot have been."""
    return max([row.stamp for row in letter.outcomes[:1]] + [row.number for row in letter.changes[-1:]])


def _never_was(known: Known, letter: Letter) -> bool:
    """Whether it was looked for on its topic, where it would have to be, and is not there."""
    bounds = known.bounds.get(letter.place)
    if bounds is None or letter.found is not None:
        return False
    return letter.offset >= bounds.end or (bounds.whole and bounds.first <= letter.offset < bounds.stop)


def _places(words: Words, letter: Letter) -> str:
    return ", ".join(map(words.place, letter.live.values()))
