"""Topics in memory, who owns which transactional id, and what consumer groups have committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import KafkaError

from retry import clock
from retry.delay_queue.envelopes import Entry
from retry.kafka.interface import CommittedOffset, OffsetBounds, Partition
from retry.kafka.record_limits import TopicLimits, measure_batch, measure_compressed_batch
from retry.record import Headers
from retry.testing.kafka.group_coordinator import MemoryGroup
from retry.testing.kafka.partition import MemoryPartition, MemoryRecord, Transaction, murmur2

_ANY_PARTITION = -1
_BYTES_MAX = 1_048_588


class MemoryLog:
    """Topics with partitions, and what brokers know of their clients.

    Attributes:
      committed_offsets: by (group, topic, partition).
      faults: what becomes of the next commits, first one first; None is a success.
      epochs, under_way: of each transactional id; for `MemoryTransactions`.
      forbidden: topics that nobody may write to: a transaction with a record for one is refused whole, and no record is named.
      leaderless: topics that take nothing, not even the end of a transaction that has touched them.
      bytes_max: by topic, its `max.message.bytes`.
      age_ms_max: by topic, its `message.timestamp.before.max.ms`; topics without one take records of any age.
      needs_key: topics that take no record without a key, as compacted ones.
      invalid: topic and value of records that brokers refuse as invalid.
    """

    def __init__(self, now_ms: Callable[[], int] = clock.wall_ms) -> None:
        self.now_ms = now_ms
        self.committed_offsets: dict[tuple[str, str, int], CommittedOffset] = {}
        self.topic_ids: dict[str, str] = {}
        self._topics_made = 0
        self._sent: dict[tuple[str, str, int], int] = {}
        self._sends = 0
        self.faults: list[Any] = []
        self.epochs: dict[str, int] = {}
        self.under_way: dict[str, Transaction] = {}
        self.groups: dict[str, MemoryGroup] = {}
        self.closed: set[str] = set()
        self.forbidden: set[str] = set()
        self.leaderless: set[str] = set()
        self.topics: dict[str, list[MemoryPartition]] = {}
        self.bytes_max: dict[str, int] = {}
        self.age_ms_max: dict[str, int] = {}
        self.needs_key: set[str] = set()
        self.invalid: set[tuple[str, bytes | None]] = set()

    def create(self, topic: str, partitions: int = 1, bytes_max: int = _BYTES_MAX) -> None:
        """Make an empty topic; `bytes_max` is its `max.message.bytes`: whatever is larger, alone in a batch, is refused."""
        self._topics_made += 1
        self.topic_ids[topic] = f"id {self._topics_made}"
        self.topics[topic], self.bytes_max[topic] = [MemoryPartition(topic, n) for n in range(partitions)], bytes_max

    def ensure_group(self, name: str) -> MemoryGroup:
        if name not in self.groups:
            self.groups[name] = MemoryGroup(name, lambda: [(t, n) for t, parts in self.topics.items() for n in range(len(parts))])
        return self.groups[name]

    def fetch_bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, OffsetBounds]:
        """Return where partitions of one topic begin and end now."""
        return {n: OffsetBounds(self.topics[topic][n].start, self.topics[topic][n].end) for n in partitions}

    def fetch_partition_bounds(self, partitions: Iterable[Partition]) -> dict[Partition, OffsetBounds]:
        return {(topic, n): self.fetch_bounds(topic, [n])[n] for topic, n in partitions}

    def find_committed(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        """Look up the offset that a group has committed; None while a transaction under way may change it."""
        place = group, topic, partition
        if any(place in transaction.positions for transaction in self.under_way.values()):
            return None
        return self.committed_offsets.get(place, CommittedOffset(None))

    def send_positions(self, transaction: Transaction, positions: dict[tuple[str, str, int], CommittedOffset]) -> None:
        """Take offsets to commit with a transaction. For `MemoryTransactionalProducer`."""
        self._sends += 1
        transaction.positions |= positions
        transaction.sent |= dict.fromkeys(positions, self._sends)

    def _commit_positions(self, transaction: Transaction) -> None:
        # Of what several transactions have sent, that which came last counts, and not that which is committed last.
        for place, offset in transaction.positions.items():
            if transaction.sent[place] > self._sent.get(place, 0):
                self.committed_offsets[place], self._sent[place] = offset, transaction.sent[place]

    def read(self, topic: str) -> list[MemoryRecord]:
        return [record for partition in self.topics[topic] for record in partition.read(0, partition.end)[0]]

    def add_record(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = [], partition: int = _ANY_PARTITION,  # noqa: B006
        *, stamp_ms: int | None = None,
    ) -> MemoryRecord:  # fmt: skip
        """Add a record outside of any transaction; without `stamp_ms` its timestamp is the time by this log."""
        entry = Entry(topic, key, value, list(headers), None, "")
        return self._append_record(Transaction(committed=True), entry, partition, self.now_ms() if stamp_ms is None else stamp_ms)

    def limits(self, topics: Iterable[str]) -> dict[str, TopicLimits]:
        sizes = ((topic, self.bytes_max[topic]) for topic in topics if topic in self.bytes_max)
        return {topic: TopicLimits(size, self.age_ms_max.get(topic), topic in self.needs_key) for topic, size in sizes}

    def find_record_error(self, e: Entry, partition: int, stamp_ms: int, *, compressed: bool = False) -> KafkaError | None:
        """Find the error with which a broker would refuse a record; None where it would take the record."""
        if e.destination not in self.topics or e.destination in self.closed:
            return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"no topic {e.destination}")
        if partition >= len(self.topics[e.destination]):
            return KafkaError(KafkaError._UNKNOWN_PARTITION, f"no partition {partition}")
        size = measure_compressed_batch(e) if compressed else measure_batch(e)
        if size > self.bytes_max[e.destination]:
            return KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
        if (e.destination, e.value) in self.invalid or (e.key is None and e.destination in self.needs_key):
            return KafkaError(KafkaError.INVALID_RECORD)
        is_old = self.now_ms() - stamp_ms > self.age_ms_max.get(e.destination, 1 << 62)
        return KafkaError(KafkaError.INVALID_TIMESTAMP) if is_old else None

    def append(self, transaction: Transaction, e: Entry, partition: int, stamp_ms: int, *, compressed: bool = False) -> None:
        """Add a record at the end of a partition; -1 lets the key choose. For `MemoryTransactions`."""
        refusal = self.find_record_error(e, partition, stamp_ms, compressed=compressed)
        unwritable = forbidden() if e.destination in self.forbidden else refusal
        transaction.refused = transaction.refused or unwritable
        if e.destination in self.leaderless:
            transaction.refused = transaction.refused or KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
            transaction.touched[self.partition_of(e, partition)] = None
        if not transaction.refused:
            transaction.records.append(self._append_record(transaction, e, partition, stamp_ms))

    def _append_record(self, transaction: Transaction, e: Entry, partition: int, stamp_ms: int) -> MemoryRecord:
        return self.partition_of(e, partition).append(transaction, e, stamp_ms)

    def partition_of(self, e: Entry, partition: int) -> MemoryPartition:
        """Choose the partition that a record goes to; where `partition` is -1, the record's key chooses."""
        partitions = self.topics[e.destination]
        if partition == _ANY_PARTITION:
            # What has no key is spread; a real client draws lots, which a test could not repeat.
            spread = sum(p.end for p in partitions) if e.key is None else murmur2(e.key) & 0x7FFFFFFF
            partition = spread % len(partitions)
        return partitions[partition]

    def decide(self, transaction: Transaction, *, committed: bool) -> None:
        """Commit a transaction, or abort it; readers see that when it is finished."""
        transaction.committed = committed

    def complete_transaction(self, transactional_id: str) -> None:
        """Let readers see how the transaction of an id was decided; a transaction that is not decided is aborted.

        Where a leader is away readers do not see that yet, and the id stays with it.
        """
        transaction = self.under_way.get(transactional_id)
        if transaction is None:
            return
        if transaction.committed is None:
            self.decide(transaction, committed=False)
        for partition in [touched for touched in transaction.touched if touched.topic not in self.leaderless]:
            partition.write_end_marker(transaction)
            del transaction.touched[partition]
        if transaction.committed:
            self._commit_positions(transaction)
        transaction.positions = {}
        if not transaction.touched:
            del self.under_way[transactional_id]

    def end_transaction(self, transactional_id: str, *, committed: bool) -> None:
        transaction = self.under_way.get(transactional_id)
        if transaction is not None and transaction.committed is None:
            self.decide(transaction, committed=committed)
        self.complete_transaction(transactional_id)

    def is_stuck(self, transactional_id: str) -> bool:
        """Whether the last transaction of this id is decided and cannot be ended."""
        transaction = self.under_way.get(transactional_id)
        if transaction is not None and transaction.committed is not None:
            self.complete_transaction(transactional_id)
        return transaction is not None and transaction.committed is not None and transactional_id in self.under_way

    def time_out(self, transactional_id: str) -> None:
        """End the transaction of this id as brokers do when it takes too long: its producer is of no more use."""
        self.epochs[transactional_id] = self.epochs.get(transactional_id, 0) + 1
        self.complete_transaction(transactional_id)


def forbidden() -> KafkaError:
    """Make the error with which the transaction coordinator refuses a transaction."""
    return KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
