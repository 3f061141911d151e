"""How much one transaction may have, where a quota or a slow link lets less through than its time allows.

A transaction lives for six seconds, and what it has used of a quota is used up: begun again with as much, it would never get
through. So after one that ran out of time the next has half as much, and after quick ones a little more, up to what the settings
say.
"""

from __future__ import annotations

import logging
import threading

from retry import clock

log = logging.getLogger(__name__)

# Of the six seconds that a transaction lives: one that failed sooner did not fail for lack of time, and one that takes longer is
# near its end. Where the next one has more, it is to take no longer than the second.
_LONG_S, _WANTED_S, _SHORT_S = 3.0, 2.0, 1.0
_BYTES_MIN = 32 << 10
# So much more after a transaction that was half full at least.
_MORE = 8
# One transaction that takes too long may have met an outage; two within this time met a quota or a slow link, which is told.
_TOLD_S = 120.0


class TransactionPace:
    """How many bytes the next transaction of one kind may have: intake or deliveries, say. For several threads."""

    def __init__(self, kind: str, bytes_max: int) -> None:
        self.kind, self.bytes_max, self._most = kind, bytes_max, bytes_max
        self._least = min(bytes_max, _BYTES_MIN)
        self._lock = threading.Lock()
        # When it was found last that transactions take too long, and until when that is told.
        self._slow_at_s = self._told_until_s = -_TOLD_S

    def note_failure(self, begun_s: float, size: int = 0) -> None:
        """Note that a transaction of about `size` bytes, 0 where that is not known, begun at this time, was not committed."""
        now_s = clock.monotonic_s()
        with self._lock:
            # Those that were under way beside the one that ran out of time say nothing of half as much.
            if now_s - begun_s >= _LONG_S and begun_s >= self._slow_at_s:
                self._shrink(min(self.bytes_max, size or self.bytes_max) // 2, now_s)

    def note_commit(self, begun_s: float, size: int) -> None:
        """Note that a transaction of about `size` bytes was committed, and adapt how large the next ones may be."""
        now_s = clock.monotonic_s()
        took_s = now_s - begun_s
        with self._lock:
            is_full = 2 * size >= self.bytes_max
            if is_full and took_s > _SHORT_S and self._is_told(now_s):
                # It would take longer with more in it.
                self._told_until_s = now_s + _TOLD_S
            if took_s >= _LONG_S and is_full:
                self._shrink(int(size * _WANTED_S / took_s), now_s)
            elif took_s <= _SHORT_S and is_full and self.bytes_max < self._most:
                self.bytes_max = min(self._most, self.bytes_max + self.bytes_max // _MORE + 1)
                if self.bytes_max == self._most:
                    log.info("%s: transactions of %d bytes again", self.kind, self._most)

    def _shrink(self, size: int, now_s: float) -> None:
        if now_s - self._slow_at_s < _TOLD_S:
            self._told_until_s = now_s + _TOLD_S
        self._slow_at_s = now_s
        self.bytes_max = max(self._least, min(self.bytes_max, size))
        log.log(logging.WARNING if self._is_told(now_s) else logging.INFO, "%s: %s", self.kind, self._describe())

    def _is_told(self, now_s: float) -> bool:
        return now_s < self._told_until_s and self.bytes_max < self._most

    def describe_slowness(self) -> str:
        """Say what slows transactions down; empty where nothing did of late."""
        with self._lock:
            return self._describe() if self._is_told(clock.monotonic_s()) else ""

    def _describe(self) -> str:
        return (
            f"the brokers take less than one transaction has, by a quota (producer_byte_rate) or a slow link: at most "
            f"{self.bytes_max:,} bytes at a time now, of {self._most:,}"
        )
