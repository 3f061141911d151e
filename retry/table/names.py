"""Entries with a name: of those of one name the greatest counts and waits in its lane, every other one is superseded.

Rows beside those of the entries:

    0x06 | name                                     → key of the one that counts
    0x07 | name | version | due | lane | source     → envelope of one that is superseded; a null is to be written for its key

Greatest is who has the greatest version, then the latest due time: the order of the second kind of rows. A cancel counts as
any other, and lies among the superseded. All rows follow from which keys stand in the changelog, and from nothing else. So
what is told twice changes nothing the second time, and the order in which it is told does not matter.

Whoever counts must not end before those that it superseded: with its null alone in the changelog the next one would count.
The sweep writes nulls in the order of these rows, and delivers nothing that has a name while any are left; see `retry.sweep`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from retry.entry import CANCEL, LANE_BYTES, NAME_BYTES, VERSION_BYTES, name_of

_COUNTS, _SUPERSEDED = b"\x06", b"\x07"
_NAME_AT = LANE_BYTES + 8
_SOURCE_AT = _NAME_AT + NAME_BYTES + VERSION_BYTES
_DUE_AT = 1 + NAME_BYTES + VERSION_BYTES
_LANE_AT = _DUE_AT + 8
_REST_AT = _LANE_AT + LANE_BYTES

News = Mapping[bytes, bytes | None]


class Rows(Protocol):
    """Where rows are read."""

    def get(self, key: bytes) -> bytes | None:
        """One row."""
        ...

    def first(self, prefix: bytes, start: bytes) -> tuple[bytes, bytes] | None:
        """The first row at `start` or beyond, if its key begins with `prefix`."""
        ...


class Effect(NamedTuple):
    """What changelog records of one name do.

    Attributes:
      changes: rows to put, and to delete (None).
      waiting, superseded: by how much more or fewer there are.
    """

    changes: dict[bytes, bytes | None]
    waiting: int
    superseded: int


def by_name(rows: Iterable[tuple[bytes, bytes | None]]) -> dict[bytes, dict[bytes, bytes | None]]:
    """Records with the names that they are of."""
    found: defaultdict[bytes, dict[bytes, bytes | None]] = defaultdict(dict)
    for key, value in rows:
        found[name_of(key)][key] = value
    return found


def fold(rows: Rows, name: bytes, news: News, *, any_superseded: bool) -> Effect:
    """What records of one name do to its rows.

    Args:
      news: the last record of each key; None is a null.
      any_superseded: whether the table has superseded rows, of whatever name; otherwise none are looked for.
    """
    before = dict(_live(rows, name, any_superseded=any_superseded))
    after = {key: value for key, value in {**before, **news}.items() if value is not None}
    was, now = _rows(name, before), _rows(name, after)
    changes = {row: now.get(row) for row in (*was, *now) if was.get(row) != now.get(row)}
    return Effect(changes, _waiting(now) - _waiting(was), _others(now) - _others(was))


def place(key: bytes) -> bytes:
    """The row of a superseded entry; of one name they sort as they count."""
    return _SUPERSEDED + key[_NAME_AT:_SOURCE_AT] + key[LANE_BYTES:_NAME_AT] + key[:LANE_BYTES] + key[_SOURCE_AT:]


def key_of(place: bytes) -> bytes:
    """The key of a superseded entry, from that of its row."""
    return place[_LANE_AT:_REST_AT] + place[_DUE_AT:_LANE_AT] + place[1:_DUE_AT] + place[_REST_AT:]


def pointer(key: bytes) -> bytes:
    """The row that tells which entry of this one's name counts."""
    return _COUNTS + name_of(key)


def _live(rows: Rows, name: bytes, *, any_superseded: bool) -> Iterator[tuple[bytes, bytes | None]]:
    """Keys of this name that stand in the changelog, as far as it is folded."""
    counts = rows.get(_COUNTS + name)
    if counts is None:
        return
    if not counts.startswith(CANCEL):
        yield counts, rows.get(counts)
    at = prefix = _SUPERSEDED + name
    while any_superseded and (found := rows.first(prefix, at)) is not None:
        yield key_of(found[0]), found[1]
        at = found[0] + b"\0"


def _rows(name: bytes, live: Mapping[bytes, bytes | None]) -> dict[bytes, bytes | None]:
    """The rows of a name: what a table is."""
    if not live:
        return {}
    counts = max(live, key=place) if len(live) > 1 else next(iter(live))
    found: dict[bytes, bytes | None] = {_COUNTS + name: counts}
    for key, envelope in live.items():
        found[key if key == counts and not key.startswith(CANCEL) else place(key)] = envelope
    return found


def _waiting(rows: Iterable[bytes]) -> int:
    return sum(row[:1] not in (_COUNTS, _SUPERSEDED) for row in rows)


def _others(rows: Iterable[bytes]) -> int:
    return sum(row[:1] == _SUPERSEDED for row in rows)


FIRST_SUPERSEDED, END_SUPERSEDED = _SUPERSEDED, bytes([_SUPERSEDED[0] + 1])
