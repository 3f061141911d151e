"""What a table is, whichever way it is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress, pairwise
from typing import NamedTuple, Protocol, cast

from retry.delay_queue import blocks
from retry.delay_queue.blocks import count_entries
from retry.delay_queue.entry_keys import (
    BLOCK,
    COMMON,
    END_KEY,
    FIRST_BLOCK,
    FIRST_KEY,
    build_due_bound,
    build_lane_end,
    due_at_ms,
)

# What is due soon in a table, from keys alone: counted lane by lane while that is cheap, estimated beyond.
#
# Where a lane has more than its share of the rows that may be looked at, the rest of the time is cut into slots. At the
# beginning of each a few keys tell how dense it is. Nothing is noted, and no lock is held.
#
# A block is as large as all its entries, and RocksDB reads keys and values together: of blocks fewer are looked at.

_SLOT_ROWS, _SLOTS_MAX, _LANE_ROWS_MIN = 32, 16, 128
# So many rows of others for one block: at first, and in a slot, where four blocks tell how dense it is.
_BLOCK_ROWS, _BLOCK_SLOT_ROWS = 16, 8

# Keys from a start to before an end, at most so many.
Keys = Callable[[bytes, bytes, int], list[bytes]]


class DueEstimate(NamedTuple):
    """An estimate of how many entries of a table are due soon.

    Attributes:
      first_ms: when the first entry is due; None where none is due by the last of the times.
    """

    first_ms: int | None
    due: list[int]


def estimate_due(keys: Keys, starts: Mapping[bytes, bytes], until_ms: Sequence[int], rows_max: int) -> DueEstimate:
    """Estimate how many entries of a table are due by each of some times, which rise; in each lane no row lies below `starts`.

    Up to some hundred lanes about `rows_max` rows are looked at; a block counts as several.
    """
    first_ms, due = None, [0] * len(until_ms)
    starts = {lane: start for lane, start in starts.items() if start < build_due_bound(until_ms[-1] + 1, lane)}
    share = max(_LANE_ROWS_MIN, rows_max // max(1, len(starts)))
    slots = min(share // 2 // _SLOT_ROWS, _SLOTS_MAX)
    for lane, start in starts.items():
        rows_first, slot_rows = share // 2, _SLOT_ROWS
        if lane[0] == BLOCK:
            rows_first, slot_rows = rows_first // _BLOCK_ROWS, slot_rows // _BLOCK_SLOT_ROWS
        first_keys = keys(start, build_due_bound(until_ms[-1] + 1, lane), rows_first)
        times = [due_at_ms(key) for key in first_keys]
        counts = list(map(count_entries, first_keys))
        if times:
            first_ms = times[0] if first_ms is None else min(first_ms, times[0])
        for n, until in enumerate(until_ms):
            due[n] += sum(compress(counts, [time <= until for time in times]))
            if len(times) == rows_first and times[-1] <= until:
                rows = _estimate_rows(keys, _Rest(lane, first_keys[-1], until), slots, slot_rows)
                due[n] += rows * sum(counts) // len(counts)
    return DueEstimate(first_ms, due)


class _Rest(NamedTuple):
    """The rows of a lane that lie behind a key and are due by a time."""

    lane: bytes
    after: bytes
    until_ms: int


def _estimate_rows(keys: Keys, rest: _Rest, slots: int, slot_rows: int) -> int:
    lane, after = rest.lane, rest.after
    begin, end, total = due_at_ms(after), rest.until_ms + 1, 0
    edges = [begin + (end - begin) * n // slots for n in range(slots + 1)]
    for n, (low, high) in enumerate(pairwise(edges)):
        start = after + b"\0" if n == 0 else build_due_bound(low, lane)
        sample = keys(start, min(build_due_bound(high, lane), build_lane_end(lane)), slot_rows)
        if len(sample) < slot_rows:
            total += len(sample)
        else:
            total += max(slot_rows, slot_rows * (high - low) // (due_at_ms(sample[-1]) - low + 1))
    return total


ChangelogRow = tuple[bytes, bytes | None]
# A cursor, the key of an entry, and its envelope.
PageRow = tuple[bytes, bytes, bytes]
# What begins with this byte is no entry but what an operator asked of every shard; see `retry.delay_queue.control_records`.
CONTROL = b"\x10"
# What a table that never took anything in says of when it was current: it has missed nothing at any time.
NEVER_FOLDED_MS = 1 << 62


class UnreadableRow(NamedTuple):
    """A changelog record that no version of this service wrote, and why that is known."""

    key: bytes
    why: str


class Identity(NamedTuple):
    """The changelog partition that a table is the fold of. A table of another one is foreign, whatever its path."""

    cluster_id: str
    topic_id: str
    partition: int


class Table(Protocol):
    """Rows of one changelog partition and the offset up to which it is folded."""

    @property
    def next_offset(self) -> int:
        """Offset of the first changelog record that is not folded in yet."""

    @property
    def current_at_ms(self) -> int:
        """When it was last known to be all that could be read; `NEVER_FOLDED_MS` where it never took in anything."""

    @property
    def waiting(self) -> int:
        """How many entries wait.

        Exact where no key is put while it waits, which intake never does; asking before each put would cost a read.
        """

    @property
    def controls(self) -> Mapping[bytes, bytes]:
        ...

    def apply_records(self, rows: Sequence[ChangelogRow], next_offset: int, current_at_ms: int) -> Sequence[UnreadableRow]:
        """Take in committed changelog records in their order, a null deletes its key; return those that no version wrote.

        Rows, `next_offset` and `current_at_ms` move together, or not at all. The last is when the table was last known to be all
        that could be read: a table that has missed deletes would be trusted if it were now.

        Raises:
          EntryNewer: a record was written by a newer version; nothing was taken in.
          TableUnreadable: the store is corrupt, or its files are gone.
          DataDirUnusable: the disk does not take it, as one that is full.
        """

    def list_lanes(self) -> list[bytes]:
        """List every lane that has an entry, or may have one."""

    def find_due_lanes(self, now_ms: int) -> list[bytes]:
        """List the lanes that have something due at `now_ms`, or may have; the lane with the oldest entry first."""

    def find_due(self, now_ms: int, rows_max: int, bytes_max: int, lane: bytes = COMMON) -> list[tuple[bytes, bytes]]:
        """Find the first entries of a lane that are due at or before `now_ms`, in key order; nothing changes.

        At most `rows_max`, and no more once `bytes_max` bytes of envelopes are reached. Of ordered entries only the first of each
        record key. A lane of blocks gives whole blocks. Raises TableUnreadable where the store is corrupt: no short answer is
        given.
        """

    def delete_scanned_rows(self, keys: Sequence[bytes], replacements: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Drop what `find_due` returned last of each lane and a committed transaction has deleted.

        Its `replacements` keep the place of ordered ones in a queue, and make named ones known before anything of their name
        goes.
        """

    def delete_rows(self, keys: Sequence[bytes], replacements: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Drop what a committed transaction has deleted and no scan has handed out, whether the fold has told of it or not.

        Of the block of an entry the others stay. `replacements` are needed for ordered ones alone, which keep their place by
        them.
        """

    def is_leaving(self, key: bytes) -> bool:
        """Whether an entry left the table before its null was folded, which would take out what was put under its key since.

        Of plain ones it is told of those alone that had been in a block.
        """

    def scan_entries(self, after: bytes, rows_max: int) -> list[PageRow]:
        """List the next entries after a cursor or a lane, about `rows_max`; omit entries that wait behind another.

        Of each there are a cursor, its key and its envelope. Those of a block are all there, have one cursor, and lie before all
        that are in none: so whoever reads page by page meets what leaves a block meanwhile.
        """

    def explode(self, block_keys: Sequence[bytes]) -> None:
        """Give each entry of some blocks a row of its own, since a committed transaction has."""

    def find_blocks(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """Find the blocks that hold some entries, each once; nothing is looked for where a key has a row of its own."""

    def estimate_due(self, until_ms: Sequence[int], rows_max: int) -> DueEstimate:
        """Estimate how many entries are due by each of some rising times, reading about `rows_max` rows; never more than wait.

        Of ordered entries only the first of each key counts. Raises TableUnreadable where the store is corrupt.
        """

    def list_first_entries(self, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """List the first entries of every lane, in key order: of each at most so many rows, or bytes of envelopes."""

    def page_behind(self, after: bytes, rows_max: int) -> list[tuple[bytes, bytes, bytes]]:
        """Return the next entries that wait behind another in a queue: of each a cursor, its key, its envelope."""

    def get(self, key: bytes) -> bytes | None:
        """Find the envelope of one entry, which has a row of its own or is in a block; None where there is no such entry."""

    def list_superseded(self, rows_max: int) -> list[bytes]:
        """List keys of named entries that count no more; nulls are to be written in this order, see `named_entries`."""

    def expired_cancels(self, now_ms: int, keys_max: int) -> list[bytes]:
        """List keys of cancels that count but are remembered no more.

        Nulls are to be written for them, behind those of all superseded entries.
        """

    def find_greatest(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Find the entry or cancel that counts under the name of each key; None where there is none."""

    @property
    def has_slices(self) -> bool:
        """Whether there is a slice of an action, or letters that a ramp waits for; costs nothing."""

    def list_slices(self, prefix: bytes, rows_max: int, after: bytes = b"") -> list[tuple[bytes, bytes]]:
        """List the first slices of actions whose keys begin with `prefix`, in key order, behind `after`; see `action_records`."""

    def bulk_load(self, *, on: bool) -> None:
        """Put off what makes reading fast, while very many records are folded and nothing is read. The rows are the same."""

    def close(self) -> None:
        """Let go of files and locks; the table can be opened again."""


def is_taken(table: Table, key: bytes) -> bool:
    """Whether nothing may be put under a key: an entry waits there, or has left it and its null is not folded yet."""
    return table.get(key) is not None or table.is_leaving(key)


def read_page(scan: Callable[[bytes, bytes, int], list[tuple[bytes, bytes]]], after: bytes, rows_max: int) -> list[PageRow]:
    """Read as `Table.scan_entries` says; `scan` gives the first rows from a start to before an end, so many at most."""
    entries: list[PageRow] = []
    if not after or after >= FIRST_BLOCK:
        blocks_max = max(1, rows_max // blocks.ENTRIES_MAX)
        found = scan(max(after + b"\0", FIRST_BLOCK), END_KEY, blocks_max)
        entries, after = list_entries(found), b""
        if len(found) == blocks_max:
            return entries
    if len(entries) < rows_max:
        entries += list_entries(scan(max(after + b"\0", FIRST_KEY), FIRST_BLOCK, rows_max - len(entries)))
    return entries


def list_entries(rows: Sequence[tuple[bytes, bytes]]) -> list[PageRow]:
    return [(key, entry, cast(bytes, envelope)) for key, value in rows for entry, envelope in blocks.list_rows(key, value)]


class TableDirectory(Protocol):
    """The tables of one worker, one for each changelog partition."""

    def open(self, partition: int, now_ms: int) -> Table:
        """Open the table of a partition as it was left, or an empty one where its files cannot be trusted."""

    def delete_table(self, partition: int) -> None:
        """Remove a table that is closed; it is only ever a copy of the changelog."""
