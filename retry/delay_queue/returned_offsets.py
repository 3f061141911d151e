"""Which parked letters have been returned: bitmaps of offsets, as changelog records of shard 0.

Key: 0x12 | topic, 16 bytes | partition, 4 bytes big-endian | block, 4 bytes big-endian, of 8,192 offsets each
Value: version, 1 byte | one bit for each offset of the block, the lowest bit of the first byte first

A topic is named by a hash of its id, so that one made anew begins empty. One shard has all, since a changelog may grow.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import NamedTuple

from retry import format_versions
from retry.errors import EntryNewer, EntryUnreadable

RETURNED = b"\x12"
SHARD = 0
TOPIC_BYTES, OFFSETS_A_BLOCK = 16, 8_192
_BLOCK = struct.Struct(">II")
_PLACE = struct.Struct(">IQ")
BLOCK_BYTES = 1 + TOPIC_BYTES + _BLOCK.size
PLACE_BYTES = 1 + TOPIC_BYTES + _PLACE.size
_VALUE_BYTES = 1 + OFFSETS_A_BLOCK // 8
_EMPTY = bytes([format_versions.ACTION.writes]) + bytes(OFFSETS_A_BLOCK // 8)


class ParkedPlace(NamedTuple):
    """The place of a letter that rests: a hash of its topic's id, the partition and the offset."""

    topic: bytes
    partition: int
    offset: int

    def encode(self) -> bytes:
        return RETURNED + self.topic + _PLACE.pack(self.partition, self.offset)

    def block(self) -> bytes:
        return RETURNED + self.topic + _BLOCK.pack(self.partition, self.offset // OFFSETS_A_BLOCK)


def hash_topic_id(topic_id: str) -> bytes:
    """Hash the id that the cluster has given to a topic, into 16 bytes."""
    return hashlib.blake2b(topic_id.encode(), digest_size=TOPIC_BYTES).digest()


def is_place(member_key: bytes) -> bool:
    """Whether a member is a letter that rests, and not one that waits."""
    return member_key[:1] == RETURNED


def decode_place(member_key: bytes) -> ParkedPlace:
    """Decode the place of a letter that rests from the key of a member; raises EntryUnreadable where that is none."""
    if len(member_key) != PLACE_BYTES or not is_place(member_key):
        raise EntryUnreadable(f"no letter rests at {member_key.hex()}")
    return ParkedPlace(member_key[1 : 1 + TOPIC_BYTES], *_PLACE.unpack(member_key[1 + TOPIC_BYTES :]))


def describe_place(member_key: bytes, parking: Mapping[str, str]) -> str:
    """Format the place of a member as `topic/partition/offset`; `parking` has the names of topics by their hashes."""
    where = decode_place(member_key)
    return f"{parking.get(where.topic.hex(), where.topic.hex())}/{where.partition}/{where.offset}"


def check(bitmap: bytes) -> None:
    """Look at a bitmap's version and length; raises EntryNewer where a newer one wrote it, EntryUnreadable where none did."""
    if bitmap:
        format_versions.ACTION.refuse_newer(bitmap[0], EntryNewer)
    if len(bitmap) != _VALUE_BYTES:
        raise EntryUnreadable(f"{len(bitmap)} bytes are no bitmap of returned letters")


def is_offset_returned(bitmap: bytes | None, offset: int) -> bool:
    """Whether a bitmap says that the letter at this offset was returned; None is an empty one."""
    at = offset % OFFSETS_A_BLOCK
    return bitmap is not None and bool(bitmap[1 + at // 8] >> at % 8 & 1)


def mark_offset(bitmap: bytes | None, offset: int) -> bytes:
    at, anew = offset % OFFSETS_A_BLOCK, bytearray(_EMPTY if bitmap is None else bitmap)
    anew[1 + at // 8] |= 1 << at % 8
    return bytes(anew)
