"""A log in memory as one worker reaches it."""

from __future__ import annotations

from collections.abc import Iterable

from retry.kafka.interface import Bounds, Told
from retry.testing.kafka.partition_reader import MemoryFollower
from retry.testing.kafka.log import MemoryLog
from retry.testing.kafka.group_member import MemoryMember
from retry.testing.kafka.transactional_producer import MemoryTransactions


class MemoryBrokers:
    """See `retry.kafka.interface.Log`; the log is shared with other workers.

    Args:
      app_id: goes before the names of producers.
      instance: the stable name of this worker in its groups.
    """

    def __init__(self, log: MemoryLog, app_id: str, instance: str) -> None:
        self._log, self._app_id, self._instance = log, app_id, instance

    def writer(self, name: str) -> MemoryTransactions:
        """See `Log.writer`."""
        return MemoryTransactions(self._log, f"{self._app_id}-{name}")

    def follower(self) -> MemoryFollower:
        """See `Log.follower`."""
        return MemoryFollower(self._log)

    def member(self, group: str, subscription: list[str], gained: Told, leaving: Told, *, reads: bool = True) -> MemoryMember:
        """See `Log.member`."""
        return MemoryMember(self._log, group, self._instance, subscription, gained, leaving, reads=reads)

    def bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, Bounds]:
        """See `Log.bounds`."""
        return self._log.bounds(topic, partitions)
