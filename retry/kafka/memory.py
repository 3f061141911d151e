"""A log in memory, with transactions: for tests of users and our own. Passes the same contract suite as the real one.

Readers see what read_committed readers of a broker see: nothing of an aborted transaction, nothing behind an open one,
a gap in the offsets where one ended. Topics are made first: `log.create("orders.retry", partitions=3)`. One thread at a
time; nothing is ever compacted or deleted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from retry import clock
from retry.entry import Entry
from retry.errors import CommitInDoubt, ProducerFenced, TransactionAborted, TransactionFailed

_ANY_PARTITION, _CREATE_TIME = -1, 1
_BYTES_MAX = 1_048_588
_WORD, _MIX = 0xFFFFFFFF, 0x5BD1E995


class Fault(Enum):
    """What may become of a commit besides its success."""

    ABORTED = "undone, and the producer is told"
    DOUBT_COMMITTED = "done, and the answer is lost"
    DOUBT_OPEN = "never arrived: the transaction stays open until its id is opened again"


@dataclass(slots=True, eq=False)
class _Transaction:
    committed: bool | None = None  # None while it is open
    touched: set[tuple[str, int]] = field(default_factory=set)
    positions: dict[tuple[str, str, int], int] = field(default_factory=dict)
    refused: KafkaError | None = None


class MemoryRecord:
    """One record; it reads like a `confluent_kafka.Message`, so intake and fold take it as one."""

    def __init__(self, entry: Entry, partition: int, offset: int, stamp_ms: int) -> None:
        self.topic, self.partition, self.offset = (lambda: entry.destination), (lambda: partition), (lambda: offset)
        self.key, self.value, self.headers = (lambda: entry.key), (lambda: entry.value), (lambda: entry.headers or None)
        self.timestamp, self.error = (lambda: (_CREATE_TIME, stamp_ms)), (lambda: None)


class MemoryLog:
    """Topics with partitions, committed positions of consumer groups, and who owns which transactional id.

    Attributes:
      positions: (group, topic, partition) → committed offset.
      faults: what becomes of the next commits, first one first; None is a success.
      epochs, under_way: of each transactional id; for `MemoryTransactions`.
    """

    def __init__(self) -> None:
        self.positions: dict[tuple[str, str, int], int] = {}
        self.faults: list[Fault | None] = []
        self.epochs: dict[str, int] = {}
        self.under_way: dict[str, _Transaction] = {}
        self._topics: dict[str, list[list[tuple[_Transaction, MemoryRecord | None]]]] = {}
        self._bytes_max: dict[str, int] = {}

    def create(self, topic: str, partitions: int = 1, bytes_max: int = _BYTES_MAX) -> None:
        """Make an empty topic; larger records than `bytes_max` (key, value, headers) are refused."""
        self._topics[topic], self._bytes_max[topic] = [[] for _ in range(partitions)], bytes_max

    def read(self, topic: str) -> list[MemoryRecord]:
        """What a read_committed reader sees of all partitions, one after another."""
        found = []
        for slots in self._topics[topic]:
            for transaction, record in slots:
                if transaction.committed is None:
                    break
                if transaction.committed and record is not None:
                    found.append(record)
        return found

    def refusal(self, e: Entry) -> KafkaError | None:
        """Why a broker would not take this as a record, or None."""
        if e.destination not in self._topics:
            return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"no topic {e.destination}")
        size = len(e.key or b"") + len(e.value or b"") + sum(len(name) + len(held or b"") for name, held in e.headers)
        return KafkaError(KafkaError.MSG_SIZE_TOO_LARGE) if size > self._bytes_max[e.destination] else None

    def append(self, transaction: Any, e: Entry, partition: int, stamp_ms: int) -> None:
        """Add a record at the end of a partition; -1 lets the key choose. For `MemoryTransactions`."""
        transaction.refused = transaction.refused or self.refusal(e)
        if transaction.refused:
            return
        partitions = self._topics[e.destination]
        if partition == _ANY_PARTITION:
            # What has no key is spread; a real client draws lots, which a test could not repeat.
            partition = (sum(map(len, partitions)) if e.key is None else murmur2(e.key) & 0x7FFFFFFF) % len(partitions)
        slots = partitions[partition]
        slots.append((transaction, MemoryRecord(e, partition, len(slots), stamp_ms)))
        transaction.touched.add((e.destination, partition))

    def end(self, transactional_id: str, *, committed: bool) -> None:
        """End the transaction of this id, if it has one. For `MemoryTransactions`."""
        transaction = self.under_way.pop(transactional_id, _Transaction())
        transaction.committed = committed
        for topic, partition in transaction.touched:
            self._topics[topic][partition].append((transaction, None))
        self.positions |= transaction.positions if committed else {}


class MemoryTransactions:
    """`retry.kafka.transactions.Transactions` over a `MemoryLog`; its methods say what each of these does."""

    def __init__(self, log: MemoryLog, transactional_id: str) -> None:
        self._log, self._id, self._epoch = log, transactional_id, 0
        self._under_way: _Transaction | None = None
        self._broken: TransactionFailed | None = None

    def open(self) -> None:
        """Fence every earlier producer with this id and end the transaction that it left open."""
        self._epoch = self._log.epochs[self._id] = self._log.epochs.get(self._id, 0) + 1
        self._log.end(self._id, committed=False)

    def begin(self) -> None:
        """Begin a transaction; whatever is written next is seen whole or not at all."""
        if self._broken or self._under_way:
            raise self._broken or CommitInDoubt("a transaction is under way")
        self._under_way = _Transaction()
        if self._epoch == self._log.epochs.get(self._id):
            self._log.under_way[self._id] = self._under_way

    def write(self, topic: str, partition: int, rows: list[dict[str, Any]]) -> None:
        """Write records without headers to one partition, or to any where it is -1."""
        for row in rows:
            self._send(Entry(topic, row["key"], row["value"], [], None, ""), partition, clock.wall_ms())

    def publish(self, entries: Iterable[Entry], now_ms: int) -> None:
        """Write entries to their destinations; their keys decide the partitions."""
        for e in entries:
            self._send(e, _ANY_PARTITION, now_ms if e.timestamp_ms is None else min(e.timestamp_ms, now_ms))

    def _send(self, e: Entry, partition: int, stamp_ms: int) -> None:
        # What a fenced producer sends reaches no log, and it learns of that when it commits.
        if self._current() is self._log.under_way.get(self._id):
            self._log.append(self._under_way, e, partition, stamp_ms)

    def rehearse(self, entries: Iterable[Entry], now_ms: int) -> dict[int, KafkaError]:  # noqa: ARG002
        """Say by position which entries would be refused and why; nothing is written."""
        return {n: refused for n, e in enumerate(entries) if (refused := self._log.refusal(e)) is not None}

    def read_to(self, positions: Sequence[TopicPartition], member: object) -> None:
        """Make positions part of the transaction; `member` is the name of the consumer group."""
        self._own().positions |= {(str(member), p.topic, p.partition): p.offset for p in positions}

    def commit(self) -> None:
        """Make the transaction visible, or fail as `MemoryLog.faults` says."""
        refused = self._own().refused
        fault = self._log.faults.pop(0) if self._log.faults else None
        if refused or fault is Fault.ABORTED:
            self.abort()
            raise TransactionAborted(str(refused or fault))
        if fault is not Fault.DOUBT_OPEN:
            self._log.end(self._id, committed=True)
        self._under_way = None
        if fault is not None:
            self._broken = CommitInDoubt(fault.value)
            raise self._broken

    def abort(self) -> None:
        """Undo the transaction."""
        self._own()
        self._log.end(self._id, committed=False)
        self._under_way = None

    def close(self) -> None:
        """Let go; a transaction that is under way stays open until the id is opened again."""
        self._broken, self._under_way = CommitInDoubt("this producer is closed"), None

    def _current(self) -> _Transaction:
        if self._under_way is None:
            raise self._broken or CommitInDoubt("no transaction is under way")
        return self._under_way

    def _own(self) -> _Transaction:
        if self._epoch != self._log.epochs.get(self._id):
            self._broken, self._under_way = ProducerFenced(f"{self._id} was opened by another producer"), None
        return self._current()


def murmur2(key: bytes) -> int:
    """The hash by which Java clients choose a partition, as an unsigned 32-bit number."""
    mixed, whole = 0x9747B28C ^ len(key), len(key) & ~3
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        scaled = word * _MIX & _WORD
        mixed = (mixed * _MIX & _WORD) ^ ((scaled ^ scaled >> 24) * _MIX & _WORD)
    if rest := key[whole:]:
        mixed = (mixed ^ int.from_bytes(rest, "little")) * _MIX & _WORD
    return (mixed := (mixed ^ mixed >> 13) * _MIX & _WORD) ^ mixed >> 15
