"""`retry.kafka.partition_reader.KafkaPartitionReader` over a log in memory."""

from __future__ import annotations

from typing import Any

from retry.kafka.interface import Partition
from retry.testing.kafka.log import MemoryLog
from retry.testing.kafka.records import MemoryEnd


class MemoryPartitionReader:
    """Committed records, and ends of partitions, of the partitions that it follows."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._next: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}

    def follow_partition(self, topic: str, partition: int, offset: int) -> None:
        """Follow a partition from `offset` on."""
        self._next[topic, partition] = offset
        self._ends.pop((topic, partition), None)

    def unfollow_partition(self, topic: str, partition: int) -> None:
        """Follow it no more."""
        self._next.pop((topic, partition), None)

    def read(self, records_max: int, wait_s: float) -> list[Any]:  # noqa: ARG002
        """The next records and ends of partitions; an end is reported once for each place where reading stops."""
        polled: list[Any] = []
        for place, at in list(self._next.items()):
            partition = self._log.topics[place[0]][place[1]]
            # An offset that is gone, or not there yet, is that of another past: from the beginning, as configured.
            offset = at if partition.start <= at <= partition.end else partition.start
            records, self._next[place] = partition.read(offset, records_max - len(polled))
            polled += records
            # Asked once: another thread may put a record between two answers, and the end told would lie behind it.
            stable = partition.stable
            if self._next[place] == stable != self._ends.get(place) and len(polled) < records_max:
                self._ends[place] = stable
                polled.append(MemoryEnd(*place, stable))
            # The next read begins with another one.
            self._next[place] = self._next.pop(place)
            if len(polled) >= records_max:
                break
        return polled

    def close(self) -> None:
        self._next.clear()
