"""When a table was last all that can be read: one that was not for too long may have missed deletes.

Others delete, too, and compaction drops a delete after `delete.retention.ms`. Whoever reads on only after that never sees it.
"""

from __future__ import annotations

from retry import clock


class Freshness:
    """When the table of one shard was last current. No lock: a watchdog, which tells of ends, must never wait.

    Args:
      readable: how far readers of committed records come.
      stale_ms: how long a table may not be current.

    Attributes:
      current_at_ms: when the table was last seen to be all that can be read.
      readable: how far that went when it was last asked.
    """

    def __init__(self, readable: int, stale_ms: int) -> None:
        self.current_at_ms, self.readable, self._stale_ms = clock.wall_ms(), readable, stale_ms

    def seen_current(self, at_ms: int) -> None:
        """The table was all that could be read at that time."""
        # Once it was away for too long it stays so, whatever is seen later: a process may have been frozen, too.
        if at_ms - self.current_at_ms <= self._stale_ms:
            self.current_at_ms = at_ms

    def is_stale(self) -> bool:
        """Whether it may have missed deletes."""
        return clock.wall_ms() - self.current_at_ms > self._stale_ms
