"""Order per record key: the earliest letter waits in its lane, the later ones behind it, and none overtakes.

Rows beside those of the entries:

    0x05 | order                                → key of the entry at the head, which alone has a row in its lane
    0x06 | order | source of letter | lane | due → envelope of an entry that waits behind it

All of them follow from which entries wait, and from nothing else. So what is folded twice changes nothing the second time,
and a table restored from whatever compaction left over, in whatever order, has the same heads as the one that was lost.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from retry.delay_queue.entry_keys import LANE_BYTES, order_of

ROW_KINDS = _HEAD, _BEHIND = b"\x05", b"\x06"
_WHEN_BYTES = LANE_BYTES + 8

Changes = dict[bytes, bytes | None]


class OrderedRow(Protocol):
    def get(self, key: bytes) -> bytes | None: ...


class OrderedRows(OrderedRow, Protocol):
    def find_first(self, prefix: bytes, start: bytes) -> tuple[bytes, bytes] | None:
        """Find the first row at `start` or beyond; None where there is none, or its key does not begin with `prefix`."""


class OrderEffect(NamedTuple):
    """The effect of a changelog record: rows to put or delete (None), and the change in the number of waiting entries."""

    changes: Changes
    waiting: int


def put_entry(rows: OrderedRows, key: bytes, envelope: bytes) -> OrderEffect:
    """Compute what changes when an entry joins its queue, at the head or behind it.

    The entry becomes the head where there is none, or only one of a later letter, which makes room.
    """
    pointer, waiting_row = _HEAD + order_of(key), _waiting_row(key)
    head = rows.get(pointer)
    if head is None or head == key:
        return OrderEffect({pointer: key, key: envelope}, int(head is None))
    if _waiting_row(head) < waiting_row:
        return OrderEffect({waiting_row: envelope}, int(rows.get(waiting_row) is None))
    return OrderEffect({_waiting_row(head): rows.get(head), head: None, pointer: key, key: envelope}, 1)


def remove_entry(rows: OrderedRows, key: bytes) -> OrderEffect:
    """Compute what changes when an entry leaves its queue; behind a head that leaves, the first one takes its place."""
    pointer, waiting_row = _HEAD + order_of(key), _waiting_row(key)
    if rows.get(pointer) != key:
        return OrderEffect({waiting_row: None}, -1) if rows.get(waiting_row) is not None else OrderEffect({}, 0)
    # From where it would have waited itself: at the beginning lie the tombstones of all that went before.
    following = rows.find_first(_BEHIND + order_of(key), waiting_row)
    if following is None:
        return OrderEffect({pointer: None, key: None}, -1)
    waiting_row, envelope = following
    successor = key_of(waiting_row)
    return OrderEffect({waiting_row: None, pointer: successor, key: None, successor: envelope}, -1)


def find_head(rows: OrderedRow, key: bytes) -> bytes | None:
    """Find the key of the entry that an ordered entry waits behind: its own where it is the first, None for an empty queue."""
    return rows.get(_HEAD + order_of(key))


def find(rows: OrderedRows, key: bytes) -> bytes | None:
    """Find the envelope of an entry that waits behind another; None where no such entry waits."""
    return rows.get(_waiting_row(key))


def key_of(row: bytes) -> bytes:
    return row[-_WHEN_BYTES:] + row[1:-_WHEN_BYTES]


def _waiting_row(key: bytes) -> bytes:
    return _BEHIND + key[_WHEN_BYTES:] + key[:_WHEN_BYTES]


FIRST_BEHIND, END_BEHIND = _BEHIND, bytes([_BEHIND[0] + 1])
