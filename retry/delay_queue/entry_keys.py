"""The key of an entry, byte for byte: its lane, when it is due, and which letter or name it is of.

Key, so that within a lane byte order is delivery order, and no two letters ever share one:

    lane, 9 bytes | due_at_ms + 2**63, 8 bytes big-endian | [order, 8 bytes] | source topic, UTF-8 | 0x00
    | partition, 4 bytes | incarnation, 2 bytes | offset, 6 bytes

Of the letters of a topic the incarnation is 0. Where the topic was deleted and made again while the service knew it, offsets
begin anew, and the incarnation is the next number: a letter never takes the place of an earlier one with its offset, and is
behind it in a queue.

A lane is what can be held up as one: entries of one team, from one dead-letter topic, for one destination. Its first byte
is the kind: 0x01, or 0x02 where entries of one record key must keep their order; those have `order`, a hash of that key.

A named entry (0x03) can be replaced and cancelled. In the place of `order` it has

    name, 16 bytes | version, 8 bytes big-endian

Of the entries of one name the one of the greatest version counts, of one version a cancel, else that of the latest due time.
All others are superseded. A cancel is a key in the lane of eight zero bytes; its due time says until when it is remembered.
See `retry.delay_queue.table.named_entries`.

0x04 is the kind of blocks, of which each stands for many plain entries; see `retry.delay_queue.blocks`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from retry.errors import EntryUnreadable

# Whose entries a lane holds.

class Lane(NamedTuple):
    """The team, source topic and destination that all entries of a lane have in common."""

    team: str
    topic: str
    destination: str

    @property
    def calls(self) -> bool:
        return "://" in self.destination


_BIAS = 1 << 63
_DUE = struct.Struct(">Q")
_TAIL = struct.Struct(">IQ")
PLAIN, ORDERED, NAMED, BLOCK = 1, 2, 3, 4
LANE_BYTES = 9
NAME_BYTES, VERSION_BYTES = 16, 8
# Versions of what comes from topics begin with the milliseconds at which it was written; see `retry.intake.entry_source`.
VERSIONS_OF_MS = 1 << 20
# 2001-09-09: what is less is no such version.
_WRITTEN_MS_MIN = 1_000_000_000_000
_DUE_END = LANE_BYTES + _DUE.size
_ORDER_END = _DUE_END + 8
_NAME_END = _DUE_END + NAME_BYTES
_VERSION_END = _NAME_END + VERSION_BYTES
# Where what names the letter begins, by kind.
_LETTER_AT = {PLAIN: _DUE_END, ORDERED: _ORDER_END, NAMED: _VERSION_END}
DUE_MS_MAX = _BIAS - 1
_OFFSET_BITS = 48
_PARTITION_MAX, OFFSET_MAX, _NUMBER_MAX = (1 << 31) - 1, (1 << _OFFSET_BITS) - 1, (1 << 63) - 1
INCARNATION_MAX = _NUMBER_MAX >> _OFFSET_BITS
_PLAIN_LANES, _BLOCKS = bytes([PLAIN]), bytes([BLOCK])
# Entries that nobody tells apart: of tests, and of users who have no teams.
COMMON = bytes([PLAIN]) + bytes(8)
# Where nulls of dead-letter topics lie until what they cancel is parked; see `retry.delivery.cancel`.
NULLS = bytes([PLAIN]) + b"\xff" * 7 + b"\xfe"
# Where entries lie that cannot be opened, by their kinds; see `retry.delivery.hold`.
HELD = {kind: bytes([kind]) + b"\xff" * 7 + b"\xfd" for kind in (PLAIN, ORDERED, NAMED)}
HELD_LANES = frozenset(HELD.values())
# Nothing is delivered from these.
UNDELIVERED = HELD_LANES | {NULLS}
# Cancels lie here: they end what they are greater than, and nothing is ever delivered from it.
CANCEL = bytes([NAMED]) + bytes(8)


class Source(NamedTuple):
    """The due time of an entry, and the coordinates of the record that it came from, as its key says them."""

    due_at_ms: int
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.due_at_ms}/{self.letter}"

    @property
    def letter(self) -> str:
        """The record itself, as `topic/partition/offset`."""
        return f"{self.topic}/{self.partition}/{self.offset}"


@lru_cache(100_000)
def lane(team: str, topic: str, destination: str, ordered: bool = False) -> bytes:
    names = "\0".join((team, topic, destination)).encode()
    return bytes([ORDERED if ordered else PLAIN]) + hashlib.blake2b(names, digest_size=8).digest()


@lru_cache(100_000)
def build_named_lane(team: str, topic: str, destination: str) -> bytes:
    """Build the lane of a team's named entries from one topic to a destination: a topic, or the origin of a URL to call."""
    return bytes([NAMED]) + lane(team, topic, destination)[1:]


def hash_name(source: str, topic: str, given: bytes) -> bytes:
    """Hash the name given to an entry of a topic, into 16 bytes; each kind of entry source has names of its own."""
    return hashlib.blake2b(given, digest_size=NAME_BYTES, key=_namespace(source, topic)).digest()


@lru_cache(10_000)
def _namespace(source: str, topic: str) -> bytes:
    return hashlib.sha256(f"{source}\0{topic}".encode()).digest()


def find_shard(name: bytes, shards: int) -> int:
    """Return the shard in which all entries of a name wait."""
    return crc32(name) % shards


def build_named_key(due_at_ms: int, name: bytes, version: int, stem: bytes, offset: int, lane: bytes) -> bytes:
    """Build the key of a named entry; of its versions, 0 to 2**64 - 1, the greatest counts, see `retry.intake.entry_source`."""
    return build_due_bound(due_at_ms, lane) + name + version.to_bytes(VERSION_BYTES, "big") + stem + offset.to_bytes(8, "big")


def hash_record_key(team: str, topic: str, record_key: bytes) -> bytes:
    """Hash a record key of a team and topic to the 8 bytes of its queue, which go before the stem of an ordered key."""
    return hashlib.blake2b(record_key, digest_size=8, key=hashlib.sha256(f"{team}\0{topic}".encode()).digest()).digest()


@lru_cache(10_000)
def build_key_stem(topic: str, partition: int) -> bytes:
    """Build the part of a key that all letters of a partition share; `build_key` takes it ready-made as `stem`."""
    return topic.encode() + b"\0" + partition.to_bytes(4, "big")


def number_letter(offset: int, incarnation: int) -> int:
    """Number a letter among all of its partition, those of topics of before included; takes the place of its offset in a key."""
    return incarnation << _OFFSET_BITS | offset


def read_letter_number(entry_key: bytes) -> int:
    """Read from a key the number of its letter among all letters of the partition."""
    return int.from_bytes(entry_key[-8:], "big")


def read_incarnation(entry_key: bytes) -> int:
    """Read from a key how often its topic had been deleted and made again when the letter was taken in."""
    return read_letter_number(entry_key) >> _OFFSET_BITS


def build_key(due_at_ms: int, stem: bytes, offset: int, lane: bytes = COMMON) -> bytes:
    """Build the key of the entry made from the letter at `offset`; `due_at_ms` is clamped to 63 bits."""
    return build_due_bound(due_at_ms, lane) + stem + offset.to_bytes(8, "big")


def build_keys(stem: bytes, lane: bytes) -> Callable[[Iterable[int], Iterable[int]], list[bytes]]:
    """Make a function (due times, offsets) → `build_key` of each, for letters of one partition and lane.

    The due times must need no clamping.
    """
    pack = struct.Struct(f">{len(lane)}sQ{len(stem)}sQ").pack
    return lambda due_at_ms, offsets: [pack(lane, at + _BIAS, stem, n) for at, n in zip(due_at_ms, offsets, strict=True)]


def build_due_bound(due_at_ms: int, lane: bytes = COMMON) -> bytes:
    """Build the smallest possible key of a lane's entry due at `due_at_ms`, for the ends of a scan."""
    try:
        return lane + _DUE.pack(due_at_ms + _BIAS)
    except struct.error:
        return lane + _DUE.pack(max(-_BIAS, min(due_at_ms, DUE_MS_MAX)) + _BIAS)


def build_lane_end(lane: bytes) -> bytes:
    """Build the smallest key that lies beyond a lane."""
    return (int.from_bytes(lane, "big") + 1).to_bytes(LANE_BYTES, "big")


def lane_of(entry_key: bytes) -> bytes:
    return entry_key[:LANE_BYTES]


def build_block_lane(entry_key: bytes) -> bytes:
    """Build the lane of blocks for entries that lie in the lane of `entry_key`; empty where the entry is not plain."""
    return _BLOCKS + entry_key[1:LANE_BYTES] if entry_key[0] == PLAIN else b""


def build_plain_lane(lane: bytes) -> bytes:
    """Build the lane of the entries in blocks of a block lane; any other lane is returned as it is."""
    return _PLAIN_LANES + lane[1:] if lane[0] == BLOCK else lane


def move_into_lane(entry_key: bytes, lane: bytes) -> bytes:
    return lane + entry_key[LANE_BYTES:]


def is_held(entry_key: bytes) -> bool:
    """Whether it is the key of an entry that cannot be opened, and was moved out of the way."""
    return entry_key[:LANE_BYTES] == HELD.get(entry_key[0])


def make_held_key(entry_key: bytes) -> bytes:
    return move_into_lane(entry_key, HELD[entry_key[0]])


def make_key_due_at(entry_key: bytes, due_at_ms: int) -> bytes:
    return build_due_bound(due_at_ms, entry_key[:LANE_BYTES]) + entry_key[_DUE_END:]


def find_untaken_key(entry_key: bytes, taken: Callable[[bytes], bool], step_ms: int = 1) -> bytes:
    """Find a key of the same entry that nobody has, at the next free due time; the key as it is where nobody has it.

    Letters of a topic that was deleted and made anew may have the same coordinates: with one due time, one would replace the
    other.
    """
    at_ms = due_at_ms(entry_key)
    while taken(entry_key):
        if at_ms + step_ms > DUE_MS_MAX:
            step_ms = -step_ms
        at_ms += step_ms
        entry_key = make_key_due_at(entry_key, at_ms)
    return entry_key


def due_at_ms(entry_key: bytes) -> int:
    """Read from a key when its entry is due, in milliseconds since 1970."""
    return int.from_bytes(entry_key[LANE_BYTES:_DUE_END], "big") - _BIAS


def read_due_times_ms(entry_keys: Iterable[bytes]) -> list[int]:
    return [int.from_bytes(key[LANE_BYTES:_DUE_END], "big") - _BIAS for key in entry_keys]


def order_of(ordered_key: bytes) -> bytes:
    return ordered_key[_DUE_END:_ORDER_END]


def name_of(named_key: bytes) -> bytes:
    return named_key[_DUE_END:_NAME_END]


def read_version(named_key: bytes) -> int:
    return int.from_bytes(named_key[_NAME_END:_VERSION_END], "big")


def read_written_at_ms(named_key: bytes) -> int | None:
    """Read from a key's version when the request for the entry was written; None where versions of its kind do not say so."""
    written_ms = read_version(named_key) // VERSIONS_OF_MS
    return written_ms if written_ms >= _WRITTEN_MS_MIN else None


def extract_letter(entry_key: bytes) -> bytes:
    """Extract the part of a key that names the letter: `build_key_stem` and the offset, whatever the lane and the due time."""
    return entry_key[_LETTER_AT[entry_key[0]] :]


def extract_identity(entry_key: bytes) -> bytes:
    """Return the part of a key that no move changes and no other entry has: the letter; or name, version and source."""
    if entry_key[0] == NAMED:
        return entry_key[:1] + entry_key[_DUE_END:]
    return entry_key[_LETTER_AT[entry_key[0]] :]


def read_source(entry_key: bytes) -> Source:
    """Read the due time and the source coordinates in the key of an entry; raises EntryUnreadable where it is none."""
    start = _LETTER_AT.get(entry_key[0], 0) if entry_key else 0
    try:
        partition, number = _TAIL.unpack(entry_key[-_TAIL.size :])
        topic, end = entry_key[start : -_TAIL.size - 1].decode(), entry_key[-_TAIL.size - 1]
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise EntryUnreadable(f"no entry has the key {entry_key.hex()}") from error
    if not start or not topic or end != 0 or partition > _PARTITION_MAX or number > _NUMBER_MAX:
        raise EntryUnreadable(f"no entry has the key {entry_key.hex()}")
    return Source(due_at_ms(entry_key), topic, partition, number & OFFSET_MAX)


def parse_source(text: str) -> Source:
    """Parse the source `<due_at_ms>/<topic>/<partition>/<offset>`; raises ValueError where a text is not of that form."""
    due, topic, partition, offset = text.split("/")
    source = Source(int(due), topic, int(partition), int(offset))
    if not (0 <= source.partition <= _PARTITION_MAX and 0 <= source.offset <= OFFSET_MAX):
        raise ValueError(f"{text}: no such partition or offset")
    return source


FIRST_KEY, FIRST_BLOCK = bytes([PLAIN]), _BLOCKS
END_KEY = bytes([BLOCK + 1])
