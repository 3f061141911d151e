"""`retry.kafka.transactional_producer.KafkaTransactionalProducer` over a log in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import repeat
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from retry.clock import Deadline
from retry.delay_queue.envelopes import Entry
from retry.errors import CommitInDoubt, ProducerFenced, TransactionAborted, TransactionFailed
from retry.kafka.group_member import read_committed_offset
from retry.kafka.record_limits import OF_CONTENT, BatchSizeLimits
from retry.kafka.refused_records import RehearsalResult, RehearsedRecord, Suspects, find_refusals
from retry.testing.kafka.group_coordinator import Membership
from retry.testing.kafka.log import MemoryLog, forbidden
from retry.testing.kafka.partition import Transaction

_ANY_PARTITION = -1
_REHEARSE_S = 8.0
_WAITS_MAX = 3


class Fault(Enum):
    """How a commit may fail."""

    ABORTED = "undone, and the producer learns of it"
    DOUBT_COMMITTED = "done, and the answer is lost"
    DOUBT_OPEN = "never arrived: the transaction stays open until its id is opened again"
    DOUBT_LATE = "done, and the answer is lost; seen when its id is opened again"
    LATE = "done; seen when its id begins the next transaction"


class MemoryTransactionalProducer:
    """Transactions of one id; see `retry.kafka.interface`. With `compresses` records are as large as gzip makes them."""

    def __init__(self, log: MemoryLog, transactional_id: str, *, compresses: bool = False) -> None:
        self._log, self._id, self._epoch, self._compresses = log, transactional_id, 0, compresses
        self._under_way: Transaction | None = None
        self._broken: TransactionFailed | None = None
        self._waits = 0

    def open(self, within_s: float = 0.0) -> None:  # noqa: ARG002
        if self._log.is_stuck(self._id):
            raise CommitInDoubt("CONCURRENT_TRANSACTIONS")
        self._epoch = self._log.epochs[self._id] = self._log.epochs.get(self._id, 0) + 1
        self._log.complete_transaction(self._id)
        if self._log.is_stuck(self._id):
            raise CommitInDoubt("CONCURRENT_TRANSACTIONS")

    def renew_client(self, within_s: float = 0.0) -> None:
        self._under_way, self._broken = None, None
        self.open(within_s)

    def begin(self, renew_within_s: float = 0.0) -> None:  # noqa: ARG002
        if self._broken or self._under_way:
            raise self._broken or CommitInDoubt("a transaction is under way")
        self._under_way, self._waits = Transaction(self._id, self._log.now_ms()), 0
        if self._epoch == self._log.epochs.get(self._id) and not self._log.is_stuck(self._id):
            self._log.complete_transaction(self._id)
            self._log.under_way[self._id] = self._under_way

    def write(self, topic: str, partition: int, rows: list[dict[str, Any]]) -> None:
        """Write records without headers to one partition, or to any where it is -1."""
        for row in rows:
            self._append_entry(Entry(topic, row["key"], row["value"], [], None, ""), partition, self._log.now_ms())

    def publish(self, entries: Sequence[Entry], now_ms: int, partitions: Sequence[int] | None = None) -> None:
        """Write entries to their destinations; their keys decide the partitions, or `partitions` where that is not -1."""
        for e, partition in zip(entries, repeat(_ANY_PARTITION) if partitions is None else partitions, strict=False):
            self._append_entry(e, partition, _stamp_ms(e, now_ms))

    def _append_entry(self, e: Entry, partition: int, stamp_ms: int) -> None:
        # What a fenced producer sends reaches no log, and it learns of that when it commits.
        transaction = self._current()
        if transaction is self._log.under_way.get(self._id):
            self._log.append(transaction, e, partition, stamp_ms, compressed=self._compresses)

    def rehearse_entries(
        self, entries: Iterable[Entry], now_ms: int, partitions: Sequence[int] | None = None,
        anchor: object = None,  # noqa: ARG002
    ) -> dict[int, KafkaError]:
        """Say by position which entries would be refused and why; nothing is written."""
        sent = zip(entries, repeat(_ANY_PARTITION) if partitions is None else partitions, strict=False)
        records = [RehearsedRecord(n, *each) for n, each in enumerate(sent)]
        limits = BatchSizeLimits(compressed=self._compresses)
        return find_refusals(records, lambda some: self._try_records(some, now_ms), limits, Deadline(_REHEARSE_S))

    def _try_records(self, records: list[RehearsedRecord], now_ms: int) -> RehearsalResult:
        if any(record.entry.destination in self._log.forbidden for record in records):
            return RehearsalResult(False, {}, forbidden())
        refused = {n: error for n, e, at in records if (error := self._find_entry_error(e, at, now_ms)) is not None}
        if not refused:
            return RehearsalResult(True, {})
        first = next(record for record in records if record.position in refused)
        error = refused[first.position]
        if error.code() not in OF_CONTENT:
            return RehearsalResult(False, {first.position: error})
        # As with a real client: of one batch each is named that is to blame, or where that is one alone, the whole batch.
        batch = self._batch_with(first, records)
        to_blame = {n: refused[n] for n in batch if n in refused}
        if len(to_blame) > 1 or len(batch) == 1:
            return RehearsalResult(False, to_blame)
        return RehearsalResult(False, {}, None, [Suspects(frozenset(batch), error)])

    def _find_entry_error(self, e: Entry, partition: int, now_ms: int) -> KafkaError | None:
        return self._log.find_record_error(e, partition, _stamp_ms(e, now_ms), compressed=self._compresses)

    def _batch_with(self, first: RehearsedRecord, records: list[RehearsedRecord]) -> list[int]:
        partition_of, topic = self._log.partition_of, first.entry.destination
        place = partition_of(first.entry, first.partition)
        return [n for n, e, at in records if e.destination == topic and partition_of(e, at) is place]

    def await_arrival(self, within_s: float) -> bool:  # noqa: ARG002
        if not self._is_stuck():
            return True
        self._waits += 1
        if self._waits > _WAITS_MAX:
            self._broken = CommitInDoubt("timed out")
            raise self._broken
        return False

    def is_silent(self) -> bool:
        return self._is_stuck()

    def _is_stuck(self) -> bool:
        return self._under_way is not None and self._epoch == self._log.epochs.get(self._id) and (
            self._under_way is not self._log.under_way.get(self._id)
        )

    def read_to(self, positions: Sequence[TopicPartition], member: object) -> None:
        """Make positions part of the transaction; `member` is a `Membership`, or just the name of a consumer group."""
        transaction = self._own()
        if isinstance(member, Membership) and (refused := self._log.ensure_group(member.group).find_membership_error(member)):
            self.abort()
            raise TransactionAborted(refused)
        group = member.group if isinstance(member, Membership) else str(member)
        offsets = {(p.topic, p.partition): read_committed_offset(p) for p in positions}
        self._log.send_positions(transaction, {(group, *place): offset for place, offset in offsets.items()})

    def commit(self) -> None:
        """Make the transaction visible, or fail as `MemoryLog.faults` says."""
        transaction = self._own()
        self._end_or_doubt()
        fault = self._log.faults.pop(0) if self._log.faults else None
        if transaction.refused or fault is Fault.ABORTED:
            self.abort()
            raise TransactionAborted(str(transaction.refused or fault))
        if fault is not Fault.DOUBT_OPEN:
            self._log.decide(transaction, committed=True)
        if fault in (None, Fault.DOUBT_COMMITTED):
            self._log.complete_transaction(self._id)
        self._under_way = None
        if fault in (Fault.DOUBT_COMMITTED, Fault.DOUBT_OPEN, Fault.DOUBT_LATE):
            self._broken = CommitInDoubt(fault.value)
            raise self._broken

    def abort(self) -> None:
        self._own()
        self._end_or_doubt()
        self._log.end_transaction(self._id, committed=False)
        self._under_way = None

    def open_compressing(self) -> MemoryTransactionalProducer:
        other = MemoryTransactionalProducer(self._log, f"{self._id}-gzip", compresses=True)
        other.open()
        return other

    def close(self) -> None:
        """Let go; a transaction that is under way stays open until the id is opened again."""
        self._broken, self._under_way = CommitInDoubt("this producer is closed"), None

    def _end_or_doubt(self) -> None:
        if self._is_stuck():
            self._broken, self._under_way = CommitInDoubt("CONCURRENT_TRANSACTIONS"), None
            raise self._broken

    def _current(self) -> Transaction:
        if self._under_way is None:
            raise self._broken or CommitInDoubt("no transaction is under way")
        return self._under_way

    def _own(self) -> Transaction:
        if self._epoch != self._log.epochs.get(self._id):
            self._broken, self._under_way = ProducerFenced(f"{self._id} was opened by another producer"), None
        return self._current()


def _stamp_ms(e: Entry, now_ms: int) -> int:
    return now_ms if e.timestamp_ms is None else min(e.timestamp_ms, now_ms)
