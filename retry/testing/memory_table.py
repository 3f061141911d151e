"""A table in memory: for tests of users and our own. Passes the same contract suite as the one on disk."""

from __future__ import annotations

import copy
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from retry.delay_queue import blocks
from retry.delay_queue.action_records import SLICE
from retry.delay_queue.entry_keys import (
    COMMON,
    END_KEY,
    FIRST_KEY,
    LANE_BYTES,
    NAMED,
    ORDERED,
    PLAIN,
    build_due_bound,
    build_lane_end,
    due_at_ms,
)  # fmt: skip
from retry.delay_queue.ramp_records import SENDING
from retry.delay_queue.table import interface, named_entries, ordered_entries
from retry.delay_queue.table.changelog_records import UnfoldedChanges, select_readable_rows
from retry.delay_queue.table.interface import CONTROL, NEVER_FOLDED_MS, ChangelogRow, DueEstimate, UnreadableRow
from retry.errors import TableUnreadable


class MemoryTables:
    """See `retry.delay_queue.table.interface.TableDirectory`; what is `kept`, by partition, outlives whoever opened it."""

    def __init__(self, age_ms_max: int) -> None:
        self.kept: dict[int, MemoryTable] = {}
        self._age_ms_max = age_ms_max

    def open(self, partition: int, now_ms: int) -> MemoryTable:
        """Open the table of a partition; an empty one where it is missing, corrupt, or not current for too long."""
        kept = self.kept.get(partition)
        if kept is None or kept.corrupt or now_ms - kept.current_at_ms > self._age_ms_max:
            kept = self.kept[partition] = MemoryTable()
        return kept.reopen()

    def delete_table(self, partition: int) -> None:
        self.kept.pop(partition, None)

    def copy_table(self, partition: int) -> MemoryTable | None:
        """Return a copy of a table, to be put back into `kept` later, as if its directory was copied; None if there is none."""
        return copy.deepcopy(self.kept.get(partition))


# Beyond whatever may come behind a prefix.
_LAST = b"\xff" * 300
_KNOWN_AHEAD = (ORDERED, NAMED)


class MemoryTable:
    """A dict and a sorted list of its keys, as a `Table`; while it is `corrupt`, every read raises `TableUnreadable`."""

    def __init__(self) -> None:
        self.next_offset = self.waiting = 0
        self.current_at_ms, self.corrupt = NEVER_FOLDED_MS, False
        self._ahead = UnfoldedChanges()
        self._rows: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    @property
    def controls(self) -> Mapping[bytes, bytes]:
        return {key: self._rows[key] for key in self._between(CONTROL, b"\x11")}

    def apply_records(self, rows: Sequence[ChangelogRow], next_offset: int, current_at_ms: int) -> Sequence[UnreadableRow]:
        self._check_readable()
        records, unreadable = select_readable_rows(rows)
        self._apply_rows([row for row in records if row[0][0] >= END_KEY[0] or self._ahead.take_change(*row)])
        self.next_offset, self.current_at_ms = next_offset, current_at_ms
        return unreadable

    def _apply_rows(self, rows: Sequence[ChangelogRow]) -> None:
        named = [row for row in rows if row[0][0] == NAMED]
        for effect in named_entries.iterate_changes(self, named_entries.group_by_name(named)):
            self._apply(ordered_entries.OrderEffect(effect.changes, effect.waiting))
        for key, value in rows:
            if key[0] == NAMED:
                continue
            if key[0] == ORDERED:
                self._apply(
                    ordered_entries.remove_entry(self, key) if value is None else ordered_entries.put_entry(self, key, value)
                )
            else:
                more = (value is not None) - (key in self._rows)
                self.waiting += more * blocks.count_entries(key) if more and key < END_KEY else 0
                self._apply(ordered_entries.OrderEffect({key: value}, 0))

    def _apply(self, effect: ordered_entries.OrderEffect) -> None:
        for key, value in effect.changes.items():
            at, exists = bisect_left(self._keys, key), key in self._rows
            if value is not None:
                self._rows[key] = value
                self._keys[at:at] = [] if exists else [key]
            elif exists:
                del self._rows[key], self._keys[at]
        self.waiting += effect.waiting

    def _check_readable(self) -> None:
        if self.corrupt:
            raise TableUnreadable("corrupt, as the test made it")

    def list_lanes(self) -> list[bytes]:
        return sorted({key[:LANE_BYTES] for key in self._between(FIRST_KEY, END_KEY)})

    def find_due_lanes(self, now_ms: int) -> list[bytes]:
        first = {lane: next(iter(self._between(lane, build_due_bound(now_ms + 1, lane))), None) for lane in self.list_lanes()}
        return sorted((lane for lane, key in first.items() if key), key=lambda lane: (first[lane] or b"")[LANE_BYTES:])

    def find_due(self, now_ms: int, rows_max: int, bytes_max: int, lane: bytes = COMMON) -> list[tuple[bytes, bytes]]:
        self._check_readable()
        return self._first_rows(lane, build_due_bound(now_ms + 1, lane), rows_max, bytes_max)

    def _first_rows(self, start: bytes, end: bytes, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        rows: list[tuple[bytes, bytes]] = []
        for key in self._between(start, end):
            if rows_max <= 0 or bytes_max <= 0:
                break
            rows.append((key, self._rows[key]))
            rows_max -= blocks.count_entries(key)
            bytes_max -= blocks.measure_entries(key, self._rows[key])
        return rows

    def delete_scanned_rows(self, keys: Sequence[bytes], replacements: Sequence[tuple[bytes, bytes]] = ()) -> None:
        # Plain ones are put by the fold: one that is due at once would be sent before the changelog has it, and then again.
        self._check_readable()
        named_or_ordered = [row for row in replacements if row[0][0] in _KNOWN_AHEAD]
        for key, value in named_or_ordered:
            if not self._has_row(key, value):
                self._ahead.note_put(key, value)
        for key in keys:
            if key[0] in _KNOWN_AHEAD or self._ahead.is_put(key):
                self._ahead.note_drop(key)
        self._apply_rows([*named_or_ordered, *((key, None) for key in keys)])

    def _has_row(self, key: bytes, value: bytes) -> bool:
        superseded = (
            self._rows.get(named_entries.build_superseded_key(key)) if key[0] == NAMED else ordered_entries.find(self, key)
        )
        return value in (self._rows.get(key), superseded)

    def delete_rows(self, keys: Sequence[bytes], replacements: Sequence[tuple[bytes, bytes]] = ()) -> None:
        found = self.find_blocks(keys)
        self.delete_scanned_rows(keys, replacements)
        self._split(found, set(keys))

    def explode(self, block_keys: Sequence[bytes]) -> None:
        self._check_readable()
        self._split([(key, self._rows[key]) for key in block_keys if key in self._rows], set())

    def _split(self, found: Sequence[tuple[bytes, bytes]], leaving: set[bytes]) -> None:
        stay = [row for row in blocks.split_blocks(found, leaving) if row[1] is not None and row[0] not in self._rows]
        for key, value in stay:
            self._ahead.note_put(key, value or b"")
        self._apply_rows([*stay, *((block, None) for block, _ in found)])

    def find_blocks(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        plain = [key for key in keys if key[:1] == bytes([PLAIN]) and key not in self._rows]
        return blocks.find_blocks(self, plain)

    def scan_keys(self, start: bytes, end: bytes, rows_max: int) -> list[bytes]:
        return self._between(start, end)[:rows_max]

    def is_leaving(self, key: bytes) -> bool:
        return self._ahead.is_leaving(key)

    def scan_entries(self, after: bytes, rows_max: int) -> list[tuple[bytes, bytes, bytes]]:
        self._check_readable()
        return interface.read_page(self._scan, after, rows_max)

    def _scan(self, start: bytes, end: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        return [(key, self._rows[key]) for key in self._between(start, end)[:rows_max]]

    def estimate_due(self, until_ms: Sequence[int], rows_max: int) -> DueEstimate:  # noqa: ARG002
        """Estimate what is due, as `Table.estimate_due`; here every row is counted."""
        self._check_readable()
        due = sorted(due_at_ms(key) for key in self._between(FIRST_KEY, END_KEY) for _ in range(blocks.count_entries(key)))
        return DueEstimate(due[0] if due and due[0] <= until_ms[-1] else None, [bisect_right(due, until) for until in until_ms])

    def list_first_entries(self, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        self._check_readable()
        rows = (self._first_rows(lane, build_lane_end(lane), rows_max, bytes_max) for lane in self.list_lanes())
        return [row[1:] for of_lane in rows for row in interface.list_entries(of_lane)[:rows_max]]

    def page_behind(self, after: bytes, rows_max: int) -> list[tuple[bytes, bytes, bytes]]:
        self._check_readable()
        keys = [key for key in self._between(ordered_entries.FIRST_BEHIND, ordered_entries.END_BEHIND) if key > after]
        return [(key, ordered_entries.key_of(key), self._rows[key]) for key in keys[:rows_max]]

    def get(self, key: bytes) -> bytes | None:
        row = self._rows.get(key)
        if row is not None:
            return row
        if key[:1] == bytes([ORDERED]):
            return ordered_entries.find(self, key)
        return next((blocks.find_envelope(block, value, key) for block, value in self.find_blocks([key])), None)

    def list_superseded(self, rows_max: int) -> list[bytes]:
        self._check_readable()
        rows = self._between(named_entries.FIRST_SUPERSEDED, named_entries.END_SUPERSEDED)
        return [named_entries.key_of(row) for row in rows[:rows_max]]

    def expired_cancels(self, now_ms: int, keys_max: int) -> list[bytes]:
        self._check_readable()
        rows = self._between(named_entries.FIRST_REMEMBERED, named_entries.build_forgotten_bound(now_ms))
        return [named_entries.cancel_of(row) for row in rows[:keys_max]]

    def find_greatest(self, keys: Sequence[bytes]) -> list[bytes | None]:
        rows = self.get_many([named_entries.build_pointer_key(key) for key in keys])
        return [None if row is None else row[1:] for row in rows]

    @property
    def has_slices(self) -> bool:
        return bool(self.list_under(SLICE) or self.list_under(SENDING))

    def list_slices(self, prefix: bytes, rows_max: int, after: bytes = b"") -> list[tuple[bytes, bytes]]:
        self._check_readable()
        keys = self._between(max(prefix, after + b"\0"), prefix + _LAST)
        return [(key, self._rows[key]) for key in keys[:rows_max]]

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return [self._rows.get(key) for key in keys]

    def list_under(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return [(key, self._rows[key]) for key in self._between(prefix, prefix + _LAST)]

    def find_first(self, prefix: bytes, start: bytes) -> tuple[bytes, bytes] | None:
        at = bisect_left(self._keys, start)
        keys = self._keys[at : at + 1]
        return (keys[0], self._rows[keys[0]]) if keys and keys[0].startswith(prefix) else None

    def _between(self, start: bytes, end: bytes) -> list[bytes]:
        return self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)]

    def reopen(self) -> MemoryTable:
        self._ahead = UnfoldedChanges()
        return self

    def bulk_load(self, *, on: bool) -> None:
        """Do nothing: nothing is put off here, unlike in `Table.bulk_load`."""

    def close(self) -> None:
        """Do nothing: there are no files and no locks to let go of."""
