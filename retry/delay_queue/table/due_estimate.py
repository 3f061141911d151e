"""What is due soon in a table, from keys alone: counted lane by lane while that is cheap, estimated beyond.

Where a lane has more than its share of the rows that may be looked at, the rest of the time is cut into slots. At the
beginning of each a few keys tell how dense it is. Nothing is noted, and no lock is held.

A block is as large as all its entries, and RocksDB reads keys and values together: of blocks fewer are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress, pairwise
from typing import NamedTuple

from retry.delay_queue.blocks import count_entries
from retry.delay_queue.entry_keys import BLOCK, due_at_ms, due_bound, lane_end

_SLOT_ROWS, _SLOTS_MAX, _LANE_ROWS_MIN = 32, 16, 128
# So many rows of others for one block: at first, and in a slot, where four blocks tell how dense it is.
_BLOCK_ROWS, _BLOCK_SLOT_ROWS = 16, 8

# Keys from a start to before an end, at most so many.
Keys = Callable[[bytes, bytes, int], list[bytes]]


class DueEstimate(NamedTuple):
    """An estimate of how many entries of a table are due soon.

    Attributes:
      first_ms: when the first entry is due; None where none is due by the last of the times.
      due: for each time that was asked for, how many entries are due by then.
    """

    first_ms: int | None
    due: list[int]


def estimate_due(keys: Keys, starts: Mapping[bytes, bytes], until_ms: Sequence[int], rows_max: int) -> DueEstimate:
    """Estimate how many entries of a table are due by each of some times, which rise.

    Args:
      starts: by lane, a key below which the lane has no row.
      rows_max: how many rows are looked at, roughly, while there are no more than some hundred lanes; a block counts as several.
    """
    first_ms, due = None, [0] * len(until_ms)
    starts = {lane: start for lane, start in starts.items() if start < due_bound(until_ms[-1] + 1, lane)}
    share = max(_LANE_ROWS_MIN, rows_max // max(1, len(starts)))
    slots = min(share // 2 // _SLOT_ROWS, _SLOTS_MAX)
    for lane, start in starts.items():
        rows_first, slot_rows = share // 2, _SLOT_ROWS
        if lane[0] == BLOCK:
            rows_first, slot_rows = rows_first // _BLOCK_ROWS, slot_rows // _BLOCK_SLOT_ROWS
        first_keys = keys(start, due_bound(until_ms[-1] + 1, lane), rows_first)
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
    """Estimate how many rows those are, by so many at the beginning of each slot."""
    lane, after = rest.lane, rest.after
    begin, end, total = due_at_ms(after), rest.until_ms + 1, 0
    edges = [begin + (end - begin) * n // slots for n in range(slots + 1)]
    for n, (low, high) in enumerate(pairwise(edges)):
        start = after + b"\0" if n == 0 else due_bound(low, lane)
        sample = keys(start, min(due_bound(high, lane), lane_end(lane)), slot_rows)
        if len(sample) < slot_rows:
            total += len(sample)
        else:
            total += max(slot_rows, slot_rows * (high - low) // (due_at_ms(sample[-1]) - low + 1))
    return total
