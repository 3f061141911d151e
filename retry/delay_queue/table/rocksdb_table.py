"""The table on disk: the fold of one changelog partition in RocksDB, lane by lane, queue by queue and name by name.

A scan starts at the low watermark of its lane: stepping over the tombstones of delivered entries costs more than delivering them.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from retry import format_versions
from retry.clock import Interval
from retry.delay_queue import blocks
from retry.delay_queue.action_records import SLICE, SLICE_BYTES
from retry.delay_queue.entry_keys import (
    BLOCK,
    COMMON,
    END_KEY,
    FIRST_KEY,
    LANE_BYTES,
    NAMED,
    ORDERED,
    PLAIN,
    build_due_bound,
    build_lane_end,
)
from retry.delay_queue.ramp_records import SENDING
from retry.delay_queue.table import interface, named_entries, ordered_entries, table_state
from retry.delay_queue.table.changelog_records import OF_ACTIONS, UnfoldedChanges, list_repeated_keys, select_readable_rows
from retry.delay_queue.table.entry_writers import NamedEntries, OrderedEntries, PlainEntries, group_keys_by_kind
from retry.delay_queue.table.interface import CONTROL, ChangelogRow, DueEstimate, Identity, UnreadableRow, estimate_due
from retry.delay_queue.table.rocksdb import Database, Memory, WriteBatch, destroy_database, new_batch
from retry.delay_queue.table.table_state import STATE_KEY, TableState
from retry.delay_queue.table.watermarks import Watermarks
from retry.errors import ChangelogReplaced, TableUnreadable

log = logging.getLogger(__name__)

_EVERYTHING = 1 << 62
# Beyond whatever may come behind the prefix of a slice.
_LAST = b"\xff" * SLICE_BYTES
_COUNTED_AT_ONCE = 10_000
# At most so much is folded again after a kill.
_FLUSH_EVERY_S = 60.0


class RocksTable:
    """A `Table` in one RocksDB database: entries under their keys, and the state under a key that sorts before all of them."""

    def __init__(self, path: Path, identity: Identity, memory: Memory) -> None:
        self.path, self._identity = path, identity
        self._db = Database(path, memory)
        self._lock = threading.Lock()
        # The first records at once: a table on disk without a state is one that nobody can look at, and a killed worker restores.
        self._flushing, self._in_bulk = Interval(_FLUSH_EVERY_S, at_once=True), False
        try:
            self._state = table_state.read(self._db, identity)
            self._watermarks = _lowest_of_each_lane(self._db)
            self._unfolded = {kind: UnfoldedChanges() for kind in (PLAIN, ORDERED, NAMED)}
            may_have_early_rows = self._state.next_offset > 0
            self._plain = PlainEntries(self._db, self._watermarks, self._unfolded[PLAIN], may_have_early_rows=may_have_early_rows)
            self._ordered = OrderedEntries(self._db, self._watermarks, self._unfolded[ORDERED])
            self._named = NamedEntries(self._db, self._watermarks, self._unfolded[NAMED])
            self._has_slices = self._find_slices()
            self._controls = dict(self._db.scan(CONTROL, b"\x11", _EVERYTHING, _EVERYTHING)[0])
        except BaseException:
            self._db.close()
            raise

    @classmethod
    def open(
        cls, path: Path, identity: Identity, memory: Memory, now_ms: int, age_ms_max: int, *, adopt: bool = False
    ) -> RocksTable:
        """Open a table as it was left, or an empty one where its files cannot be trusted.

        Wiped is what is corrupt, of another partition or format, or last current longer ago than `age_ms_max`, or as far in the
        future: compaction may have dropped deletes that it has not seen. Raises ChangelogReplaced where it is the table of
        another changelog, unless with `adopt`, and DataDirUnusable where the disk is to blame.
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
            if state.is_trusted(identity, now_ms, age_ms_max):
                return table
            table.close()
            if not adopt and state.identity.partition == identity.partition and state.identity != identity:
                was = f"{path} was folded from {_name_identity(state.identity)}"
                raise ChangelogReplaced(path.name, was, _name_identity(identity))
            log.warning("%s: wiped: of %s, last current at %d ms", path, state.identity, state.current_at_ms)
        destroy_database(path)
        return cls(path, identity, memory)

    @property
    def next_offset(self) -> int:
        return self._state.next_offset

    @property
    def current_at_ms(self) -> int:
        return self._state.current_at_ms

    @property
    def waiting(self) -> int:
        return self._state.waiting

    @property
    def controls(self) -> Mapping[bytes, bytes]:
        return self._controls

    @property
    def has_slices(self) -> bool:
        return self._has_slices

    def apply_records(self, rows: Sequence[ChangelogRow], next_offset: int, current_at_ms: int) -> Sequence[UnreadableRow]:
        batch, (records, unreadable) = new_batch(), select_readable_rows(rows)
        repeated = list_repeated_keys(rows) if len(records) < len(rows) else ()
        with self._lock:
            change, others = self._plain.apply_rows(records, repeated, batch)
            if others:
                self._fold_controls([row for row in others if row[0][:1] == CONTROL], batch)
                _fold_rows(slices := [row for row in others if row[0][:1] in OF_ACTIONS], batch)
                self._ordered.apply_rows([row for row in others if row[0][0] == ORDERED], self._write_change)
                change += self._named.apply_rows([row for row in others if row[0][0] == NAMED], batch)
            self._write(batch, next_offset, self.waiting + change, current_at_ms)
            if others and slices:
                self._has_slices = self._find_slices()
        if self._flushing.is_due():
            self._db.flush()
        return unreadable

    def _fold_controls(self, rows: Sequence[ChangelogRow], batch: WriteBatch) -> None:
        for key, value in rows:
            if value is None:
                batch.delete(key)
                self._controls = {k: v for k, v in self._controls.items() if k != key}
            else:
                batch.put(key, value)
                self._controls = {**self._controls, key: value}

    def list_lanes(self) -> list[bytes]:
        with self._lock:
            return self._watermarks.list_waiting()

    def count(self, lane: bytes, rows_max: int) -> int:
        """Count the rows of a lane, up to `rows_max`; their values are not read."""
        with self._lock:
            start, count = self._watermarks.low(lane), 0
        while count < rows_max and (
            keys := self._db.scan_keys(start, build_lane_end(lane), min(_COUNTED_AT_ONCE, rows_max - count))
        ):
            start, count = keys[-1] + b"\0", count + len(keys)
        return count

    def find_due_lanes(self, now_ms: int) -> list[bytes]:
        with self._lock:
            return self._watermarks.find_due_lanes(now_ms)

    def find_due(self, now_ms: int, rows_max: int, bytes_max: int, lane: bytes = COMMON) -> list[tuple[bytes, bytes]]:
        end = build_due_bound(now_ms + 1, lane)
        with self._lock:
            # Nothing is handed out before all is folded that was committed before.
            self._plain.may_have_early_rows = False
            low = self._watermarks.low(lane)
            if low >= end:
                return []
            scan = self._scan_blocks if lane[0] == BLOCK else self._db.scan
            rows, following = scan(low, build_lane_end(lane), rows_max, bytes_max, end)
            scanned_to = following or (rows[-1][0] + b"\0" if rows else low)
            # Below the first row lie only deleted ones, whoever deleted them.
            self._watermarks.note_scan(lane, scanned_to, rows[0][0] if rows else following)
            return rows

    def _scan_blocks(
        self, start: bytes, end: bytes, entries_max: int, bytes_max: int, until: bytes
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """`Database.scan`, of so many entries, and bytes of these; the last block comes whole, however many it has."""
        rows: list[tuple[bytes, bytes]] = []
        while entries_max > 0 and bytes_max > 0:
            rows_max = min(entries_max // blocks.ENTRIES_MAX, bytes_max // blocks.BYTES_MAX)
            some, following = self._db.scan(start, end, max(1, rows_max), bytes_max, until)
            rows += some
            if not some:
                return rows, following
            start = some[-1][0] + b"\0"
            entries_max -= sum(blocks.count_entries(key) for key, _ in some)
            bytes_max -= sum(blocks.measure_entries(*row) for row in some)
        return rows, None

    def delete_scanned_rows(self, keys: Sequence[bytes], replacements: Sequence[tuple[bytes, bytes]] = ()) -> None:
        batch, kinds = new_batch(), group_keys_by_kind(keys)
        lanes = Counter(key[:LANE_BYTES] for key in keys)
        with self._lock:
            # Watermarks move before anything is put, and nothing below them is reclaimed until then: an entry that takes the
            # head's place may be due before the others of its lane, and so may the next run of what recurs.
            deleted = {key for lane, count in lanes.items() for key in self._watermarks.note_delivered_rows(lane, count)}
            change = self._plain.delete_scanned_entries(kinds[PLAIN] + kinds[BLOCK], deleted, batch)
            self._ordered.replace(kinds[ORDERED], [row for row in replacements if row[0][0] == ORDERED], self._write_change)
            named = [row for row in replacements if row[0][0] == NAMED]
            change += self._named.delete_scanned_entries(kinds[NAMED], named, deleted, batch)
            for lane, low in self._watermarks.reclaim(lanes):
                batch.delete_range(lane, low)
            self._write_change(batch, change)

    def delete_rows(self, keys: Sequence[bytes], replacements: Sequence[tuple[bytes, bytes]] = ()) -> None:
        batch, kinds = new_batch(), group_keys_by_kind(keys)
        with self._lock:
            change = self._plain.delete_entries(kinds[PLAIN] + kinds[BLOCK], batch)
            self._ordered.replace(kinds[ORDERED], [row for row in replacements if row[0][0] == ORDERED], self._write_change)
            change += self._named.delete_entries(kinds[NAMED], [row for row in replacements if row[0][0] == NAMED], batch)
            self._write_change(batch, change)

    def is_leaving(self, key: bytes) -> bool:
        return key[0] in self._unfolded and self._unfolded[key[0]].is_leaving(key)

    def list_superseded(self, rows_max: int) -> list[bytes]:
        with self._lock:
            return self._named.superseded.list_first_keys(rows_max)

    def expired_cancels(self, now_ms: int, keys_max: int) -> list[bytes]:
        with self._lock:
            return self._named.cancels.expired_keys(now_ms, keys_max)

    def find_greatest(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [
            None if row is None else row[1:] for row in self._db.get_many([named_entries.build_pointer_key(key) for key in keys])
        ]

    def list_slices(self, prefix: bytes, rows_max: int, after: bytes = b"") -> list[tuple[bytes, bytes]]:
        return self._db.scan(max(prefix, after + b"\0"), prefix + _LAST, rows_max, _EVERYTHING)[0]

    def _find_slices(self) -> bool:
        return bool(self.list_slices(SLICE, 1) or self.list_slices(SENDING, 1))

    def scan_entries(self, after: bytes, rows_max: int) -> list[tuple[bytes, bytes, bytes]]:
        return interface.read_page(lambda start, end, rows: self._db.scan(start, end, rows, _EVERYTHING)[0], after, rows_max)

    def explode(self, block_keys: Sequence[bytes]) -> None:
        batch = new_batch()
        with self._lock:
            self._write_change(batch, self._plain.explode(block_keys, batch))

    def find_blocks(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        with self._lock:
            return self._plain.find_blocks(keys)

    def estimate_due(self, until_ms: Sequence[int], rows_max: int) -> DueEstimate:
        estimate = estimate_due(self._db.scan_keys, self._starts(), until_ms, rows_max)
        return estimate._replace(due=[min(due, max(0, self.waiting)) for due in estimate.due])

    def list_first_entries(self, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        starts = sorted(self._starts().items())
        rows = (self._db.scan(low, build_lane_end(lane), rows_max, bytes_max)[0] for lane, low in starts)
        return [row[1:] for of_lane in rows for row in interface.list_entries(of_lane)[:rows_max]]

    def _starts(self) -> dict[bytes, bytes]:
        with self._lock:
            return {lane: self._watermarks.low(lane) for lane in self._watermarks.list_waiting()}

    def page_behind(self, after: bytes, rows_max: int) -> list[tuple[bytes, bytes, bytes]]:
        start = max(after + b"\0", ordered_entries.FIRST_BEHIND)
        rows = self._db.scan(start, ordered_entries.END_BEHIND, rows_max, _EVERYTHING)[0]
        return [(row, ordered_entries.key_of(row), envelope) for row, envelope in rows]

    def get(self, key: bytes) -> bytes | None:
        """Find the envelope of one entry, as `Table.get`, in its lane, in a queue or in a block; None where there is none."""
        row = self._db.get(key)
        if row is not None or not key:
            return row
        if key[0] == ORDERED:
            return ordered_entries.find(self._db, key)
        return next((blocks.find_envelope(block, value, key) for block, value in self.find_blocks([key])), None)

    def bulk_load(self, *, on: bool) -> None:
        if on != self._in_bulk:
            self._db.bulk_load(on=on)
            self._in_bulk = on

    def close(self) -> None:
        self._db.close()

    def _write_change(self, batch: WriteBatch, change: int) -> None:
        self._write(batch, self.next_offset, self.waiting + change, self._state.current_at_ms)

    def _write(self, batch: WriteBatch, next_offset: int, waiting: int, current_at_ms: int) -> None:
        state = TableState(format_versions.TABLE.writes, self._identity, next_offset, waiting, current_at_ms)
        batch.put(STATE_KEY, state.encode())
        self._db.write(batch)
        self._state = state


def _fold_rows(rows: Sequence[ChangelogRow], batch: WriteBatch) -> None:
    for key, value in rows:
        batch.delete(key) if value is None else batch.put(key, value)


def _lowest_of_each_lane(db: Database) -> Watermarks:
    watermarks, start = Watermarks(), FIRST_KEY
    while rows := db.scan(start, END_KEY, 1, 1)[0]:
        lane = rows[0][0][:LANE_BYTES]
        watermarks.note_put({lane: rows[0][0]})
        start = build_lane_end(lane)
    return watermarks


def _name_identity(identity: Identity) -> str:
    return f"topic id {identity.topic_id} of cluster {identity.cluster_id}"
