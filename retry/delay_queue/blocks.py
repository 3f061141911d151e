"""Blocks: one record for up to 32 letters of one kind that are due within the same 25 ms. Records are what costs, not letters.

A block is only a way to write the entries of its letters, and gives back each of them byte for byte. Whoever delivers all of a
block writes one null for it. Whoever touches less of it explodes it in the same transaction: a null for the block, and the
entries that stay, each with a record of its own. See `split_blocks`.

Key, in lanes of their own, so that in a lane byte order is the order of the latest due times:

    0x04 and the rest of the plain lane, 9 bytes | due_at_ms of the latest + 2**63, 8 bytes big-endian | source topic | 0x00
    | partition, 4 bytes | incarnation and offset of the first letter, 8 bytes
    | for each letter: its number less that of the first, 2 bytes | the latest due time less its own, 1 byte, milliseconds

So a null says by its key alone which entries it ends.
Value: a MessagePack array, see `Block`; what all letters have in common is there once, all else in columns. Of sealed letters
nothing can be shared: their block has their envelopes as they are, see `EnvelopeBlock`, and whoever takes one out needs no key.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, repeat
from typing import NamedTuple, Protocol

import msgspec

from retry import format_versions
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.entry_keys import BLOCK, LANE_BYTES, OFFSET_MAX, PLAIN, build_due_bound, due_at_ms
from retry.delay_queue.envelopes import Entry
from retry.errors import EntryUnreadable
from retry.format_versions import DECODE_ERRORS
from retry.record import Header

ENTRIES_MAX, WITHIN_MS = 32, 25
# More bytes in a record bring nothing.
BYTES_MAX = 100_000
# Of the numbers of letters in one block; so those that may have a certain letter are few.
SPAN_MAX = (1 << 14) - 1
_MEMBER = struct.Struct(">HB")
_TOPIC_AT = LANE_BYTES + 8
# The end of the topic, the partition, the number of the first letter.
_HEAD_BYTES = 1 + 4 + 8
_BIAS = 1 << 63
_FIRST = bytes([BLOCK])
# Headers of a retry.
_OF_RETRY = 6

Row = tuple[bytes, bytes | None]
_Column = list[bytes | None]


class Block(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=format_versions.BLOCK.writes):
    """The value of a block.

    Attributes:
      header_names: of the headers of the letters themselves, then the six of a retry: lineage, attempt, source, due time, policy
        and first failure.
      header_values: of the letters themselves; of each name the value that all have, or a list with that of each.
      ids: of the lineages, as the header has them.
      keys, values, timestamps_ms, failed_ms, first_failed_ms: of each; instead of a list of times there may be None, where all
        are those at which the letters failed.
    """

    destination: str
    team: str
    attempt: bytes
    policy: bytes
    header_names: list[str]
    header_values: list[bytes | _Column | None]
    ids: list[bytes]
    keys: _Column
    values: _Column
    failed_ms: list[int]
    timestamps_ms: list[int | None] | None = None
    first_failed_ms: list[int] | None = None


class EnvelopeBlock(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=format_versions.ENVELOPE_BLOCK.writes):
    """The value of a block of letters that are sealed, each by itself and bound to the key of its own entry."""

    envelopes: list[bytes]


class _SharedFields(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=format_versions.BLOCK.writes):
    """The beginning of a block, of which no column is decoded."""

    destination: msgspec.Raw
    team: msgspec.Raw
    attempt: msgspec.Raw
    policy: msgspec.Raw
    header_names: msgspec.Raw
    header_values: list[msgspec.Raw]


encode_value = msgspec.msgpack.Encoder().encode
_decode_value = msgspec.msgpack.Decoder(Block | EnvelopeBlock).decode
_decode_shared = msgspec.msgpack.Decoder(_SharedFields).decode
# How MessagePack arrays begin.
_ARRAYS = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD))


def pack_key(lane: bytes, stem: bytes, letters: Sequence[tuple[int, int]]) -> bytes:
    """Build the key of a block of letters, in the order of their numbers; of each its number and its due time in milliseconds."""
    first, latest_ms, pack = letters[0][0], max([due_ms for _, due_ms in letters]), _MEMBER.pack
    members = b"".join([pack(number - first, latest_ms - due_ms) for number, due_ms in letters])
    return entry_keys.build_due_bound(latest_ms, _FIRST + lane[1:]) + stem + first.to_bytes(8, "big") + members


def is_block(key: bytes) -> bool:
    """Whether a record with this key is a block, or ends one."""
    return key[:1] == _FIRST


def count_entries(key: bytes) -> int:
    """Count the entries that a record is about: one, or all entries of its block."""
    if key[0] != BLOCK:
        return 1
    return (len(key) - key.index(0, _TOPIC_AT) - _HEAD_BYTES) // _MEMBER.size


def measure_entries(key: bytes, value: bytes) -> int:
    """Estimate the bytes of a record's entries, each written alone: a block stores only once what all of them share."""
    if key[0] != BLOCK or is_of_envelopes(value):
        return len(value)
    shared = _decode_shared(value)
    values = [memoryview(raw) for raw in shared.header_values]
    once = sum(len(value) for value in values if value[0] not in _ARRAYS)
    once += sum(len(memoryview(raw)) for raw in (shared.attempt, shared.policy, shared.header_names))
    return len(value) + once * (count_entries(key) - 1)


def list_keys(key: bytes) -> list[bytes]:
    """List the keys that the entries of a block have, in the order of their letters."""
    head = _head(key)
    lane, latest = bytes([PLAIN]) + key[1:LANE_BYTES], entry_keys.due_at_ms(key) + _BIAS
    pack = struct.Struct(f">{LANE_BYTES}sQ{len(head.stem)}sQ").pack
    return [pack(lane, latest - earlier, head.stem, head.first + more) for more, earlier in _MEMBER.iter_unpack(head.members)]


class _Head(NamedTuple):
    stem: bytes
    first: int
    members: bytes


def _head(key: bytes) -> _Head:
    at = key.index(0, _TOPIC_AT) + 5
    return _Head(key[_TOPIC_AT:at], int.from_bytes(key[at : at + 8], "big"), key[at + 8 :])


def list_entries(key: bytes, block: Block) -> list[Entry]:
    head = _head(key)
    place, latest, first = name_place(head.stem), entry_keys.due_at_ms(key), head.first
    members = list(_MEMBER.iter_unpack(head.members))
    firsts = block.failed_ms if block.first_failed_ms is None else block.first_failed_ms
    values = [
        *block.header_values, block.ids, block.attempt, [b"%b%d" % (place, first + more & OFFSET_MAX) for more, _ in members],
        [b"%d" % (latest - earlier) for _, earlier in members], block.policy, [b"%d" % first_ms for first_ms in firsts],
    ]  # fmt: skip
    # What all have is one object, and takes no time for each.
    columns: list[Iterable[Header]] = [
        [(name, each) for each in column] if isinstance(column, list) else repeat((name, column))
        for name, column in zip(block.header_names, values, strict=True)
    ]
    stamps = block.failed_ms if block.timestamps_ms is None else block.timestamps_ms
    destination, team = block.destination, block.team
    return [
        Entry(destination, record_key, payload, headers, stamp_ms, team, failed_ms)
        for record_key, payload, headers, stamp_ms, failed_ms in zip(
            block.keys, block.values, map(list, zip(*columns)), stamps, block.failed_ms, strict=True  # noqa: B905
        )
    ]  # fmt: skip


@lru_cache(1_000)
def name_place(stem: bytes) -> bytes:
    """Format the topic and partition in a key's stem as `topic/partition/`, which the offset follows in the source of a retry."""
    return b"%b/%d/" % (stem[:-5], int.from_bytes(stem[-4:], "big"))


def decode(value: bytes) -> Block | EnvelopeBlock:
    """Read the value of a block; raises EntryNewer where newer versions alone know it, EntryUnreadable where none wrote it."""
    try:
        return _decode_value(value)
    except DECODE_ERRORS as error:
        envelopes.check_version(value, format_versions.BLOCK)
        raise EntryUnreadable(f"{len(value)} bytes are no block of entries: {error}") from error


def is_of_envelopes(value: bytes) -> bool:
    """Whether a block, of which that it is one is known, has the envelopes of its letters as they are."""
    return value[1] == format_versions.ENVELOPE_BLOCK.writes


def check(key: bytes, value: bytes | None) -> None:
    """Check that a record is a block, or the null that ends one; raises as `decode`."""
    at = key.find(0, _TOPIC_AT)
    members = key[at + _HEAD_BYTES :] if at > 0 else b""
    if len(members) < 2 * _MEMBER.size or len(members) % _MEMBER.size or len(members) > ENTRIES_MAX * _MEMBER.size:
        raise EntryUnreadable(f"no block has the key {key.hex()[:200]}")
    numbers = [more for more, _ in _MEMBER.iter_unpack(members)]
    if numbers[0] or numbers[-1] > SPAN_MAX or any(later <= one for one, later in pairwise(numbers)):
        raise EntryUnreadable(f"no block has the key {key.hex()[:200]}: its letters do not rise")
    topic = entry_keys.read_source(list_keys(key)[-1]).topic
    if value is None:
        return
    count, block = len(numbers), decode(value)
    if isinstance(block, EnvelopeBlock):
        if len(block.envelopes) != count:
            raise EntryUnreadable(f"a block of {count} entries has {len(block.envelopes)} envelopes")
        routes = {(each.team, each.destination) for each in envelopes.decode_all_routings(block.envelopes)}
    else:
        routes = {(block.team, block.destination)}
        _check_columns(block, count)
    # The lane of the first entry is taken for that of all.
    if {entry_keys.lane(team, topic, destination)[1:] for team, destination in routes} != {key[1:LANE_BYTES]}:
        raise EntryUnreadable(f"a block lies in the lane of others: {key.hex()[:200]}")


def _check_columns(block: Block, count: int) -> None:
    own, times = [block.ids, block.keys, block.values], [block.failed_ms, block.timestamps_ms, block.first_failed_ms]
    lengths = {len(column) for column in (*own, *times, *block.header_values) if isinstance(column, list)}
    if lengths != {count} or len(block.header_names) != len(block.header_values) + _OF_RETRY:
        raise EntryUnreadable(f"a block of {count} entries has columns of other lengths")


def list_rows(key: bytes, value: bytes | None) -> list[Row]:
    """List what a record of the changelog says of single entries: itself, or that of a block for each of its entries."""
    if not is_block(key):
        return [(key, value)]
    if value is None:
        return [(each, None) for each in list_keys(key)]
    block = decode(value)
    whole = block.envelopes if isinstance(block, EnvelopeBlock) else map(envelopes.encode, list_entries(key, block))
    return list(zip(list_keys(key), whole, strict=True))


def read_rows(key: bytes, value: bytes | None) -> list[Row]:
    """List the rows of a record that has not been folded, as `list_rows`, once its block is checked; raises as `check`."""
    if is_block(key):
        check(key, value)
    return list_rows(key, value)


def find_envelope(key: bytes, value: bytes, entry_key: bytes) -> bytes | None:
    """Find the envelope of one entry in a block; None where the block has no entry with this key."""
    if entry_key not in (keys := list_keys(key)):
        return None
    at, block = keys.index(entry_key), decode(value)
    return block.envelopes[at] if isinstance(block, EnvelopeBlock) else envelopes.encode(list_entries(key, block)[at])


def split_blocks(rows: Iterable[tuple[bytes, bytes]], leaving: Collection[bytes]) -> Iterator[Row]:
    """List the records that end blocks of which some entries leave: a put for each entry that stays, then a null for the block.

    The null ends nothing that has got a record of its own before. Other keys may be among those that are `leaving`.
    """
    for key, value in rows:
        yield from ((each, envelope) for each, envelope in list_rows(key, value) if each not in leaving)
        yield key, None


# Finds the block that an entry is in, by the entry's key: of all blocks a few keys are looked at.

_CANDIDATES = 1_000


class BlockRows(Protocol):
    """Rows in which blocks can be looked for: `scan_keys` gives the first keys from a start to before an end."""

    def scan_keys(self, start: bytes, end: bytes, rows_max: int) -> list[bytes]: ...
    def get(self, key: bytes) -> bytes | None: ...


def find_blocks(rows: BlockRows, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Find the blocks that hold the entries with some plain keys; return the key and value of each block once."""
    found = dict[bytes, bytes]()
    members = set[bytes]()
    for key in keys:
        if key in members or (block := _find(rows, key)) is None:
            continue
        value = rows.get(block)
        if value is not None:
            found[block] = value
            members.update(list_keys(block))
    return list(found.items())


def _find(rows: BlockRows, key: bytes) -> bytes | None:
    lane, due_ms = entry_keys.build_block_lane(key), due_at_ms(key)
    # Behind the due time: topic and partition, and the number of the letter.
    stem, number = key[LANE_BYTES + 8 : -8], entry_keys.read_letter_number(key)
    first = max(0, number - SPAN_MAX)
    latest_ms, end = due_ms, build_due_bound(due_ms + WITHIN_MS, lane)
    while nearest := rows.scan_keys(build_due_bound(latest_ms, lane), end, 1):
        # Blocks of many due times may be left out at once; of one due time they lie in the order of their letters.
        latest_ms = due_at_ms(nearest[0])
        bound = build_due_bound(latest_ms, lane) + stem
        start, until = bound + first.to_bytes(8, "big"), bound + (number + 1).to_bytes(8, "big")
        while some := rows.scan_keys(start, until, _CANDIDATES):
            for block in some:
                if key in list_keys(block):
                    return block
            start = some[-1] + b"\0"
        latest_ms += 1
    return None
