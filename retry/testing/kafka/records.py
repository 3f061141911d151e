"""Records and ends of partitions as readers of a log in memory get them, and the hash by which keys choose partitions."""

from __future__ import annotations

import struct

from confluent_kafka import KafkaError

from retry.delay_queue.envelopes import HEADERS_MAX, Entry
from retry.record import CREATE_TIME, Headers, Record

_WORD, _MIX = 0xFFFFFFFF, 0x5BD1E995
_END = KafkaError(KafkaError._PARTITION_EOF)


class MemoryRecord(Record):
    """One record; it reads like a `confluent_kafka.Message`, so intake and fold take it as one."""

    def __init__(self, entry: Entry, partition: int, offset: int, stamp_ms: int, leader_epoch: int = 0) -> None:
        super().__init__(
            (entry.destination, partition, offset), entry.key, entry.value, entry.headers, (CREATE_TIME, stamp_ms)
        )
        self.entry, self._leader_epoch = entry, leader_epoch

    def leader_epoch(self) -> int | None:
        """Under which leader it was written."""
        return self._leader_epoch

    def headers(self) -> Headers | None:  # type: ignore[override]
        """In their order; None where there are none, or more than a client can read."""
        return None if self.has_too_many_headers() else self.entry.headers or None

    def has_too_many_headers(self) -> bool:
        """Whether there are more headers than a client can read."""
        return len(self.entry.headers) > HEADERS_MAX

    def error(self) -> KafkaError | None:
        """None: it is no error."""
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
        """The offset at which reading goes on."""
        return self._offset

    def error(self) -> KafkaError:
        """The error by which clients report the end of a partition."""
        return _END

    def __len__(self) -> int:
        return 0


def murmur2(key: bytes) -> int:
    """The hash by which Java clients choose a partition, as an unsigned 32-bit number."""
    mixed, words_end = 0x9747B28C ^ len(key), len(key) & ~3
    for (word,) in struct.iter_unpack("<I", key[:words_end]):
        scaled = word * _MIX & _WORD
        mixed = (mixed * _MIX & _WORD) ^ ((scaled ^ scaled >> 24) * _MIX & _WORD)
    if rest := key[words_end:]:
        mixed = (mixed ^ int.from_bytes(rest, "little")) * _MIX & _WORD
    return (mixed := (mixed ^ mixed >> 13) * _MIX & _WORD) ^ mixed >> 15
