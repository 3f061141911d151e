"""Which changelog records a table takes in, and under which key."""

from __future__ import annotations

from collections.abc import Sequence

from retry import format_versions
from retry.delay_queue import action_records, control_records, ramp_records, returned_offsets
from retry.delay_queue.action_records import SLICE
from retry.delay_queue.entry_keys import LANE_BYTES, NAME_BYTES, NAMED, ORDERED, PLAIN, VERSION_BYTES, laneless, with_lane
from retry.delay_queue.envelopes import check_version
from retry.delay_queue.ramp_records import FAILED, SENDING
from retry.delay_queue.returned_offsets import RETURNED
from retry.delay_queue.table.interface import CONTROL, ChangelogRow
from retry.errors import EntryNewer, EntryUnreadable

# Lane, due time, a topic of one character and its end, partition and offset; some have an order, or name and version besides.
_PLAIN_MIN = LANE_BYTES + 8 + 2 + 12
_NAMED_MIN = _PLAIN_MIN + NAME_BYTES + VERSION_BYTES
_BYTES_MIN = {PLAIN: _PLAIN_MIN, ORDERED: _PLAIN_MIN + 8, NAMED: _NAMED_MIN}
# A due time since 1970 has its highest bit set.
_SINCE_1970 = 0x80
_VERSIONS = frozenset(bytes([version]) for version in format_versions.ENVELOPE.reads)
# First bytes that are kept for kinds of this service, less those of rows that only tables have.
_KINDS = frozenset(range(1, 0x20)) - {4, 5, 6, 7, 8}
# Of single letters that operators act on, beside entries and controls, and how long these keys are.
OF_ACTIONS = {
    SLICE: action_records.SLICE_BYTES, RETURNED: returned_offsets.BLOCK_BYTES, SENDING: ramp_records.SENDING_BYTES,
    FAILED: ramp_records.FAILED_BYTES,
}  # fmt: skip


def checked(rows: Sequence[ChangelogRow]) -> list[ChangelogRow]:
    """What a table takes in of these: of each key the last record; not nulls of foreign keys, which delete nothing here.

    Keys of the version before lanes come in the lane that is kept for them.

    Raises:
      EntryNewer: a record was written by a newer version.
      EntryUnreadable: a record is neither an entry nor a control, nor part of an action.
    """
    records = []
    for row in dict(rows).items():
        key, value = row
        # Nearly every record is a plain entry of this version, or the end of one, and needs no closer look.
        if (
            len(key) >= _PLAIN_MIN and key[0] == PLAIN and key[LANE_BYTES] >= _SINCE_1970
            and (value is None or value[1:2] in _VERSIONS)
        ):  # fmt: skip
            records.append(row)
        elif len(key) >= _NAMED_MIN and key[0] == NAMED and (value is None or value[1:2] in _VERSIONS):
            records.append(row)
        elif (record := _checked_closely(key, value)) is not None:
            records.append(record)
    return records


def before_unreadable(rows: Sequence[ChangelogRow]) -> int:
    """How many rows come before the first that `checked` refuses by itself."""
    for n, row in enumerate(rows):
        try:
            checked([row])
        except EntryUnreadable:
            return n
    return len(rows)


def _checked_closely(key: bytes, value: bytes | None) -> ChangelogRow | None:
    """The record as it is taken in; None where it is passed over."""
    kind = key[0] if key else 0
    if laneless(key):
        key = with_lane(key)
    elif key[:1] == CONTROL or _is_of_action(key):
        if value is not None:
            _check_asked(key, value)
        return key, value
    elif len(key) < _BYTES_MIN.get(kind, len(key) + 1):
        if value is None:
            return None
        if kind in _KINDS and format_versions.KEY.newer(kind):
            raise EntryNewer(format_versions.KEY.told(kind))
        raise EntryUnreadable(f"a changelog record has the key {key.hex()[:100]}, which is neither entry nor control")
    if value is not None:
        check_version(value)
    return key, value


def _is_of_action(key: bytes) -> bool:
    return len(key) == OF_ACTIONS.get(key[:1])


def _check_asked(key: bytes, value: bytes) -> None:
    if key[:1] == CONTROL:
        control_records.check(key, value)
    elif key[:1] in (SLICE, SENDING):
        action_records.check_slice(value)
    elif key[:1] == FAILED:
        ramp_records.check_failed(value)
    else:
        returned_offsets.check(value)
