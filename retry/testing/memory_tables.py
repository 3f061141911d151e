"""The tables of one worker in memory: for tests of users, and for the simulation."""

from __future__ import annotations

import copy

from retry.testing.memory_table import MemoryTable


class MemoryTables:
    """See `retry.delay_queue.table.interface.Tables`. A table outlives whoever opened it, as files do.

    Args:
      age_ms_max: a table that was not current for longer is wiped when it is opened.

    Attributes:
      kept: what lies there, by partition.
    """

    def __init__(self, age_ms_max: int) -> None:
        self.kept: dict[int, MemoryTable] = {}
        self._age_ms_max = age_ms_max

    def open(self, partition: int, now_ms: int) -> MemoryTable:
        """See `Tables.open`."""
        kept = self.kept.get(partition)
        if kept is None or kept.corrupt or now_ms - kept.folded_at_ms > self._age_ms_max:
            kept = self.kept[partition] = MemoryTable()
        return kept.opened()

    def wipe(self, partition: int) -> None:
        """See `Tables.wipe`."""
        self.kept.pop(partition, None)

    def copied(self, partition: int) -> MemoryTable | None:
        """What lies there now, to be put back into `kept` later on: a directory that was copied away."""
        return copy.deepcopy(self.kept.get(partition))


