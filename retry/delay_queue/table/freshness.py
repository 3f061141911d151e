"""When a table was last all that could be read. One that was not for too long may have missed deletes.

Compaction drops a delete `delete.retention.ms` after it was written. Who reads on only after that never sees it, and what was
deleted would come back to life.
"""

from __future__ import annotations

from retry import clock
from retry.delay_queue.table.interface import Table


class Freshness:
    """When one table was last current, as far as it stores that itself: only the end of the changelog makes it so, no record.

    It has no lock: a watchdog, which tells of ends, must never wait.

    Args:
      stale_ms: how long a table may not be current.

    Attributes:
      current_at_ms: when the table was last seen to be all that could be read; a new one is so from the start.
    """

    def __init__(self, table: Table, stale_ms: int) -> None:
        self.current_at_ms, self._stale_ms = min(table.current_at_ms, clock.wall_ms()), stale_ms

    def note_current(self, at_ms: int) -> None:
        """Note that the table was all that could be read at that time."""
        # Once it was away for too long it stays so, whatever is seen later: a process may have been frozen, too.
        if at_ms - self.current_at_ms <= self._stale_ms:
            self.current_at_ms = max(at_ms, self.current_at_ms)

    def is_stale(self) -> bool:
        """Whether it may have missed deletes."""
        return clock.wall_ms() - self.current_at_ms > self._stale_ms
