"""Which changelog records a table takes in: not what no version wrote, nor what the table has changed before (`UnfoldedChanges`).

What one transaction deletes and puts again takes its place in a queue at once, or its successors would overtake it. The fold
reads those records later: were the put folded as news, an entry that was sent meanwhile would come back to life until its null is
folded, too. The same holds for entries that stay when others leave their block.

Nothing is put under a key of which the null is still to be folded: that null would take out what was put since. Nor may the null
be passed over: where this worker has lost the shard, it is another owner's. So whoever moves an entry asks whether a key is about
to leave, and chooses the next time at which none is.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from retry import format_versions
from retry.delay_queue import action_records, action_state, blocks, control_records, envelopes, ramp_records, returned_offsets
from retry.delay_queue.action_records import SLICE
from retry.delay_queue.entry_keys import LANE_BYTES, NAME_BYTES, NAMED, ORDERED, PLAIN, VERSION_BYTES, read_source
from retry.delay_queue.ramp_records import FAILED, SENDING
from retry.delay_queue.returned_offsets import RETURNED
from retry.delay_queue.table.interface import CONTROL, ChangelogRow, UnreadableRow
from retry.errors import EntryNewer, EntryUnreadable

# Lane, due time, a topic of one character and its end, partition and offset; some have an order, or name and version besides.
_PLAIN_MIN = LANE_BYTES + 8 + 2 + 12
_NAMED_MIN = _PLAIN_MIN + NAME_BYTES + VERSION_BYTES
_BYTES_MIN = {PLAIN: _PLAIN_MIN, ORDERED: _PLAIN_MIN + 8, NAMED: _NAMED_MIN}
_KINDS_OF_ENTRIES = frozenset(_BYTES_MIN)
# Where the topic begins, by kind, and how far from the end the byte is that ends it, and where partition and offset begin.
_TOPIC_AT = {PLAIN: LANE_BYTES + 8, ORDERED: LANE_BYTES + 16, NAMED: LANE_BYTES + 8 + NAME_BYTES + VERSION_BYTES}
_TAIL, _PARTITION, _OFFSET, _HIGHEST_BIT = 13, 12, 8, 0x80
_VERSIONS = frozenset(bytes([version]) for version in format_versions.ENVELOPE.reads)
# First bytes that are kept for kinds of this service, less those of rows that only tables have.
_KINDS = frozenset(range(1, 0x20)) - {5, 6, 7, 8, 9}
# Of single letters that operators act on, beside entries and controls, and how long these keys are.
OF_ACTIONS = {
    SLICE: action_records.SLICE_BYTES, RETURNED: returned_offsets.BLOCK_BYTES, SENDING: ramp_records.SENDING_BYTES,
    FAILED: ramp_records.FAILED_BYTES,
}  # fmt: skip


class ReadableRows(NamedTuple):
    rows: list[ChangelogRow]
    unreadable: list[UnreadableRow]


def list_repeated_keys(rows: Sequence[ChangelogRow]) -> set[bytes]:
    """List the keys that several of these records have; `select_readable_rows` leaves the last of each."""
    return {key for key, count in Counter(key for key, _ in rows).items() if count > 1}


def select_readable_rows(rows: Sequence[ChangelogRow]) -> ReadableRows:
    """Sort out what a table takes in of these: of each key the last record; not nulls of foreign keys, which delete nothing here.

    What no version wrote is passed over: what was folded of its key before stands. Of envelopes only the version is looked at.
    What is none lies under the key of an entry, and is held when it is due, see `retry.delivery.hold`. Raises EntryNewer.
    """
    records = []
    for row in dict(rows).items():
        key, value = row
        # Nearly every record is an entry of this version, or the end of one, and needs no closer look.
        if (
            len(key) >= _PLAIN_MIN and (at := _TOPIC_AT.get(key[0])) and not key[-_TAIL]
            and key[-_OFFSET] < _HIGHEST_BIT and key[-_PARTITION] < _HIGHEST_BIT
            and (value is None or value[1:2] in _VERSIONS) and (topic := key[at:-_TAIL]) and topic.isascii()
        ):  # fmt: skip
            records.append(row)
            continue
        try:
            is_taken_in = _look_closely(key, value)
        except EntryNewer:
            raise
        except EntryUnreadable:
            # With what came before under the same key.
            return _without_unreadable(rows)
        if is_taken_in:
            records.append(row)
    return ReadableRows(records, [])


def _without_unreadable(rows: Sequence[ChangelogRow]) -> ReadableRows:
    kept, unreadable = list[ChangelogRow](), list[UnreadableRow]()
    for key, value in rows:
        try:
            _look_closely(key, value)
        except EntryNewer:
            raise
        except EntryUnreadable as error:
            unreadable.append(UnreadableRow(key, str(error)))
        else:
            kept.append((key, value))
    return ReadableRows(select_readable_rows(kept).rows, unreadable)


def count_before_newer(rows: Sequence[ChangelogRow]) -> int:
    """Count the rows that come before the first one written by a newer version; all rows where there is none."""
    for n, row in enumerate(rows):
        try:
            select_readable_rows([row])
        except EntryNewer:
            return n
    return len(rows)


def _look_closely(key: bytes, value: bytes | None) -> bool:
    """Whether there is something to be taken in; the null of a foreign key deletes nothing here."""
    kind = key[0] if key else 0
    if key[:1] == CONTROL or _is_of_action(key):
        if value is not None:
            _check_asked(key, value)
        return True
    if blocks.is_block(key):
        blocks.check(key, value)
        return True
    if kind not in _KINDS_OF_ENTRIES or len(key) < _BYTES_MIN[kind]:
        if value is None:
            return False
        if kind in _KINDS:
            format_versions.KEY.refuse_newer(kind, EntryNewer)
        raise EntryUnreadable(f"a changelog record has the key {key.hex()[:100]}, which is neither entry nor control")
    read_source(key)
    if value is not None:
        envelopes.check_version(value)
    return True


def _is_of_action(key: bytes) -> bool:
    return len(key) == OF_ACTIONS.get(key[:1])


def _check_asked(key: bytes, value: bytes) -> None:
    if key.startswith(action_records.PREFIX):
        control_records.check(key, value)
        action_state.check(key, value)
    elif key[:1] == CONTROL:
        control_records.check(key, value)
    elif key[:1] in (SLICE, SENDING):
        action_records.check_members(action_records.decode_slice(value))
    elif key[:1] == FAILED:
        ramp_records.check_failed(value)
    else:
        returned_offsets.check(value)


class UnfoldedChanges:
    """Changes of a table that are not folded yet, in memory only: a new table folds all that was committed before it is swept."""

    def __init__(self) -> None:
        # Hashes of values, by key. Compaction may remove a record before it is folded: what is left of it here hurts nobody,
        # since no other writer puts the same value under the same key.
        self._put: dict[bytes, int] = {}
        self._gone: dict[bytes, int] = {}
        # In the order of their nulls in the changelog: with one of them all before it are folded.
        self._leaving: OrderedDict[bytes, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._put or self._gone or self._leaving)

    def is_put(self, key: bytes) -> bool:
        return key in self._put

    def note_put(self, key: bytes, value: bytes) -> None:
        """Note that the table has put an entry which it did not have before, and whose record is not folded yet."""
        self._put[key] = hash(value)

    def note_drop(self, key: bytes) -> None:
        """Note that an entry left the table. If its put is not folded yet, that is not to put it once more."""
        value_hash = self._put.pop(key, None)
        if value_hash is not None:
            self._gone[key] = value_hash
        self._leaving[key] = None

    def is_leaving(self, key: bytes) -> bool:
        return key in self._leaving

    def take_change(self, key: bytes, value: bytes | None) -> bool:
        """Whether a record is to be folded, or only what the table did itself. Nulls always are: they may be somebody else's."""
        if value is None:
            self._put.pop(key, None)
            while key in self._leaving:
                # Their puts are folded as well, though perhaps passed over, as records that others of their batch replace are.
                self._gone.pop(self._leaving.popitem(last=False)[0], None)
            return True
        if self._gone.get(key) == hash(value):
            del self._gone[key]
            return False
        self._put.pop(key, None)
        return True
