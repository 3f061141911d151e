"""Order per record key: one entry waits in its lane, the later ones behind it, and none overtakes.

Rows beside those of the entries, all derived from changelog records, so that a restored table has the same:

    0x04 | order                    → key of the entry at the head, which alone has a row in its lane
    0x05 | order | source of letter → key and envelope of an entry that waits behind it

What is told here twice changes nothing the second time: a table that was cut short in mid-fold folds on.

Of letters of one partition the first one is at the head, whichever record comes first: an entry that was moved has its
record behind those of its successors, and once its old record is compacted away nothing else tells that it was there.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from retry.entry import split

_HEAD, _BEHIND = b"\x04", b"\x05"
_OFFSET_BYTES = 8

Changes = dict[bytes, bytes | None]


class Rows(Protocol):
    """Where rows are read; what is to be written is the caller's to write at once."""

    def get(self, key: bytes) -> bytes | None:
        """One row."""
        ...

    def first(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        """The first row whose key begins with `prefix`."""
        ...


class Effect(NamedTuple):
    """What a changelog record does: rows to put, rows to delete (None), and by how much more or fewer entries wait."""

    changes: Changes
    waiting: int


def put(rows: Rows, key: bytes, envelope: bytes) -> Effect:
    """An entry joins: at the head where there is none, or in place of itself at another due time; else behind it.

    Behind the head it replaces itself at once, so that its old key's null finds nothing.
    """
    order, letter = split(key)
    head = rows.get(_HEAD + order)
    if head is None or split(head)[1] == letter:
        return Effect({key: envelope, _HEAD + order: key}, int(head != key))
    place = _BEHIND + order + letter
    more = int(rows.get(place) is None)
    if not _before(letter, split(head)[1]):
        return Effect({place: msgspec.msgpack.encode((key, envelope))}, more)
    demoted = _BEHIND + order + split(head)[1]
    held = msgspec.msgpack.encode((head, rows.get(head) or b""))
    return Effect({place: None, key: envelope, _HEAD + order: key, head: None, demoted: held}, more)


def _before(letter: bytes, other: bytes) -> bool:
    """Whether a letter lies before another in the same partition of the same topic."""
    return letter[:-_OFFSET_BYTES] == other[:-_OFFSET_BYTES] and letter < other


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
    # The place first: a table's `get` finds what waits there under its key, too.
    packed = rows.get(place)
    if packed is not None and unpacked(packed)[0] == key:
        return Effect({place: None}, -1)
    return Effect({key: None}, -1) if rows.get(key) is not None else Effect({}, 0)


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
