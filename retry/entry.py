"""An entry: something to be delivered at a due time. Its key and its envelope, byte for byte.

Key, so that byte order is delivery order and no two letters ever share one:

    0x01 | due_at_ms + 2**63, 8 bytes big-endian | source topic, UTF-8 | 0x00 | partition, 4 bytes | offset, 8 bytes

Envelope: a MessagePack array whose first element is the format's version. It is written once, at intake, and copied
as bytes from the changelog to the table; only the sweep decodes it.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

import msgspec

from retry.errors import EntryUnreadable

Header = tuple[str, bytes | None]
Headers = list[Header]

_BIAS = 1 << 63
_HEAD = struct.Struct(">BQ")
_TAIL = struct.Struct(">IQ")
_ENTRY_KIND = 1
DUE_MS_MAX = _BIAS - 1


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=1):
    """What is sent when the time comes, complete: the sweep adds nothing and asks nobody.

    Attributes:
      destination: the topic.
      key, value, headers: as they will be sent; `None` is a null, not an empty value.
      timestamp_ms: the letter's own timestamp, kept; `None` where it had none.
      team: whose letter it is, for metrics.
    """

    destination: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None
    team: str


class Source(NamedTuple):
    """Where an entry came from and when it is due: what its key says."""

    due_at_ms: int
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.due_at_ms}/{self.topic}/{self.partition}/{self.offset}"


encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode


def decode(envelope: bytes) -> Entry:
    """The entry in an envelope.

    Raises:
      EntryUnreadable: not an envelope of a version that this one knows. Nothing may be sent on a guess.
    """
    try:
        return _decode(envelope)
    except msgspec.MsgspecError as error:
        raise EntryUnreadable(f"{len(envelope)} bytes that are no entry of version 1: {error}") from error


@lru_cache(10_000)
def key_stem(topic: str, partition: int) -> bytes:
    """The part of the key that all letters of one partition share; `key` takes it ready-made."""
    return topic.encode() + b"\0" + partition.to_bytes(4, "big")


def key(due_at_ms: int, stem: bytes, offset: int) -> bytes:
    """The key of the entry made from the letter at `offset`. `due_at_ms` is clamped to 63 bits."""
    return due_bound(due_at_ms) + stem + offset.to_bytes(8, "big")


def due_bound(due_at_ms: int) -> bytes:
    """The smallest possible key of an entry due at `due_at_ms`: for the ends of a scan."""
    try:
        return _HEAD.pack(_ENTRY_KIND, due_at_ms + _BIAS)
    except struct.error:
        return _HEAD.pack(_ENTRY_KIND, max(-_BIAS, min(due_at_ms, DUE_MS_MAX)) + _BIAS)


def postponed(entry_key: bytes, due_at_ms: int) -> bytes:
    """The key of the same entry at another due time."""
    return due_bound(due_at_ms) + entry_key[_HEAD.size :]


def due_at_ms(entry_key: bytes) -> int:
    """When the entry of this key is due, milliseconds since 1970."""
    return int.from_bytes(entry_key[1:9], "big") - _BIAS


def source(entry_key: bytes) -> Source:
    """What a key says.

    Raises:
      EntryUnreadable: not the key of an entry.
    """
    try:
        kind, biased = _HEAD.unpack_from(entry_key)
        partition, offset = _TAIL.unpack(entry_key[-_TAIL.size :])
        topic, end = entry_key[_HEAD.size : -_TAIL.size - 1].decode(), entry_key[-_TAIL.size - 1]
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise EntryUnreadable(f"no entry has the key {entry_key.hex()}") from error
    if kind != _ENTRY_KIND or not topic or end != 0:
        raise EntryUnreadable(f"no entry has the key {entry_key.hex()}")
    return Source(biased - _BIAS, topic, partition, offset)


def key_from_text(text: str) -> bytes:
    """The key that `str(source(key))` came from: `<due_at_ms>/<topic>/<partition>/<offset>`.

    Raises:
      ValueError: not of that form.
    """
    due, topic, partition, offset = text.split("/")
    try:
        return key(int(due), key_stem(topic, int(partition)), int(offset))
    except OverflowError as error:
        raise ValueError(f"{text}: {error}") from error


FIRST_KEY = due_bound(-_BIAS)
END_KEY = bytes([_ENTRY_KIND + 1])
