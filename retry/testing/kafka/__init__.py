"""A log in memory, with transactions and consumer groups: for tests of users and our own, and for the simulation.

Passes the same contract suite as the real one; readers see what read_committed readers of a broker see. Topics are made first:
`log.create("orders.retry", partitions=3)`. One thread at a time. Nothing happens by itself: sessions end, transactions time out
and partitions are compacted when a test says so.

| module | what it is |
| --- | --- |
| `partition` | records, as readers are given them, and ends of transactions in their order, compacted and cut |
| `log` | topics, transactional ids, committed positions |
| `transactional_producer` | the client that writes, as `retry.kafka.interface` wants it |
| `group_coordinator` | the coordinator of a consumer group |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from retry.errors import TransactionAborted
from retry.kafka.interface import ChooseStarts, CommittedOffset, OffsetBounds, OnAssigned, Partition, StartingPoint
from retry.kafka.refused_headers import UnreadableHeaders
from retry.testing.kafka.group_coordinator import Membership, MemoryGroup
from retry.testing.kafka.log import MemoryLog
from retry.testing.kafka.partition import MemoryEnd, MemoryPartition, MemoryRecord, Transaction, murmur2
from retry.testing.kafka.transactional_producer import Fault, MemoryTransactionalProducer

__all__ = [
    "Fault", "Membership", "MemoryCluster", "MemoryEnd", "MemoryGroup", "MemoryGroupMember", "MemoryLog", "MemoryPartition",
    "MemoryPartitionReader", "MemoryRecord", "MemoryTransactionalProducer", "Transaction", "murmur2",
]  # fmt: skip


# `retry.kafka.group_member.KafkaGroupMember` over a log in memory.

class MemoryGroupMember:
    """One member of a consumer group, which keeps its seat when it is closed until the group expires it."""

    def __init__(
        self, log: MemoryLog, group: str, instance: str, subscription: list[str], gained: OnAssigned, leaving: OnAssigned, *,
        reads: bool = True,
    ) -> None:
        self.owned: set[Partition] = set()
        self.ended: dict[Partition, int] = {}
        self._log, self._group, self._instance, self._subscription = log, log.ensure_group(group), instance, list(subscription)
        self._gained, self._leaving, self._reads = gained, leaving, reads
        # Where reading goes on; None until that was chosen.
        self._next: dict[Partition, int | None] = {}
        self._ids: dict[str, str] = {}
        self._generation = -1
        self._metadata: Membership | None = None
        self._session = self._group.enter(instance, self._subscription)

    def read(self, records_max: int, wait_s: float) -> list[Any]:  # noqa: ARG002
        """Return the next records, only of owned partitions; none where the member had to join the group again."""
        try:
            given = self._group.heartbeat(self._instance, self._session, self._subscription, self.owned)
        except LookupError:
            self._metadata = None
            self._give_up(sorted(self.owned))
            self._session = self._group.enter(self._instance, self._subscription)
            return []
        if given is not None:
            self._generation = self._group.generation
            self._accept_assignment(given)
        self._metadata = Membership(self._group.name, self._instance, self._session, self._generation)
        return self._poll_records(records_max) if self._reads else []

    def _accept_assignment(self, given: set[Partition]) -> None:
        self._metadata = Membership(self._group.name, self._instance, self._session, self._generation)
        if leaving := sorted(self.owned - given):
            self._give_up(leaving)
            self._group.share_out()
        if gained := sorted(given - self.owned):
            self.owned |= set(gained)
            self._next |= dict.fromkeys(gained)
            self._gained(gained)

    def _poll_records(self, records_max: int) -> list[Any]:
        polled: list[Any] = []
        for place, offset in list(self._next.items()):
            if offset is None or len(polled) == records_max:
                continue
            partition = self._log.topics[place[0]][place[1]]
            # Of an offset that is not there the client begins at the beginning, as it is configured.
            begin = offset if partition.start <= offset <= partition.end else partition.start
            records, self._next[place] = partition.read(begin, records_max - len(polled))
            if not records and len(polled) < records_max:
                self.ended[place] = self._next[place] or 0
            polled += records
            # The next read begins with another one.
            self._next[place] = self._next.pop(place)
        return polled

    def replace_unreadable(self, messages: list[Any]) -> list[Any]:
        """Put `UnreadableHeaders` in place of records that have more headers than a client can read."""
        return [UnreadableHeaders(record) if record.has_too_many_headers() else record for record in messages]

    def subscribe(self, subscription: list[str]) -> None:
        self._subscription = list(subscription)

    def metadata(self) -> object:
        if self._metadata is None:
            raise TransactionAborted("no member of the group")
        return self._metadata

    def begin_reading(self, partitions: Iterable[Partition], choose: ChooseStarts) -> None:
        """Read partitions from where `choose` says; fails while a transaction is about to commit offsets of one."""
        wanted = sorted(self.owned.intersection(partitions))
        kept = {topic for topic, _ in self.owned.difference(wanted)}
        self._ids = {topic: self._ids[topic] for topic in kept if topic in self._ids}
        self._ids |= {topic: self._log.topic_ids[topic] for topic, _ in wanted if topic not in self._ids}
        committed = {place: self._log.find_committed(self._group.name, *place) for place in wanted}
        if None in committed.values():
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "a transaction is about to commit offsets"))
        for place, start in choose(committed, self._ids).items():  # type: ignore[arg-type]
            self._next[place] = 0 if start.offset is None else self._log.topics[place[0]][place[1]].seek(start)

    def commit_starts(self, starts: Mapping[Partition, StartingPoint]) -> None:
        """Set the group's offsets to where reading begins, for those who look at them."""
        for place, start in starts.items():
            offset = CommittedOffset(start.offset, self._ids.get(place[0], ""), start.leader_epoch)
            self._log.committed_offsets[self._group.name, *place] = offset

    def ask_recreated(self, topics: Iterable[str] = ()) -> Callable[[], list[str]]:
        """Ask which topics were deleted and made again since reading of them began."""
        before, now = dict(self._ids), {topic: self._log.topic_ids.get(topic) for topic in topics or self._ids}
        return lambda: sorted(topic for topic, topic_id in now.items() if topic_id != before.get(topic))

    def close(self) -> None:
        self._give_up(sorted(self.owned))
        self._metadata = None

    def _give_up(self, leaving: list[Partition]) -> None:
        if leaving:
            self._leaving(leaving)
        for place in leaving:
            self._next.pop(place, None)
            self.ended.pop(place, None)
        self.owned -= set(leaving)


# `retry.kafka.reading_loop.KafkaPartitionReader` over a log in memory.

class MemoryPartitionReader:
    """Committed records, and ends of partitions, of the partitions that it follows."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._next: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}

    def follow_partition(self, topic: str, partition: int, offset: int) -> None:
        self._next[topic, partition] = offset
        self._ends.pop((topic, partition), None)

    def unfollow_partition(self, topic: str, partition: int) -> None:
        self._next.pop((topic, partition), None)

    def read(self, records_max: int, wait_s: float) -> list[Any]:  # noqa: ARG002
        """Return the next records and ends of partitions; an end is reported once for each place where reading stops."""
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


class MemoryCluster:
    """See `retry.kafka.interface.Log`; the log is shared with other workers.

    `app_id` goes before the names of producers; `instance` is the stable name of this worker in its groups.
    """

    def __init__(self, log: MemoryLog, app_id: str, instance: str) -> None:
        self._log, self._app_id, self._instance = log, app_id, instance

    def make_producer(self, name: str, *, compressing: bool = False) -> MemoryTransactionalProducer:
        return MemoryTransactionalProducer(self._log, f"{self._app_id}-{name}", compresses=compressing)

    def make_reader(self) -> MemoryPartitionReader:
        return MemoryPartitionReader(self._log)

    def join_group(
        self, group: str, subscription: list[str], gained: OnAssigned, leaving: OnAssigned, *, reads: bool = True
    ) -> MemoryGroupMember:
        return MemoryGroupMember(self._log, group, self._instance, subscription, gained, leaving, reads=reads)

    def fetch_bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, OffsetBounds]:
        return self._log.fetch_bounds(topic, partitions)

    def fetch_partition_bounds(self, partitions: Iterable[Partition]) -> dict[Partition, OffsetBounds]:
        return self._log.fetch_partition_bounds(partitions)
