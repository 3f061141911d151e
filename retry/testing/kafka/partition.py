"""One partition in memory: records and ends of transactions, each at its offset."""

from __future__ import annotations

import struct
from bisect import bisect_left
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from retry.delay_queue.envelopes import HEADERS_MAX, Entry
from retry.kafka.interface import CommittedOffset, StartingPoint
from retry.record import CREATE_TIME, Headers, Record

# Records and ends of partitions as readers of a log in memory get them, and the hash by which keys choose partitions.

_WORD, _MIX = 0xFFFFFFFF, 0x5BD1E995
_END = KafkaError(KafkaError._PARTITION_EOF)


class MemoryRecord(Record):
    """One record; it reads like a `confluent_kafka.Message`, so intake and fold take it as one."""

    def __init__(self, entry: Entry, partition: int, offset: int, stamp_ms: int, leader_epoch: int = 0) -> None:
        super().__init__((entry.destination, partition, offset), entry.key, entry.value, entry.headers, (CREATE_TIME, stamp_ms))
        self.entry, self._leader_epoch = entry, leader_epoch

    def leader_epoch(self) -> int | None:
        return self._leader_epoch

    def headers(self) -> Headers | None:  # type: ignore[override]
        """Return the headers in their order; None where there are none, or more than a client can read."""
        return None if self.has_too_many_headers() else self.entry.headers or None

    def has_too_many_headers(self) -> bool:
        return len(self.entry.headers) > HEADERS_MAX

    def error(self) -> KafkaError | None:
        return None

    def __len__(self) -> int:
        return len(self.entry.value or b"")


class MemoryEnd:
    """Says that a reader has come to the end of what it may read of a partition."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self._place, self._offset = (topic, partition), offset

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError:
        return _END

    def __len__(self) -> int:
        return 0


def murmur2(key: bytes) -> int:
    """Compute the hash by which Java clients choose a partition, as an unsigned 32-bit number."""
    mixed, words_end = 0x9747B28C ^ len(key), len(key) & ~3
    for (word,) in struct.iter_unpack("<I", key[:words_end]):
        scaled = word * _MIX & _WORD
        mixed = (mixed * _MIX & _WORD) ^ ((scaled ^ scaled >> 24) * _MIX & _WORD)
    if rest := key[words_end:]:
        mixed = (mixed ^ int.from_bytes(rest, "little")) * _MIX & _WORD
    return (mixed := (mixed ^ mixed >> 13) * _MIX & _WORD) ^ mixed >> 15


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction of a producer, or one record that was written outside of transactions.

    Attributes:
      committed: None until it is decided. What is decided is seen, partition by partition, once its end is written there.
      touched: partitions where its end is still to be written.
      positions: (group, topic, partition) → offset, to be committed with it.
      sent: the number of the call that sent each of these positions, counted over all transactions.
    """

    id: str = ""
    begun_ms: int = 0
    committed: bool | None = None
    records: list[MemoryRecord] = field(default_factory=list)
    touched: dict[MemoryPartition, None] = field(default_factory=dict)
    positions: dict[tuple[str, str, int], CommittedOffset] = field(default_factory=dict)
    sent: dict[tuple[str, str, int], int] = field(default_factory=dict)
    refused: KafkaError | None = None


@dataclass(slots=True, eq=False)
class _Slot:
    """A record, or where there is none the end of a transaction; `gone_at_ms` is set once a null was met by compaction."""

    offset: int
    transaction: Transaction
    record: MemoryRecord | None
    gone_at_ms: int | None = None


class MemoryPartition:
    """Records in their order.

    Attributes:
      end: offset behind the last, undecided ones included.
      leader_epoch: grows whenever another broker leads it.
    """

    def __init__(self, topic: str, number: int) -> None:
        self.topic, self.number = topic, number
        self.start = self.end = self.leader_epoch = 0
        self._slots: list[_Slot] = []
        self._undecided: dict[Transaction, int] = {}

    @property
    def stable(self) -> int:
        """How far read_committed readers may read: to the first record of a transaction that has no end yet."""
        return min(self._undecided.values()) if self._undecided else self.end

    def append(self, transaction: Transaction, entry: Entry, stamp_ms: int) -> MemoryRecord:
        record = MemoryRecord(entry, self.number, self.end, stamp_ms, self.leader_epoch)
        self._slots.append(_Slot(self.end, transaction, record))
        if transaction.id:
            self._undecided.setdefault(transaction, self.end)
            transaction.touched[self] = None
        self.end += 1
        return record

    def write_end_marker(self, transaction: Transaction) -> None:
        if self._undecided.pop(transaction, None) is not None:
            self._slots.append(_Slot(self.end, transaction, None))
            self.end += 1

    def read(self, offset: int, records_max: int) -> tuple[list[MemoryRecord], int]:
        """Read committed records from `offset` on; return them and the offset at which to go on."""
        stable, records = self.stable, list[MemoryRecord]()
        if offset >= stable:
            return records, offset
        for at in range(self._find_position(offset), len(self._slots)):
            slot = self._slots[at]
            if slot.offset >= stable:
                break
            if slot.record is not None and slot.transaction.committed:
                if len(records) == records_max:
                    return records, slot.offset
                records.append(slot.record)
        return records, stable

    def compact(self, before: int, now_ms: int, retention_ms: int) -> None:
        """Keep the last committed record of each key; of nulls those that were met less than `retention_ms` ago.

        From the offset `before` on all stays, and what readers may not read yet, and the last record.
        """
        before = min(before, self.stable, self._slots[-1].offset if self._slots else 0)
        seen = [s for s in self._slots if s.record is not None and s.transaction.committed and s.offset < self.stable]
        last = {slot.record.key(): slot.offset for slot in seen if slot.record is not None}
        self._slots = [s for s in self._slots if s.offset >= before or _stays(s, last, now_ms, retention_ms)]

    def cut(self, offset: int) -> None:
        self.start = max(self.start, min(offset, self.stable))
        del self._slots[: self._find_position(self.start)]

    def lose_end(self, offset: int) -> None:
        """Forget committed records from an offset on, as where a broker leads that did not have them."""
        del self._slots[self._find_position(offset) :]
        self.end, self.leader_epoch = min(self.end, offset), self.leader_epoch + 1

    def seek(self, start: StartingPoint) -> int:
        """Find the offset at which a reader begins that knows the leader epoch of the record before it."""
        epochs = [(slot.offset, slot.record.leader_epoch() or 0) for slot in self._slots if slot.record is not None]
        later = [offset for offset, epoch in epochs if epoch > start.leader_epoch >= 0]
        return min(start.offset or 0, *later, self.end if start.leader_epoch >= 0 else start.offset or 0)

    def rewrite(self) -> None:
        """Begin anew with what compaction would keep, at offsets from 0: what a copy of the topic looks like."""
        live = {r.key(): r for r in self.read(0, self.end)[0]}
        self.start = self.end = 0
        self._slots, self._undecided = [], {}
        for record in sorted((r for r in live.values() if r.value() is not None), key=MemoryRecord.offset):
            self.append(Transaction(committed=True), record.entry, record.timestamp()[1])

    def _find_position(self, offset: int) -> int:
        return bisect_left(self._slots, offset, key=lambda slot: slot.offset)


def _stays(slot: _Slot, last: dict[bytes | None, int], now_ms: int, retention_ms: int) -> bool:
    if slot.record is None or not slot.transaction.committed or last[slot.record.key()] != slot.offset:
        return False
    if slot.record.value() is not None:
        return True
    if slot.gone_at_ms is None:
        slot.gone_at_ms = now_ms + retention_ms
    return now_ms < slot.gone_at_ms
