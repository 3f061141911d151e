"""Order per record key: one entry waits in its lane, the later ones behind it, and none overtakes.

Rows beside those of the entries, all derived from changelog records, so that a restored table has the same:

    0x04 | order                    → key of the entry at the head, which alone has a row in its lane
    0x05 | order | source of letter → key and envelope of an entry that waits behind it

What is told here twice changes nothing the second time: a table that was cut short in mid-fold folds on.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from retry.entry import split

_HEAD, _BEHIND = b"\x04", b"\x05"

Changes = dict[bytes, bytes | None]


class Row(Protocol):
    """Where one row is read."""

    def get(self, key: bytes) -> bytes | None:
        """One row."""
        ...


class Rows(Row, Protocol):
    """Where rows are read; what is to be written is the caller's to write at once."""

    def first(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        """The first row whose key begins with `prefix`."""
        ...


class Effect(NamedTuple):
    """What a changelog record does: rows to put, rows to delete (None), and by how much more or fewer entries wait."""

    changes: Changes
    waiting: int


def put(rows: Rows, key: bytes, envelope: bytes) -> Effect:
    """An entry joins: at the head where there is none, or in place of itself at another due time; else behind it."""
    order, letter = split(key)
    head = rows.get(_HEAD + order)
    if head is None or split(head)[1] == letter:
        return Effect({key: envelope, _HEAD + order: key}, int(head != key))
    again = find(rows, key) is not None
    return Effect({_BEHIND + order + letter: msgspec.msgpack.encode((key, envelope))}, int(not again))


def drop(rows: Rows, key: bytes) -> Effect:
    """An entry leaves; if it was at the head, the first one behind it takes its place."""
    order, letter = split(key)
    if rows.get(_HEAD + order) != key:
        return _drop_other(rows, key, _BEHIND + order + letter)
    following = rows.first(_BEHIND + order)
    if following is None:
        return Effect({key: None, _HEAD + order: None}, -1)
    place, packed = following
    successor, envelope = unpacked(packed)
    return Effect({key: None, _HEAD + order: successor, successor: envelope, place: None}, -1)


def _drop_other(rows: Rows, key: bytes, place: bytes) -> Effect:
    if rows.get(key) is not None:
        return Effect({key: None}, -1)
    packed = rows.get(place)
    if packed is not None and unpacked(packed)[0] == key:
        return Effect({place: None}, -1)
    return Effect({}, 0)


def head(rows: Row, key: bytes) -> bytes | None:
    """The key of the entry that an ordered one waits behind; its own where it is the first."""
    return rows.get(_HEAD + split(key)[0])


def find(rows: Rows, key: bytes) -> bytes | None:
    """The envelope of an entry that waits behind another."""
    order, letter = split(key)
    packed = rows.get(_BEHIND + order + letter)
    found, envelope = unpacked(packed) if packed is not None else (b"", b"")
    return envelope if found == key else None


def unpacked(packed: bytes) -> tuple[bytes, bytes]:
    """Key and envelope of an entry that waits behind another."""
    return msgspec.msgpack.decode(packed, type=tuple[bytes, bytes])


FIRST_BEHIND, END_BEHIND = _BEHIND, bytes([_BEHIND[0] + 1])
