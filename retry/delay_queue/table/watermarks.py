"""Low watermarks: where the scan of each lane begins, so that nothing delivered is stepped over and idle lanes cost nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from retry.delay_queue.entry_keys import LANE_BYTES, build_due_bound, build_lane_end
from retry.delay_queue.table import named_entries
from retry.delay_queue.table.rocksdb import Database, new_batch

_RECLAIM_EVERY = 50_000


@dataclass(slots=True)
class Watermark:
    """The state of the scans of one lane.

    Attributes:
      low: no row lies below it; the first row itself, where a scan has seen that one.
      lowest_put: the lowest key that was put since the last scan.
      scanned_to: where the last scan ended.
      forgotten: rows that were delivered since the range below `low` was reclaimed.
    """

    low: bytes
    lowest_put: bytes
    scanned_to: bytes
    forgotten: int = 0


class Watermarks:
    """The watermarks of every lane that ever had a row; lanes that have nothing due are not read to find those that have."""

    def __init__(self) -> None:
        self._lanes: dict[bytes, Watermark] = {}
        # By lane, what the last scan handed out, and the fold deleted before `note_delivered_rows`: to be counted once.
        self._deleted: dict[bytes, set[bytes]] = {}
        # Every lane that waits is here with its watermark, or with one that it had before: those only rise, unless rows are put.
        self._first: list[tuple[bytes, bytes]] = []

    def list_waiting(self) -> list[bytes]:
        return [lane for lane, mark in self._lanes.items() if mark.low[:LANE_BYTES] == lane]

    def note_put(self, lowest: Mapping[bytes, bytes]) -> None:
        for lane, key in lowest.items():
            mark = self._lanes.get(lane)
            if mark is None:
                self._lanes[lane] = Watermark(key, key, build_due_bound(-(1 << 63), lane))
                heappush(self._first, (key[LANE_BYTES:], lane))
            else:
                if key < mark.low:
                    heappush(self._first, (key[LANE_BYTES:], lane))
                mark.low, mark.lowest_put = min(mark.low, key), min(mark.lowest_put, key)

    def low(self, lane: bytes) -> bytes:
        """Return the key at which a scan of the lane begins; a key beyond the lane where it has no rows."""
        mark = self._lanes.get(lane)
        return build_lane_end(lane) if mark is None else mark.low

    def note_deleted(self, key: bytes) -> None:
        lane = key[:LANE_BYTES]
        mark = self._lanes.get(lane)
        if mark is not None and key < mark.scanned_to:
            self._deleted.setdefault(lane, set()).add(key)

    def find_due_lanes(self, now_ms: int) -> list[bytes]:
        """Find lanes that may have something due, the oldest first; exactly those that have, once each was scanned."""
        bound, reached, first = build_due_bound(now_ms + 1, b""), set[bytes](), self._first
        while first and first[0][0] < bound:
            reached.add(heappop(first)[1])
        low = {lane: mark.low[LANE_BYTES:] for lane in reached if (mark := self._lanes[lane]).low[:LANE_BYTES] == lane}
        for lane, at in low.items():
            heappush(first, (at, lane))
        return sorted((lane for lane, at in low.items() if at < bound), key=low.__getitem__)

    def note_scan(self, lane: bytes, to: bytes, following: bytes | None) -> None:
        """Note that a scan of a lane saw all rows below `to`; `following`, where nothing was due, is the first row of all."""
        mark = self._lanes.get(lane)
        self._deleted.pop(lane, None)
        if mark is not None:
            mark.lowest_put, mark.scanned_to = build_lane_end(lane), to
            if following is not None:
                mark.low = following

    def note_delivered_rows(self, lane: bytes, rows: int) -> Collection[bytes]:
        """Note that so many rows of the last scan were delivered; return the keys of those that the fold had deleted already."""
        mark = self._lanes.get(lane)
        if mark is not None:
            mark.low = min(mark.scanned_to, mark.lowest_put)
            mark.forgotten += rows
        return self._deleted.pop(lane, ())

    def reclaim(self, lanes: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield lanes with enough delivered rows to be worth a cleanup, each with the key below which its rows are delivered."""
        for lane in lanes:
            mark = self._lanes.get(lane)
            if mark is not None and mark.forgotten >= _RECLAIM_EVERY:
                mark.forgotten = 0
                yield lane, mark.low


# Rows of superseded entries and of cancels in a table on disk: where they begin, so that no scan looks for none.

_PAGE_ROWS = 10_000
# They lie far apart, among deleted rows: after so many of those, to step over them costs more than to write the few others again.
_RECLAIM_SUPERSEDED_EVERY, _REWRITTEN_MAX = 2_000, 200
_EVERYTHING = 1 << 62


class Superseded:
    def __init__(self, db: Database) -> None:
        self._db, self.count, self._deleted = db, 0, 0
        # No row lies below.
        self._low, at = named_entries.END_SUPERSEDED, named_entries.FIRST_SUPERSEDED
        while rows := db.scan_keys(at, named_entries.END_SUPERSEDED, _PAGE_ROWS):
            self._low = min(self._low, rows[0])
            self.count, at = self.count + len(rows), rows[-1] + b"\0"

    def add_count(self, more: int) -> None:
        self.count += more
        self._deleted -= min(0, more)

    def note_put(self, row: bytes) -> None:
        self._low = min(self._low, row)

    def list_first_keys(self, rows_max: int) -> list[bytes]:
        if not self.count:
            return []
        if self._deleted >= _RECLAIM_SUPERSEDED_EVERY and self.count <= _REWRITTEN_MAX:
            self._rewrite()
        rows = self._db.scan_keys(self._low, named_entries.END_SUPERSEDED, rows_max)
        self._low = rows[0] if rows else named_entries.END_SUPERSEDED
        return [named_entries.key_of(row) for row in rows]

    def _rewrite(self) -> None:
        batch, self._deleted = new_batch(), 0
        batch.delete_range(named_entries.FIRST_SUPERSEDED, named_entries.END_SUPERSEDED)
        for row, envelope in self._db.scan(self._low, named_entries.END_SUPERSEDED, _REWRITTEN_MAX, _EVERYTHING)[0]:
            batch.put(row, envelope)
        self._db.write(batch)


class RememberedCancels:
    """Rows of cancels that count, by until when they are remembered; used under the lock of its table."""

    def __init__(self, db: Database) -> None:
        # No row lies below.
        self._db, self._low = db, named_entries.FIRST_REMEMBERED

    def note_row(self, row: bytes) -> None:
        self._low = min(self._low, row)

    def expired_keys(self, now_ms: int, keys_max: int) -> list[bytes]:
        expired = named_entries.build_forgotten_bound(now_ms)
        if self._low >= expired or not keys_max:
            return []
        rows = self._db.scan_keys(self._low, named_entries.END_REMEMBERED, keys_max)
        self._low = rows[0] if rows else named_entries.END_REMEMBERED
        return [named_entries.cancel_of(row) for row in rows if row < expired]
