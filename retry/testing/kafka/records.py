"""What readers of a log in memory are given, and how keys choose partitions."""

from __future__ import annotations

import struct

from confluent_kafka import KafkaError

from retry.delay_queue.entry import Entry
from retry.record import Headers

_CREATE_TIME = 1
_WORD, _MIX = 0xFFFFFFFF, 0x5BD1E995
_END = KafkaError(KafkaError._PARTITION_EOF)


class MemoryRecord:
    """One record; it reads like a `confluent_kafka.Message`, so intake and fold take it as one."""

    def __init__(self, entry: Entry, partition: int, offset: int, stamp_ms: int) -> None:
        self._entry, self._partition, self._offset, self._stamp_ms = entry, partition, offset, stamp_ms

    def topic(self) -> str:
        """Where it lies."""
        return self._entry.destination

    def partition(self) -> int:
        """Where it lies."""
        return self._partition

    def offset(self) -> int:
        """Where it lies."""
        return self._offset

    def key(self) -> bytes | None:
        """None is a null, not an empty key."""
        return self._entry.key

    def value(self) -> bytes | None:
        """None is a null, not an empty value."""
        return self._entry.value

    def headers(self) -> Headers | None:
        """In their order; None where there are none."""
        return self._entry.headers or None

    def timestamp(self) -> tuple[int, int]:
        """Its kind, and milliseconds since 1970."""
        return _CREATE_TIME, self._stamp_ms

    def error(self) -> KafkaError | None:
        """None: a record is none."""
        return None

    def __len__(self) -> int:
        return len(self._entry.value or b"")


class MemoryEnd:
    """Says that a reader has come to the end of what it may read of a partition."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self._place, self._offset = (topic, partition), offset

    def topic(self) -> str:
        """Which partition."""
        return self._place[0]

    def partition(self) -> int:
        """Which partition."""
        return self._place[1]

    def offset(self) -> int:
        """Where reading goes on."""
        return self._offset

    def error(self) -> KafkaError:
        """That it is an end."""
        return _END

    def __len__(self) -> int:
        return 0


def murmur2(key: bytes) -> int:
    """The hash by which Java clients choose a partition, as an unsigned 32-bit number."""
    mixed, whole = 0x9747B28C ^ len(key), len(key) & ~3
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        scaled = word * _MIX & _WORD
        mixed = (mixed * _MIX & _WORD) ^ ((scaled ^ scaled >> 24) * _MIX & _WORD)
    if rest := key[whole:]:
        mixed = (mixed ^ int.from_bytes(rest, "little")) * _MIX & _WORD
    return (mixed := (mixed ^ mixed >> 13) * _MIX & _WORD) ^ mixed >> 15
