"""Order per record key: the earliest letter waits in its lane, the later ones behind it, and none overtakes.

Rows beside those of the entries:

    0x04 | order                                → key of the entry at the head, which alone has a row in its lane
    0x05 | order | source of letter | lane | due → envelope of an entry that waits behind it

All of them follow from which entries wait, and from nothing else. So what is told twice changes nothing the second time,
and a table restored from whatever compaction left over, in whatever order, has the same heads as the one that was lost.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from retry.delay_queue.entry import LANE_BYTES, order_of

_HEAD, _BEHIND = b"\x04", b"\x05"
_WHEN_BYTES = LANE_BYTES + 8

Changes = dict[bytes, bytes | None]


class Row(Protocol):
    """Where one row is read."""

    def get(self, key: bytes) -> bytes | None:
        """One row."""
        ...


class Rows(Row, Protocol):
    """Where rows are read; what is to be written is the caller's to write at once."""

    def first(self, prefix: bytes, start: bytes) -> tuple[bytes, bytes] | None:
        """The first row at `start` or beyond, if its key begins with `prefix`."""
        ...


class Effect(NamedTuple):
    """What a changelog record does: rows to put, rows to delete (None), and by how much more or fewer entries wait."""

    changes: Changes
    waiting: int


def put(rows: Rows, key: bytes, envelope: bytes) -> Effect:
    """An entry joins: at the head where there is none, or only one of a later letter, which makes room; else behind it."""
    pointer, place = _HEAD + order_of(key), _place(key)
    head = rows.get(pointer)
    if head is None or head == key:
        return Effect({pointer: key, key: envelope}, int(head is None))
    if _place(head) < place:
        return Effect({place: envelope}, int(rows.get(place) is None))
    return Effect({_place(head): rows.get(head), head: None, pointer: key, key: envelope}, 1)


def drop(rows: Rows, key: bytes) -> Effect:
    """An entry leaves; if it was at the head, the first one behind it takes its place."""
    pointer, place = _HEAD + order_of(key), _place(key)
    if rows.get(pointer) != key:
        return Effect({place: None}, -1) if rows.get(place) is not None else Effect({}, 0)
    # From where it would have waited itself: at the beginning lie the tombstones of all that went before.
    following = rows.first(_BEHIND + order_of(key), place)
    if following is None:
        return Effect({pointer: None, key: None}, -1)
    place, envelope = following
    successor = key_of(place)
    return Effect({place: None, pointer: successor, key: None, successor: envelope}, -1)


def head(rows: Row, key: bytes) -> bytes | None:
    """The key of the entry that an ordered one waits behind; its own where it is the first."""
    return rows.get(_HEAD + order_of(key))


def find(rows: Rows, key: bytes) -> bytes | None:
    """The envelope of an entry that waits behind another."""
    return rows.get(_place(key))


def key_of(place: bytes) -> bytes:
    """The key of an entry that waits behind another, from that of its row."""
    return place[-_WHEN_BYTES:] + place[1:-_WHEN_BYTES]


def _place(key: bytes) -> bytes:
    """Where an entry waits behind another: in the order of the letters, since the order of due times is not theirs."""
    return _BEHIND + key[_WHEN_BYTES:] + key[:_WHEN_BYTES]


FIRST_BEHIND, END_BEHIND = _BEHIND, bytes([_BEHIND[0] + 1])
