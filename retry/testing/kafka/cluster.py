"""A log in memory as one worker reaches it."""

from __future__ import annotations

from collections.abc import Iterable

from retry.kafka.interface import OffsetBounds, OnAssigned, Partition
from retry.testing.kafka.group_member import MemoryGroupMember
from retry.testing.kafka.log import MemoryLog
from retry.testing.kafka.partition_reader import MemoryPartitionReader
from retry.testing.kafka.transactional_producer import MemoryTransactionalProducer


class MemoryCluster:
    """See `retry.kafka.interface.Log`; the log is shared with other workers.

    Args:
      app_id: goes before the names of producers.
      instance: the stable name of this worker in its groups.
    """

    def __init__(self, log: MemoryLog, app_id: str, instance: str) -> None:
        self._log, self._app_id, self._instance = log, app_id, instance

    def writer(self, name: str, *, compressing: bool = False) -> MemoryTransactionalProducer:
        """Return a producer whose transactional id ends in `name`; it is not opened yet."""
        return MemoryTransactionalProducer(self._log, f"{self._app_id}-{name}", compresses=compressing)

    def follower(self) -> MemoryPartitionReader:
        """Return a reader outside of every consumer group."""
        return MemoryPartitionReader(self._log)

    def join_group(
        self, group: str, subscription: list[str], gained: OnAssigned, leaving: OnAssigned, *, reads: bool = True
    ) -> MemoryGroupMember:
        """Enter a consumer group as this worker; see `Log.join_group` for the arguments."""
        return MemoryGroupMember(self._log, group, self._instance, subscription, gained, leaving, reads=reads)

    def fetch_bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, OffsetBounds]:
        """Return where partitions of one topic begin and end now."""
        return self._log.fetch_bounds(topic, partitions)

    def bounds_of(self, partitions: Iterable[Partition]) -> dict[Partition, OffsetBounds]:
        """Ask where partitions begin and end; see `retry.kafka.interface.Log`."""
        return self._log.bounds_of(partitions)
