"""What is due soon in a table, from keys alone: counted lane by lane while that is cheap, estimated beyond.

Where a lane has more than its share of the rows that may be looked at, the rest of the time is cut into slots. At the
beginning of each a few keys tell how dense it is. Nothing is noted, and no lock is held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress, pairwise
from typing import NamedTuple

from retry.delay_queue.blocks import count_entries
from retry.delay_queue.entry_keys import due_at_ms, due_bound, lane_end

_SLOT_ROWS, _SLOTS_MAX, _LANE_ROWS_MIN = 32, 16, 128

# Keys from a start to before an end, at most so many.
Keys = Callable[[bytes, bytes, int], list[bytes]]


class DueEstimate(NamedTuple):
    """What is due soon.

    Attributes:
      first_ms: when the first of it is due; None where there is nothing.
      due: by the times that were asked for, how many entries are due by then.
    """

    first_ms: int | None
    due: list[int]


def estimate_due(keys: Keys, starts: Mapping[bytes, bytes], until_ms: Sequence[int], rows_max: int) -> DueEstimate:
    """What is due by each of some times, which rise.

    Args:
      starts: by lane, a key that none of its rows lies below.
      rows_max: how many rows are looked at, roughly, while there are no more than some hundred lanes.
    """
    first_ms, due = None, [0] * len(until_ms)
    starts = {lane: start for lane, start in starts.items() if start < due_bound(until_ms[-1] + 1, lane)}
    share = max(_LANE_ROWS_MIN, rows_max // max(1, len(starts)))
    for lane, start in starts.items():
        first_keys = keys(start, due_bound(until_ms[-1] + 1, lane), share // 2)
        times = [due_at_ms(key) for key in first_keys]
        counts = list(map(count_entries, first_keys))
        if times:
            first_ms = times[0] if first_ms is None else min(first_ms, times[0])
        for n, until in enumerate(until_ms):
            due[n] += sum(compress(counts, [time <= until for time in times]))
            if len(times) == share // 2 and times[-1] <= until:
                rows = _estimated(keys, lane, first_keys[-1], until, share // 2 // _SLOT_ROWS)
                due[n] += rows * sum(counts) // len(counts)
    return DueEstimate(first_ms, due)


def _estimated(keys: Keys, lane: bytes, after: bytes, until_ms: int, slots: int) -> int:
    """How many rows of a lane lie behind a key and are due by then."""
    begin, end, total = due_at_ms(after), until_ms + 1, 0
    slots = min(slots, _SLOTS_MAX)
    edges = [begin + (end - begin) * n // slots for n in range(slots + 1)]
    for n, (low, high) in enumerate(pairwise(edges)):
        start = after + b"\0" if n == 0 else due_bound(low, lane)
        sample = keys(start, min(due_bound(high, lane), lane_end(lane)), _SLOT_ROWS)
        if len(sample) < _SLOT_ROWS:
            total += len(sample)
        else:
            total += max(_SLOT_ROWS, _SLOT_ROWS * (high - low) // (due_at_ms(sample[-1]) - low + 1))
    return total
