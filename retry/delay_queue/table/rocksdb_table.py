"""The table on disk: the fold of one changelog partition in RocksDB, lane by lane, queue by queue and name by name.

A scan starts at the low watermark of its lane: stepping over the tombstones of delivered entries costs more than delivering them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from retry import format_versions
from retry.delay_queue.entry import COMMON, END_KEY, FIRST_KEY, LANE_BYTES, NAMED, ORDERED, PLAIN, due_bound, lane_end
from retry.errors import ChangelogReplaced, TableUnreadable
from retry.delay_queue.table import named_entries, ordered_entries
from retry.delay_queue.table.unfolded_changes import Ahead
from retry.delay_queue.table.interface import CONTROL, Identity, Row
from retry.delay_queue.table.rocksdb import Batch, Database, Memory, new_batch, wipe
from retry.delay_queue.table.changelog_records import checked
from retry.delay_queue.table.watermarks import Lanes
from retry.delay_queue.table.due_estimate import Soon, soon
from retry.delay_queue.table.superseded_entries import Superseded

log = logging.getLogger(__name__)

FORMAT = format_versions.TABLE.writes
STATE_KEY = b"\0"
_RECLAIM_EVERY = 50_000
_EVERYTHING = 1 << 62
# At most so much is folded again after a kill.
_FLUSH_EVERY_MS = 60_000
_FRESH = -1


class State(msgspec.Struct, array_like=True, frozen=True):
    """The row beside the rows: whose fold this is, how far it goes, and when it was last known to be current."""

    format: int
    identity: Identity
    next_offset: int
    waiting: int
    folded_at_ms: int


class RocksTable:
    """One database: entries under their keys, and the state under a key that sorts before all of them."""

    def __init__(self, path: Path, identity: Identity, memory: Memory) -> None:
        self.path, self._identity = path, identity
        self._db = Database(path, memory)
        self._lock = threading.Lock()
        self._gone: dict[bytes, set[bytes]] = {}
        self._ahead = Ahead()
        self._flushed_at_ms = 0
        try:
            self._state = self._read_state()
            self._lanes = self._read_lanes()
            self._superseded = Superseded(self._db)
            self._controls = dict(self._db.scan(CONTROL, b"\x11", _EVERYTHING, _EVERYTHING)[0])
        except BaseException:
            self._db.close()
            raise

    @classmethod
    def open(
        cls, path: Path, identity: Identity, memory: Memory, now_ms: int, age_ms_max: int, *, adopt: bool = False
    ) -> RocksTable:
        """The table as it was left, or an empty one where that cannot be trusted.

        Wiped is what is corrupt, belongs to another partition, has an older or a newer format, or was last current longer
        ago than `age_ms_max`: by then compaction may have dropped deletes that this table has not seen, and its entries
        would come back to life. The same holds for one that was last current so far in the future.

        Args:
          adopt: whether a table of another changelog is wiped, too.

        Raises:
          ChangelogReplaced: it is the table of another changelog.
          DataDirUnusable: the disk is to blame.
        """
        try:
            table = cls(path, identity, memory)
        except TableUnreadable as error:
            # Not corrupt but open elsewhere in this process: a mistake of ours, and no reason to wipe anything.
            if "LOCK" in str(error) or "lock hold" in str(error):
                raise
            log.error("wiped: %s", str(error))
        else:
            state = table._state
            is_current = state.folded_at_ms == _FRESH or abs(now_ms - state.folded_at_ms) <= age_ms_max
            if state.format in format_versions.TABLE.reads and state.identity == identity and is_current:
                return table
            table.close()
            if not adopt and state.identity.partition == identity.partition and state.identity != identity:
                raise ChangelogReplaced(path.name, f"{path} was folded from {_named(state.identity)}", _named(identity))
            log.warning("%s: wiped: of %s, last current at %d ms", path, state.identity, state.folded_at_ms)
        wipe(path)
        return cls(path, identity, memory)

    def _read_state(self) -> State:
        stored = self._db.get(STATE_KEY)
        if stored is None:
            # Rows without a state are what a wipe leaves behind that was cut short.
            if self._db.scan(FIRST_KEY, b"\xff", 1, 1)[0]:
                raise TableUnreadable(f"{self.path}: rows without a state")
            return State(FORMAT, self._identity, 0, 0, _FRESH)
        try:
            state = msgspec.msgpack.decode(stored, type=State)
        except msgspec.MsgspecError as error:
            raise TableUnreadable(f"{self.path}: {error}") from error
        if state.folded_at_ms == _FRESH:
            raise TableUnreadable(f"{self.path}: its first fold was cut short")
        return state

    def _read_lanes(self) -> Lanes:
        lanes, at = Lanes(), FIRST_KEY
        while found := self._db.scan(at, END_KEY, 1, 1)[0]:
            lane = found[0][0][:LANE_BYTES]
            lanes.put({lane: found[0][0]})
            at = lane_end(lane)
        return lanes

    @property
    def next_offset(self) -> int:
        """See `Table.next_offset`."""
        return self._state.next_offset

    @property
    def waiting(self) -> int:
        """See `Table.waiting`."""
        return self._state.waiting

    @property
    def controls(self) -> Mapping[bytes, bytes]:
        """See `Table.controls`."""
        return self._controls

    def fold(self, rows: Sequence[Row], next_offset: int, now_ms: int) -> None:
        """See `Table.fold`."""
        batch, change, lowest = new_batch(), 0, dict[bytes, bytes]()
        put, ended, special = batch.put, [], []
        with self._lock:
            for key, value in checked(rows):
                if key[0] != PLAIN:
                    special.append((key, value))
                elif value is not None:
                    put(key, value)
                    change += 1
                    lane = key[:LANE_BYTES]
                    if key < lowest.get(lane, END_KEY):
                        lowest[lane] = key
                elif key >= self._lanes.low(key[:LANE_BYTES]):
                    # One below the watermark is our own, read back: `forget` has done it already.
                    ended.append(key)
            change -= self._end(ended, batch)
            if special:
                self._fold_special(special, batch)
                change += self._fold_names([row for row in special if row[0][0] == NAMED], batch)
            self._write(batch, next_offset, self.waiting + change, now_ms)
            self._lanes.put(lowest)
        if now_ms - self._flushed_at_ms >= _FLUSH_EVERY_MS:
            self._flushed_at_ms = now_ms
            self._db.flush()

    def _end(self, keys: list[bytes], batch: Batch) -> int:
        """Delete those of these keys that have rows; how many that were."""
        found = self._db.there(keys)
        for key in found:
            batch.delete(key)
            if self._lanes.seen(key):
                # Handed out by `due`, delivered, and read back before `forget` is told: to be counted once.
                self._gone.setdefault(key[:LANE_BYTES], set()).add(key)
        return len(found)

    def _fold_special(self, rows: Sequence[Row], batch: Batch) -> None:
        """Controls, and entries that keep an order."""
        for key, value in rows:
            if key[0] == ORDERED:
                if not self._ahead.news(key, value):
                    continue
                # Each sees what the one before it wrote. Cut short, all of them are told once more, which changes nothing.
                self._queue(ordered_entries.drop(self._db, key) if value is None else ordered_entries.put(self._db, key, value))
            elif key[0] == NAMED:
                continue
            elif value is None:
                batch.delete(key)
                self._controls = {k: v for k, v in self._controls.items() if k != key}
            else:
                batch.put(key, value)
                self._controls = {**self._controls, key: value}

    def _fold_names(self, rows: Iterable[Row], batch: Batch) -> int:
        """Entries with a name; by how many more wait."""
        low, told = self._lanes.low, []
        for key, value in rows:
            # Below its watermark a lane has no row: with nothing superseded, such a null is our own, read back.
            if self._ahead.news(key, value) and (value is not None or self._superseded.count or key >= low(key[:LANE_BYTES])):
                told.append((key, value))
        return self._name(told, batch)

    def _name(self, rows: Iterable[Row], batch: Batch) -> int:
        """Write what records of named entries do; by how many more wait."""
        change, lowest = 0, dict[bytes, bytes]()
        for effect in named_entries.effects(self._db, named_entries.by_name(rows)):
            change += effect.waiting
            self._superseded.changed(effect.superseded)
            for row, value in effect.changes.items():
                if value is None:
                    batch.delete(row)
                    if row[0] == NAMED and self._lanes.seen(row):
                        # Handed out by `due`; `forget` is to look at what became of it.
                        self._gone.setdefault(row[:LANE_BYTES], set()).add(row)
                    continue
                batch.put(row, value)
                if row[0] == NAMED:
                    lane = row[:LANE_BYTES]
                    lowest[lane] = min(lowest.get(lane, END_KEY), row)
                elif row[:1] == named_entries.FIRST_SUPERSEDED:
                    self._superseded.put(row)
        self._lanes.put(lowest)
        return change

    def _queue(self, effect: ordered_entries.Effect) -> None:
        batch = new_batch()
        for key, value in effect.changes.items():
            if value is None:
                batch.delete(key)
                continue
            batch.put(key, value)
            if key[0] == ORDERED:
                self._lanes.put({key[:LANE_BYTES]: key})
        if effect.changes:
            self._write(batch, self.next_offset, self.waiting + effect.waiting, self._state.folded_at_ms)

    def lanes(self) -> list[bytes]:
        """See `Table.lanes`."""
        with self._lock:
            return self._lanes.waiting()

    def due_lanes(self, now_ms: int) -> list[bytes]:
        """See `Table.due_lanes`."""
        with self._lock:
            return self._lanes.due(now_ms)

    def due(self, now_ms: int, rows_max: int, bytes_max: int, lane: bytes = COMMON) -> list[tuple[bytes, bytes]]:
        """See `Table.due`."""
        end = due_bound(now_ms + 1, lane)
        with self._lock:
            low = self._lanes.low(lane)
            if low >= end:
                return []
            found, following = self._db.scan(low, lane_end(lane), rows_max, bytes_max, end)
            self._gone.pop(lane, None)
            to = following or (found[-1][0] + b"\0" if found else low)
            # Below the first row lie only those that are gone, of whoever dropped them.
            self._lanes.scanned(lane, to, found[0][0] if found else following)
            return found

    def forget(self, keys: Sequence[bytes], again: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """See `Table.forget`."""
        batch, rows, change = new_batch(), dict[bytes, int](), 0
        named: list[Row] = [row for row in again if row[0][0] == NAMED]
        put = {named_entries.pointer(key) for key, _ in named}
        with self._lock:
            for key in keys:
                lane = key[:LANE_BYTES]
                rows[lane] = rows.get(lane, 0) + 1
                if key[0] == PLAIN:
                    batch.delete(key)
                    change -= key not in self._gone.get(lane, ())
                elif key[0] == NAMED:
                    self._ahead.dropped(key)
                    if self._superseded.count or (pointer := named_entries.pointer(key)) in put or key in self._gone.get(lane, ()):
                        named.append((key, None))
                    else:
                        # It counts still, and there is no other of its name.
                        batch.delete(key)
                        batch.delete(pointer)
                        change -= 1
            known = {lane: self._lanes.forgot(lane, count) for lane, count in rows.items()}
            for lane in rows:
                self._gone.pop(lane, None)
            # After the watermarks moved, and before anything below them is reclaimed: an entry that takes the head's place
            # may be due before the others of its lane, and so may the next run of what recurs.
            self._requeue(keys, again)
            change += self._renamed(named, batch)
            for lane, marks in known.items():
                if marks is not None and marks.forgotten >= _RECLAIM_EVERY:
                    batch.delete_range(lane, marks.low)
                    marks.forgotten = 0
            self._write(batch, self.next_offset, self.waiting + change, self._state.folded_at_ms)

    def drop(self, keys: Sequence[bytes], again: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """See `Table.drop`."""
        batch, change = new_batch(), 0
        with self._lock:
            for key in keys:
                if key[0] == PLAIN and self._db.get(key) is not None:
                    batch.delete(key)
                    change -= 1
                elif key[0] == NAMED:
                    self._ahead.dropped(key)
            self._requeue(keys, again)
            change += self._renamed([row for row in (*again, *((key, None) for key in keys)) if row[0][0] == NAMED], batch)
            self._write(batch, self.next_offset, self.waiting + change, self._state.folded_at_ms)

    def _requeue(self, keys: Sequence[bytes], again: Sequence[tuple[bytes, bytes]]) -> None:
        """Ordered entries take their place in a queue again, or leave it."""
        for row in again:
            if row[0][0] == ORDERED:
                self._ahead.put(row[0])
                self._queue(ordered_entries.put(self._db, *row))
        for key in keys:
            if key[0] == ORDERED:
                self._ahead.dropped(key)
                self._queue(ordered_entries.drop(self._db, key))

    def _renamed(self, rows: Sequence[Row], batch: Batch) -> int:
        """Named entries that were put or deleted before the fold tells of it; by how many more wait."""
        if not rows:
            return 0
        for key, value in rows:
            if value is not None:
                self._ahead.put(key)
        return self._name(rows, batch)

    def superseded(self, rows_max: int) -> list[bytes]:
        """See `Table.superseded`."""
        with self._lock:
            return self._superseded.keys(rows_max)

    def page(self, after: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        """See `Table.page`."""
        return self._db.scan(max(after + b"\0", FIRST_KEY), END_KEY, rows_max, _EVERYTHING)[0]

    def soon(self, until_ms: Sequence[int], rows_max: int) -> Soon:
        """See `Table.soon`."""
        found = soon(self._db.keys, self._starts(), until_ms, rows_max)
        return found._replace(due=[min(due, max(0, self.waiting)) for due in found.due])

    def earliest(self, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """See `Table.earliest`."""
        starts = sorted(self._starts().items())
        return [row for lane, low in starts for row in self._db.scan(low, lane_end(lane), rows_max, bytes_max)[0]]

    def _starts(self) -> dict[bytes, bytes]:
        with self._lock:
            return {lane: self._lanes.low(lane) for lane in self._lanes.waiting()}

    def behind(self, after: bytes, rows_max: int) -> list[tuple[bytes, bytes, bytes]]:
        """See `Table.behind`."""
        start = max(after + b"\0", ordered_entries.FIRST_BEHIND)
        rows = self._db.scan(start, ordered_entries.END_BEHIND, rows_max, _EVERYTHING)[0]
        return [(row, ordered_entries.key_of(row), envelope) for row, envelope in rows]

    def get(self, key: bytes) -> bytes | None:
        """See `Table.get`; rows of queues too."""
        found = self._db.get(key)
        return ordered_entries.find(self._db, key) if found is None and key[:1] == bytes([ORDERED]) else found

    def close(self) -> None:
        """See `Table.close`."""
        self._db.close()

    def _write(self, batch: Batch, next_offset: int, waiting: int, folded_at_ms: int) -> None:
        state = State(FORMAT, self._identity, next_offset, waiting, folded_at_ms)
        batch.put(STATE_KEY, msgspec.msgpack.encode(state))
        self._db.write(batch)
        self._state = state


def _named(identity: Identity) -> str:
    return f"topic id {identity.topic_id} of cluster {identity.cluster_id}"
