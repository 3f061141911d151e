"""Low watermarks: where the scan of each lane begins, so that nothing delivered is stepped over and idle lanes cost nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from retry.delay_queue.entry import LANE_BYTES, due_bound, lane_end


@dataclass(slots=True)
class Lane:
    """Of one lane.

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


class Lanes:
    """The watermarks of every lane that ever had a row; which of them may have something due costs no look at the others."""

    def __init__(self) -> None:
        self._lanes: dict[bytes, Lane] = {}
        # Every lane that waits is here with its watermark, or with one that it had before: those only rise, unless rows are put.
        self._first: list[tuple[bytes, bytes]] = []

    def waiting(self) -> list[bytes]:
        """Lanes that have rows, or may have."""
        return [lane for lane, known in self._lanes.items() if known.low[:LANE_BYTES] == lane]

    def put(self, lowest: Mapping[bytes, bytes]) -> None:
        """Rows were put; by lane, the lowest of their keys."""
        for lane, key in lowest.items():
            known = self._lanes.get(lane)
            if known is None:
                self._lanes[lane] = Lane(key, key, due_bound(-(1 << 63), lane))
                heappush(self._first, (key[LANE_BYTES:], lane))
            else:
                if key < known.low:
                    heappush(self._first, (key[LANE_BYTES:], lane))
                known.low, known.lowest_put = min(known.low, key), min(known.lowest_put, key)

    def low(self, lane: bytes) -> bytes:
        """Where a scan begins; beyond the lane, where it has no rows."""
        known = self._lanes.get(lane)
        return lane_end(lane) if known is None else known.low

    def seen(self, key: bytes) -> bool:
        """Whether the last scan of its lane went beyond this key."""
        known = self._lanes.get(key[:LANE_BYTES])
        return known is not None and key < known.scanned_to

    def due(self, now_ms: int) -> list[bytes]:
        """Lanes that may have something due, the oldest first; exactly those that have, once each was scanned."""
        bound, met, first = due_bound(now_ms + 1, b""), set[bytes](), self._first
        while first and first[0][0] < bound:
            met.add(heappop(first)[1])
        low = {lane: known.low[LANE_BYTES:] for lane in met if (known := self._lanes[lane]).low[:LANE_BYTES] == lane}
        for lane, at in low.items():
            heappush(first, (at, lane))
        return sorted((lane for lane, at in low.items() if at < bound), key=low.__getitem__)

    def scanned(self, lane: bytes, to: bytes, following: bytes | None) -> None:
        """A scan of the lane saw all rows below `to`; `following`, where nothing was due, is the first row of all."""
        known = self._lanes.get(lane)
        if known is not None:
            known.lowest_put, known.scanned_to = lane_end(lane), to
            if following is not None:
                known.low = following

    def forgot(self, lane: bytes, rows: int) -> Lane | None:
        """Rows that the last scan saw were delivered. What was put below its end meanwhile is still to be found."""
        known = self._lanes.get(lane)
        if known is not None:
            known.low = min(known.scanned_to, known.lowest_put)
            known.forgotten += rows
        return known
