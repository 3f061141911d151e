"""Entries with a name: of those of one name the greatest counts and waits in its lane, every other one is superseded.

Rows beside those of the entries:

    0x07 | name                                     → whether any of it is superseded, 0 or 1, and the key of the one that counts
    0x08 | name | version | due | lane | source     → envelope of one that is superseded; a null is to be written for its key
    0x09 | due | name | version | source            → envelope of a cancel that counts; due is until when it is remembered

Greatest is who has the greatest version, of these a cancel, then the latest due time. All rows follow from which keys stand in
the changelog, and from nothing else. So what is folded twice changes nothing the second time, and the order does not matter.

A cancel counts as any other. It is remembered for a while, since what it ends may be taken in after it, from another partition;
then a null is written for its key too.

Whoever counts must not end before those that it superseded: with its null alone in the changelog the next one would count.
The sweep writes nulls in the order of these rows, and delivers nothing that has a name while any are left;
see `retry.delivery.sweep`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from retry.delay_queue.entry_keys import CANCEL, LANE_BYTES, NAME_BYTES, VERSION_BYTES, build_due_bound, name_of

ROW_KINDS = _COUNTS, _SUPERSEDED, _REMEMBERED = b"\x07", b"\x08", b"\x09"
_ALONE, _WITH_OTHERS = b"\0", b"\1"
_NAME_AT = LANE_BYTES + 8
_SOURCE_AT = _NAME_AT + NAME_BYTES + VERSION_BYTES
_DUE_AT = 1 + NAME_BYTES + VERSION_BYTES
_LANE_AT = _DUE_AT + 8
_REST_AT = _LANE_AT + LANE_BYTES

News = Mapping[bytes, bytes | None]
Live = Mapping[bytes, bytes | None]


class NamedRows(Protocol):
    """The part of a table that must be read to fold named entries."""

    def get_many(self, keys: list[bytes]) -> list[bytes | None]: ...
    def list_under(self, prefix: bytes) -> list[tuple[bytes, bytes]]: ...


class NameEffect(NamedTuple):
    """The changes that changelog records of one name make in a table: rows to put, and to delete (None).

    `waiting` and `superseded` say by how many entries each of these numbers changes.
    """

    changes: dict[bytes, bytes | None]
    waiting: int
    superseded: int


def group_by_name(rows: Iterable[tuple[bytes, bytes | None]]) -> dict[bytes, dict[bytes, bytes | None]]:
    """Group records by the name of their entry; of each key only the last record is kept."""
    names: defaultdict[bytes, dict[bytes, bytes | None]] = defaultdict(dict)
    for key, value in rows:
        names[name_of(key)][key] = value
    return names


def iterate_changes(rows: NamedRows, news: Mapping[bytes, News]) -> Iterator[NameEffect]:
    """Yield for each name the changes that its changelog records make in the table; `news` has by name the last of each key."""
    pointers = rows.get_many([_COUNTS + name for name in news])
    existing = [(name, pointer) for name, pointer in zip(news, pointers, strict=True) if pointer is not None]
    envelopes = rows.get_many([_row_of_greatest(pointer[1:]) for _, pointer in existing])
    live: dict[bytes, Live] = {}
    for (name, pointer), envelope in zip(existing, envelopes, strict=True):
        others = rows.list_under(_SUPERSEDED + name) if pointer[:1] == _WITH_OTHERS else ()
        live[name] = {pointer[1:]: envelope, **{key_of(row): value for row, value in others}}
    for name, changes in news.items():
        yield _apply_news(name, live.get(name, {}), changes)


def _apply_news(name: bytes, before: Live, news: News) -> NameEffect:
    after = {key: value for key, value in {**before, **news}.items() if value is not None}
    if not before and len(after) == 1:
        # Nearly every name is new, and has one entry.
        ((key, envelope),) = after.items()
        if not key.startswith(CANCEL):
            return NameEffect({_COUNTS + name: _ALONE + key, key: envelope}, 1, 0)
    was, now = _build_rows(name, before), _build_rows(name, after)
    changes = {row: now.get(row) for row in (*was, *now) if was.get(row) != now.get(row)}
    return NameEffect(changes, _count_waiting(now) - _count_waiting(was), _others(now) - _others(was))


def rank(key: bytes) -> tuple[bytes, bool, bytes]:
    """Compare keys of one name by this; the greatest counts."""
    return key[_NAME_AT:_SOURCE_AT], key.startswith(CANCEL), key[LANE_BYTES:_NAME_AT] + key[:LANE_BYTES] + key[_SOURCE_AT:]


def build_superseded_key(key: bytes) -> bytes:
    """Build the key of the row for a superseded entry; rows of one name sort by their versions."""
    return _SUPERSEDED + key[_NAME_AT:_SOURCE_AT] + key[LANE_BYTES:_NAME_AT] + key[:LANE_BYTES] + key[_SOURCE_AT:]


def key_of(row: bytes) -> bytes:
    return row[_LANE_AT:_REST_AT] + row[_DUE_AT:_LANE_AT] + row[1:_DUE_AT] + row[_REST_AT:]


def build_remembered_key(cancel: bytes) -> bytes:
    """Build the key of the row for a cancel that counts; such rows sort by the time until which cancels are remembered."""
    return _REMEMBERED + cancel[LANE_BYTES:]


def cancel_of(row: bytes) -> bytes:
    return CANCEL + row[1:]


def build_forgotten_bound(now_ms: int) -> bytes:
    """Build the key below which the rows of cancels lie that are remembered no more."""
    return _REMEMBERED + build_due_bound(now_ms + 1)[LANE_BYTES:]


def build_pointer_key(key: bytes) -> bytes:
    """Build the key of the row that says which entry counts among those with the name of `key`."""
    return _COUNTS + name_of(key)


def waits(pointer_row: bytes) -> bytes | None:
    return None if pointer_row.startswith(CANCEL, 1) else pointer_row[1:]


def _build_rows(name: bytes, live: Live) -> dict[bytes, bytes | None]:
    """The rows that a table has for a name, where these of its entries stand in the changelog."""
    if not live:
        return {}
    counts = max(live, key=rank)
    rows = {_row_of_greatest(key) if key == counts else build_superseded_key(key): envelope for key, envelope in live.items()}
    rows[_COUNTS + name] = (_ALONE if len(live) == 1 else _WITH_OTHERS) + counts
    return rows


def _row_of_greatest(key: bytes) -> bytes:
    return build_remembered_key(key) if key.startswith(CANCEL) else key


def _count_waiting(rows: Iterable[bytes]) -> int:
    return sum(row[:1] not in ROW_KINDS for row in rows)


def _others(rows: Iterable[bytes]) -> int:
    return sum(row[:1] == _SUPERSEDED for row in rows)


FIRST_SUPERSEDED, END_SUPERSEDED = _SUPERSEDED, bytes([_SUPERSEDED[0] + 1])
FIRST_REMEMBERED, END_REMEMBERED = _REMEMBERED, bytes([_REMEMBERED[0] + 1])
