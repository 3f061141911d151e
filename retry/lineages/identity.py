"""Letters → 64-bit numbers. The same on every worker and in every version: they are compared across both."""

from __future__ import annotations

import re
from hashlib import blake2b

from retry.failure import Failure

_BYTES = 8
_TEXT = re.compile(rb"[0-9a-f]{16}")
# What no length is: a null key is not an empty one.
_NULL = -1


def fingerprint(topic: str, key: bytes | None, value: bytes | None) -> int:
    """What a letter still is when it comes back without its headers.

    Args:
      topic: the dead-letter topic. A letter that comes back to another one is another letter.

    >>> fingerprint("orders.DLT", None, b"") == fingerprint("orders.DLT", b"", None)
    False
    """
    lengths = b"%b\0%d\0%d\0" % (
        topic.encode(), _NULL if key is None else len(key), _NULL if value is None else len(value)
    )  # fmt: skip
    digest = blake2b(lengths, digest_size=_BYTES)
    if key:
        digest.update(key)
    if value:
        digest.update(value)
    return int.from_bytes(digest.digest(), "big")


def lineage_of(cluster_id: str, topic: str, partition: int, offset: int, group: str | None = None) -> int:
    """The lineage of the record at these coordinates, as far as `group` failed to process it."""
    named = "\0".join((cluster_id, topic, str(partition), str(offset), *(() if group is None else (group,))))
    return _number(named.encode())


def identity(cluster_id: str, failure: Failure, topic: str, partition: int, offset: int) -> int:
    """The lineage of a letter that brings none: of the record that failed, where the letter says which; else its own.

    Letters about one record and one group are one lineage, however many are written.

    Args:
      topic, partition, offset: where the letter itself lies.
    """
    origin, at, offset_there = failure.origin_topic, failure.origin_partition, failure.origin_offset
    if origin is None or at is None or offset_there is None:
        return lineage_of(cluster_id, topic, partition, offset)
    return lineage_of(cluster_id, origin, at, offset_there, failure.consumer_group)


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
    return int.from_bytes(blake2b(data, digest_size=_BYTES).digest(), "big")
