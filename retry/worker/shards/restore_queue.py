"""Which shards are read now: those with much to restore one after the other, all others at once.

One after the other, the first are swept while the last have not begun, and the one in hand has all memory for unwritten rows:
with that shared out, ten million entries made three times as many sorted files, and took a third longer. Who has least to read
comes first. Which has the earliest due times nobody knows before it is read: the changelog is not in their order.

What is held up by others, a transaction that somebody left open or a broker that is away, holds up nobody here: the next
begins as soon as one is read as far as it can be, or nothing comes of it.
"""

from __future__ import annotations

from retry import clock
from retry.kafka.interface import Message, PartitionReader
from retry.worker.shards.phase import Phase
from retry.worker.shards.shard import Shard

# Fewer records are read beside others: the end of a partition alone takes a tenth of a second to be told.
MANY = 50_000
_SILENT_S = 2.0


class RestoreQueue:
    """Follows the partitions of one topic. All methods but `waits` belong to one thread."""

    def __init__(self, follower: PartitionReader, topic: str) -> None:
        self._follower, self._topic = follower, topic
        self._waiting: dict[int, Shard] = {}
        # Of the one that is being restored: the partition, the offset that ends its turn, and when something came last.
        self._turn: tuple[int, int, float] | None = None

    def add_shard(self, partition: int, shard: Shard) -> None:
        """Read it, as soon as it is its turn."""
        if shard.restoring.unread() > MANY:
            self._waiting[partition] = shard
        else:
            self._follower.follow_partition(self._topic, partition, shard.table.next_offset)

    def remove_shard(self, partition: int) -> None:
        """Read it no more."""
        if self._turn and self._turn[0] == partition:
            self._turn = None
        if self._waiting.pop(partition, None) is None:
            self._follower.unfollow_partition(self._topic, partition)

    def waits(self, partition: int) -> bool:
        """Whether it is not read yet."""
        return partition in self._waiting

    def is_restoring(self) -> bool:
        """Whether any is in its turn, or waits for it."""
        return bool(self._turn or self._waiting)

    def read(self, records_max: int, wait_s: float) -> dict[int, list[Message]]:
        """The next records and ends of partitions, by partition."""
        self._begin_next()
        found: dict[int, list[Message]] = {}
        for message in self._follower.read(records_max, wait_s):
            found.setdefault(message.partition() or 0, []).append(message)
        self._end_turn(found)
        return found

    def close(self) -> None:
        """Let go of the reader."""
        self._waiting.clear()
        self._follower.close()

    def _begin_next(self) -> None:
        if self._turn is None and self._waiting:
            partition = min(self._waiting, key=self._rank)
            shard = self._waiting.pop(partition)
            self._follower.follow_partition(self._topic, partition, at := shard.table.next_offset)
            self._turn = partition, at + shard.restoring.unread() - MANY, clock.monotonic_s()

    def _rank(self, partition: int) -> tuple[bool, int]:
        shard = self._waiting[partition]
        return shard.phase is Phase.STANDBY, shard.restoring.unread()

    def _end_turn(self, found: dict[int, list[Message]]) -> None:
        """Let the next begin when this one is nearly read, or can be read no further just now."""
        if self._turn is None:
            return
        partition, until, heard_at_s = self._turn
        if partition in found:
            last = found[partition][-1]
            is_over = last.error() is not None or (last.offset() or 0) >= until
            self._turn = None if is_over else (partition, until, clock.monotonic_s())
        elif clock.monotonic_s() - heard_at_s > _SILENT_S:
            self._turn = None
