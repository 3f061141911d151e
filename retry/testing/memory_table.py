"""A table in memory: for tests of users and our own. Passes the same contract suite as the one on disk."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from retry.delay_queue.entry import COMMON, END_KEY, FIRST_KEY, LANE_BYTES, NAMED, ORDERED, due_at_ms, due_bound, lane_end
from retry.errors import TableUnreadable
from retry.delay_queue.table import named_entries, ordered_entries
from retry.delay_queue.table.unfolded_changes import Ahead
from retry.delay_queue.table.interface import CONTROL, Row
from retry.delay_queue.table.changelog_records import checked
from retry.delay_queue.table.due_estimate import Soon

_NEVER_FOLDED_MS = 1 << 62
# Beyond whatever may come behind a prefix.
_LAST = b"\xff" * 300
_KNOWN_AHEAD = (ORDERED, NAMED)


class MemoryTable:
    """A dict and a sorted list of its keys.

    Attributes:
      folded_at_ms: when it was last known to be current.
      corrupt: whatever is asked of it is answered with `TableUnreadable`.
    """

    def __init__(self) -> None:
        self.next_offset = self.waiting = 0
        self.folded_at_ms, self.corrupt = _NEVER_FOLDED_MS, False
        self._ahead = Ahead()
        self._rows: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    @property
    def controls(self) -> Mapping[bytes, bytes]:
        """See `Table.controls`."""
        return {key: self._rows[key] for key in self._between(CONTROL, b"\x11")}

    def fold(self, rows: Sequence[Row], next_offset: int, now_ms: int) -> None:
        """See `Table.fold`."""
        self._readable()
        self._change([row for row in checked(rows) if row[0][0] not in _KNOWN_AHEAD or self._ahead.news(*row)])
        self.next_offset, self.folded_at_ms = next_offset, now_ms

    def _change(self, rows: Sequence[Row]) -> None:
        named = [row for row in rows if row[0][0] == NAMED]
        for effect in named_entries.effects(self, named_entries.by_name(named)):
            self._apply(ordered_entries.Effect(effect.changes, effect.waiting))
        for key, value in rows:
            if key[0] == NAMED:
                continue
            if key[0] == ORDERED:
                self._apply(ordered_entries.drop(self, key) if value is None else ordered_entries.put(self, key, value))
            else:
                self.waiting += (value is not None) - (key in self._rows) if key < END_KEY else 0
                self._apply(ordered_entries.Effect({key: value}, 0))

    def _apply(self, effect: ordered_entries.Effect) -> None:
        for key, value in effect.changes.items():
            at, known = bisect_left(self._keys, key), key in self._rows
            if value is not None:
                self._rows[key] = value
                self._keys[at:at] = [] if known else [key]
            elif known:
                del self._rows[key], self._keys[at]
        self.waiting += effect.waiting

    def _readable(self) -> None:
        if self.corrupt:
            raise TableUnreadable("corrupt, as it was told to be")

    def lanes(self) -> list[bytes]:
        """See `Table.lanes`."""
        return sorted({key[:LANE_BYTES] for key in self._between(FIRST_KEY, END_KEY)})

    def due_lanes(self, now_ms: int) -> list[bytes]:
        """See `Table.due_lanes`."""
        first = {lane: next(iter(self._between(lane, due_bound(now_ms + 1, lane))), None) for lane in self.lanes()}
        return sorted((lane for lane, key in first.items() if key), key=lambda lane: (first[lane] or b"")[LANE_BYTES:])

    def due(self, now_ms: int, rows_max: int, bytes_max: int, lane: bytes = COMMON) -> list[tuple[bytes, bytes]]:
        """See `Table.due`."""
        self._readable()
        return self._first_rows(lane, due_bound(now_ms + 1, lane), rows_max, bytes_max)

    def _first_rows(self, start: bytes, end: bytes, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        for key in self._between(start, end):
            if len(found) == rows_max or bytes_max <= 0:
                break
            found.append((key, self._rows[key]))
            bytes_max -= len(self._rows[key])
        return found

    def forget(self, keys: Sequence[bytes], again: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """See `Table.forget`."""
        # Plain ones are put by the fold: one that is due at once would be sent before it was told, and then again.
        self._readable()
        known = [row for row in again if row[0][0] in _KNOWN_AHEAD]
        for key, _ in known:
            self._ahead.put(key)
        for key in keys:
            self._ahead.dropped(key)
        self._change([*known, *((key, None) for key in keys)])

    def drop(self, keys: Sequence[bytes], again: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """See `Table.drop`."""
        self.forget(keys, again)

    def page(self, after: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        """See `Table.page`."""
        self._readable()
        start = bisect_right(self._keys, max(after, FIRST_KEY))
        keys = self._keys[start : max(start, bisect_left(self._keys, END_KEY))]
        return [(key, self._rows[key]) for key in keys[:rows_max]]

    def soon(self, until_ms: Sequence[int], rows_max: int) -> Soon:  # noqa: ARG002
        """See `Table.soon`; here every row is looked at."""
        self._readable()
        due = sorted(due_at_ms(key) for key in self._between(FIRST_KEY, END_KEY))
        return Soon(due[0] if due and due[0] <= until_ms[-1] else None, [bisect_right(due, until) for until in until_ms])

    def earliest(self, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """See `Table.earliest`."""
        self._readable()
        return [row for lane in self.lanes() for row in self._first_rows(lane, lane_end(lane), rows_max, bytes_max)]

    def behind(self, after: bytes, rows_max: int) -> list[tuple[bytes, bytes, bytes]]:
        """See `Table.behind`."""
        self._readable()
        keys = [key for key in self._between(ordered_entries.FIRST_BEHIND, ordered_entries.END_BEHIND) if key > after]
        return [(key, ordered_entries.key_of(key), self._rows[key]) for key in keys[:rows_max]]

    def get(self, key: bytes) -> bytes | None:
        """See `Table.get`; rows of queues too."""
        found = self._rows.get(key)
        return ordered_entries.find(self, key) if found is None and key[:1] == bytes([ORDERED]) else found

    def superseded(self, rows_max: int) -> list[bytes]:
        """See `Table.superseded`."""
        self._readable()
        return [named_entries.key_of(row) for row in self._between(named_entries.FIRST_SUPERSEDED, named_entries.END_SUPERSEDED)[:rows_max]]

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Rows by their keys."""
        return [self._rows.get(key) for key in keys]

    def under(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """All rows whose keys begin so."""
        return [(key, self._rows[key]) for key in self._between(prefix, prefix + _LAST)]

    def first(self, prefix: bytes, start: bytes) -> tuple[bytes, bytes] | None:
        """The first row at `start` or beyond, if its key begins with `prefix`."""
        at = bisect_left(self._keys, start)
        found = self._keys[at : at + 1]
        return (found[0], self._rows[found[0]]) if found and found[0].startswith(prefix) else None

    def _between(self, start: bytes, end: bytes) -> list[bytes]:
        return self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)]

    def opened(self) -> MemoryTable:
        """This table, without what only its former process knew."""
        self._ahead = Ahead()
        return self

    def close(self) -> None:
        """See `Table.close`."""
