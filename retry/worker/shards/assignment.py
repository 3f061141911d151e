"""The shards that this worker owns: a member of the table group, which opens, feeds and closes them.

The member only says which partitions are ours; another client follows each from where its table ends, in the order of
`RestoreQueue`. A shard is opened outside the rebalance callback. One that broke is closed, and opened again if the partition is
still ours. Of partitions that others own copies may be kept current.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from retry import clock
from retry.delivery.sweep import ChangelogPartition
from retry.errors import ChangelogReplaced, DataDirUnusable, RetryError, TransactionAborted
from retry.kafka.interface import KafkaException, Message, Partition, PartitionReader, TopicPartition
from retry.kafka.sweep_producers import SweepProducers
from retry.telemetry.health import HealthProbe
from retry.worker.shards.joint_sweep import AT_ONCE
from retry.worker.shards.restore import Phase, ShardContext
from retry.worker.shards.shard import Shard

# Which shards are read now: those with much to restore one after the other, all others at once.
#
# One after the other, the first are swept while the last have not begun, and the one in hand has all memory for unwritten rows:
# with that shared out, ten million entries made three times as many sorted files, and took a third longer. Who has least to
# read comes first. Which has the earliest due times nobody knows before it is read: the changelog is not in their order.
#
# What is held up by others, a transaction that somebody left open or a broker that is away, holds up nobody here: the next
# begins as soon as one is read as far as it can be, or nothing comes of it.

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
        if shard.restoring.unread() > MANY:
            self._waiting[partition] = shard
        else:
            self._follower.follow_partition(self._topic, partition, shard.table.next_offset)

    def remove_shard(self, partition: int) -> None:
        if self._turn and self._turn[0] == partition:
            self._turn = None
        if self._waiting.pop(partition, None) is None:
            self._follower.unfollow_partition(self._topic, partition)

    def waits(self, partition: int) -> bool:
        """Whether it is not read yet."""
        return partition in self._waiting

    def is_restoring(self) -> bool:
        return bool(self._turn or self._waiting)

    def read(self, records_max: int, wait_s: float) -> dict[int, list[Message]]:
        """Read the next records and ends of partitions, by partition."""
        self._begin_next()
        found: dict[int, list[Message]] = {}
        for message in self._follower.read(records_max, wait_s):
            found.setdefault(message.partition() or 0, []).append(message)
        self._end_turn(found)
        return found

    def close(self) -> None:
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


log = logging.getLogger(__name__)

_LINGER_S = 0.02
# More at once would cost RocksDB more for each row, and a block may have 100 KB.
_RECORDS_MAX = 1_000
_AGAIN_S = 2.0
_TOUCH_EVERY_S = 60.0

FoldWork = list[tuple[Shard, list[Message]]]
# `map`, or one that does several at once: most of the time of opening a shard is spent waiting for brokers.
Map = Callable[[Callable[[int], Shard | None], Iterable[int]], Iterable[Shard | None]]


class Shards:
    """Reads changelog records for the shards that it owns (`read`, one thread); others fold and sweep them.

    Args:
      writer: the name of this worker's transactions; no other worker has the same.
      standbys: partitions to stand by for whenever another worker owns them.
    """

    def __init__(
        self, group: str, topic: str, shard_context: ShardContext, opening: Map, writer: str, standbys: Iterable[int] = ()
    ) -> None:
        self.shard_context, self._opening, self._standbys = shard_context, opening, frozenset(standbys)
        self._open: dict[int, Shard] = {}
        self._standing_by: dict[int, Shard] = {}
        self._begin_standbys = clock.Interval(_AGAIN_S, at_once=True)
        self._to_open: dict[int, float] = {}
        self._refused: dict[int, str] = {}
        self._turns = self._tries = 0
        self._closing = False
        self.topic = topic
        self._touch_tables = clock.Interval(_TOUCH_EVERY_S)
        names = [f"{writer}-{number}" for number in range(AT_ONCE)]
        self.producers = SweepProducers(shard_context.log.make_producer, names, topic, self._proof)
        self._followed = RestoreQueue(shard_context.log.make_reader(), topic)
        self._member = shard_context.log.join_group(group, [topic], self._note_gained, self._leaving, reads=False)

    def list_open_shards(self) -> list[Shard]:
        """List the owned shards that are open just now."""
        return list(self._open.values())

    def list_ready(self) -> list[int]:
        """List the partitions whose shards are swept."""
        return [shard.changelog.partition for shard in self.list_open_shards() if shard.phase is Phase.READY]

    def standing_by(self) -> list[Shard]:
        return list(self._standing_by.values())

    def note_ends(self, ends: Mapping[Partition, int], at_ms: int) -> None:
        """Note the last stable offsets that partitions had at `at_ms`."""
        for shard in [*self.list_open_shards(), *self.standing_by()]:
            if shard.changelog in ends:
                shard.note_end(ends[shard.changelog], at_ms)

    def _proof(self, partitions: Iterable[int]) -> tuple[list[TopicPartition], object]:
        """Return how far each partition is folded, and the proof of membership; see `retry.kafka.sweep_producers`."""
        member = self._member.metadata()
        # Looked at after that was taken: what is given up from here on makes it stale, and the broker refuses it.
        shards = {partition: self._open.get(partition) for partition in partitions}
        if given_up := [partition for partition, shard in shards.items() if shard is None]:
            raise TransactionAborted(f"shards were given up: {', '.join(map(str, given_up))}")
        return [TopicPartition(self.topic, n, shard.table.next_offset) for n, shard in shards.items() if shard], member

    def note_no_producer(self, shards: Iterable[Shard]) -> None:
        """Note that no producer was free to sweep some shards; a failure only where none of the producers can be opened."""
        trouble = self.producers.trouble()
        for shard in shards:
            if trouble:
                shard.progress.note_failure(trouble)
            shard.progress.note_try()

    def count_owned(self) -> int:
        return len(self._member.owned)

    def read(self) -> FoldWork:
        """Read the next changelog records and ends of partitions, each with the shard that is to fold them."""
        self._turns += 1
        self._member.read(1, 0.0)
        self._reopen_broken()
        self._open_waiting()
        self._stand_by()
        self._touch_idle()
        found = self._followed.read(_RECORDS_MAX, _LINGER_S)
        shards = self._standing_by | self._open
        if not self._followed.is_restoring():
            for shard in shards.values():
                shard.restoring.end_bulk()
        return [(shards[p], messages) for p, messages in found.items() if p in shards]

    def to_open(self) -> list[int]:
        return list(self._to_open)

    def list_probes(self) -> list[HealthProbe]:
        """List what must go on here and in each shard, for the watchdog; nothing, once it is being closed."""
        if self._closing:
            return []
        reading = HealthProbe("reading the changelog", (self._turns, self._tries), busy=True)
        refused = [HealthProbe(f"shard {n}: opening", n, trouble=why, shard=n) for n, why in self._refused.copy().items()]
        # Those whose turn has not come stand still, and are not stuck.
        read = [s for s in [*self.list_open_shards(), *self.standing_by()] if not self._followed.waits(s.changelog.partition)]
        return [reading, *refused, *(part for shard in read for part in shard.list_probes())]

    def _note_gained(self, gained: list[Partition]) -> None:
        self._to_open |= {partition: 0.0 for _, partition in gained}
        log.info("shards %s: ours", ", ".join(str(partition) for _, partition in sorted(gained)) or "none")

    def _leaving(self, leaving: list[Partition]) -> None:
        for _, partition in leaving:
            self._to_open.pop(partition, None)
            self._refused.pop(partition, None)
            shard = self._open.pop(partition, None)
            if shard is not None:
                if partition in self._standbys and shard.hand_over():
                    self._standing_by[partition] = shard
                else:
                    self._close(shard)
                log.info("shard %d: given up", partition)

    def _stand_by(self) -> None:
        """Begin to stand by where that is missing, when what is ours is swept."""
        missing = self._standbys - self._standing_by.keys() - {partition for _, partition in self._member.owned}
        restoring = self._to_open or any(shard.phase is Phase.RESTORING for shard in self.list_open_shards())
        if not missing or restoring or not self._begin_standbys.is_due():
            return
        try:
            bounds = self.shard_context.log.fetch_bounds(self.topic, missing)
            for partition in sorted(missing):
                shard = Shard.stand_by(ChangelogPartition(self.topic, partition), self.shard_context, bounds[partition])
                self._followed.add_shard(partition, shard)
                self._standing_by[partition] = shard
        except (RetryError, KafkaException, TimeoutError) as error:
            log.warning("cannot stand by yet: %s", error)

    def _reopen_broken(self) -> None:
        for partition, shard in list(self._standing_by.items()):
            if shard.phase is Phase.BROKEN or (shard.phase is not Phase.STANDBY and partition in self._to_open):
                del self._standing_by[partition]
                self._close(shard)
        for partition, shard in list(self._open.items()):
            if shard.phase is Phase.BROKEN:
                del self._open[partition]
                self._close(shard)
                # A zombie learns in this time that the partition is no longer its own.
                self._to_open[partition] = clock.monotonic_s() + (0.0 if shard.is_still_ours else _AGAIN_S)

    def _open_waiting(self) -> None:
        now_s = clock.monotonic_s()
        ripe = [partition for partition, at_s in self._to_open.items() if now_s >= at_s]
        for partition, shard in zip(ripe, self._opening(self._open_shard, ripe), strict=True):
            self._to_open[partition] = clock.monotonic_s() + _AGAIN_S
            if shard is None:
                continue
            if self._standing_by.pop(partition, None) is None:
                self._followed.add_shard(partition, shard)
            self._open[partition] = shard
            del self._to_open[partition]

    def _open_shard(self, partition: int) -> Shard | None:
        # Others are opened at the same time: that a count is lost now and then does no harm.
        self._tries += 1
        try:
            self.producers.open()
            shard = self._standing_by.get(partition)
            if shard is None:
                shard = Shard.open(ChangelogPartition(self.topic, partition), self.shard_context)
            elif not shard.take_over(self.shard_context):
                # It is closed by the thread that reads, and then opened anew.
                return None
        except (ChangelogReplaced, DataDirUnusable):
            raise
        except (RetryError, KafkaException, TimeoutError) as error:
            self._refused[partition] = str(error)
            log.warning("shard %d: cannot be opened yet: %s", partition, error)
            return None
        self._refused.pop(partition, None)
        return shard

    def _close(self, shard: Shard) -> None:
        self._followed.remove_shard(shard.changelog.partition)
        shard.close()

    def _touch_idle(self) -> None:
        if self._touch_tables.is_due():
            for shard in [*self.list_open_shards(), *self.standing_by()]:
                shard.touch()

    def close(self) -> None:
        self._closing, self._standbys = True, frozenset()
        self._member.close()
        for shard in self.standing_by():
            self._close(shard)
        self.producers.close()
        self._followed.close()
