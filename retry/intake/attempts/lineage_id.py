"""Letters → 64-bit numbers. The same on every worker and in every version: they are compared across both."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from xxhash import xxh3_64_intdigest

from retry.dead_letters.failure import Failure

_TEXT = re.compile(rb"[0-9a-f]{16}")
# Where a hash begins: so a null is not an empty one, and a key is not a value.
_KEY, _NO_KEY, _NO_VALUE = 0x6B65, 0x6E6F6B, 0x6E6F76
# The last bit says what a lineage was made of.
_OF_PAYLOAD = 1


def payload(key: bytes | None, value: bytes | None) -> int:
    """What a record still is when it comes back without its headers.

    >>> payload(None, b"") == payload(b"", None)
    False
    """
    seed = _NO_KEY if key is None else xxh3_64_intdigest(key, _KEY)
    return seed ^ _NO_VALUE if value is None else xxh3_64_intdigest(value, seed)


def payloads(keys: Iterable[bytes | None], values: Iterable[bytes | None]) -> list[int]:
    """The same of many records; most have both, and take no call of their own."""
    return [
        xxh3_64_intdigest(value, xxh3_64_intdigest(key, _KEY)) if key is not None and value is not None else payload(key, value)
        for key, value in zip(keys, values, strict=True)
    ]


def fingerprint(topic: str, of_payload: int) -> int:
    """The same of a letter: one that comes back to another dead-letter topic is another letter."""
    return of_payload ^ _of_topic(topic)


def fingerprints(topic: str, of_payloads: Iterable[int]) -> list[int]:
    """The same of many letters of one topic."""
    of_topic = _of_topic(topic)
    return [of_payload ^ of_topic for of_payload in of_payloads]


@lru_cache(10_000)
def _of_topic(topic: str) -> int:
    return _number(topic.encode())


def lineage_of(cluster_id: str, topic: str, partition: int, offset: int, group: str | None = None) -> int:
    """The lineage of the record at these coordinates, as far as `group` failed to process it."""
    return lineages_of(cluster_id, topic, partition, group)(offset)


def lineages_of(cluster_id: str, topic: str, partition: int, group: str | None = None) -> Callable[[int], int]:
    """Offset → lineage, of the records of one partition.

    >>> lineages_of("cluster", "orders", 3, "billing")(7) == lineage_of("cluster", "orders", 3, 7, "billing")
    True
    """
    before = f"{cluster_id}\0{topic}\0{partition}\0".encode()
    after = b"" if group is None else f"\0{group}".encode()
    return lambda offset: xxh3_64_intdigest(b"%b%d%b" % (before, offset, after)) & ~_OF_PAYLOAD


def identity(cluster_id: str, failure: Failure, of_payload: int) -> int:
    """The lineage of a letter that brings none: of the record that failed, where the letter says which; else of its payload.

    Letters about one record and one group are one lineage, however many are written. So are letters of equal key and value
    that say nothing; they are counted apart all the same, see `Lineages.is_out`.
    """
    topic, partition, offset = failure.origin_topic, failure.origin_partition, failure.origin_offset
    if topic is None or partition is None or offset is None:
        return of_payload | _OF_PAYLOAD
    return lineage_of(cluster_id, topic, partition, offset, failure.consumer_group)


def silent(of_payloads: Iterable[int]) -> list[int]:
    """Lineages of letters that say nothing.

    >>> silent([7, 8]) == [identity("c", Failure(), 7), identity("c", Failure(), 8)]
    True
    """
    return [of_payload | _OF_PAYLOAD for of_payload in of_payloads]


def counted_all(lineage_ids: Iterable[int], topic: str) -> list[int]:
    """`counted`, of many lineages."""
    of_topic = _of_topic(topic) & ~_OF_PAYLOAD
    return [lineage_id ^ of_topic if lineage_id & _OF_PAYLOAD else lineage_id for lineage_id in lineage_ids]


def counted(lineage_id: int, topic: str) -> int:
    """The number under which the sends of a lineage are counted; of that number, the lineage.

    Two consumer groups may dead-letter the same record. Where their letters say nothing they are one lineage, and only
    their topics tell whose retries are whose.
    """
    return lineage_id ^ _of_topic(topic) & ~_OF_PAYLOAD if lineage_id & _OF_PAYLOAD else lineage_id


def to_header(lineage_id: int) -> bytes:
    """The text of a lineage, as `retry-id` has it: 16 lower-case hexadecimal digits.

    >>> to_header(0xDEAD)
    b'000000000000dead'
    """
    return b"%016x" % lineage_id


def from_header(text: bytes) -> int:
    """The lineage that a `retry-id` names; of what `to_header` did not write, the hash.

    >>> from_header(b"000000000000dead") == 0xDEAD
    True
    """
    return int(text, 16) if _TEXT.fullmatch(text) else _number(text)


def _number(data: bytes) -> int:
    return xxh3_64_intdigest(data)
