"""Blocks for a test."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from retry.dead_letters import retry_headers
from retry.delay_queue import blocks, entry_keys
from retry.delay_queue.envelope_codec import EnvelopeCodec
from retry.delay_queue.envelopes import Entry
from retry.intake.gather_blocks import BlockFields, BlockLetter, EnvelopeLetter, encode_block, fields_of
from tests.support.reading import Record

NOW_MS = 1_700_000_000_000
FAILED_MS = NOW_MS - 60_000
TOPIC = "orders.DLT"
OF_RETRY = [name for name, _ in retry_headers.make_retry_headers(b"", b"", b"", b"", b"", b"")]
LANE = entry_keys.lane("team", TOPIC, "orders")
SHARED = BlockFields(
    LANE, entry_keys.build_key_stem(TOPIC, 0), "orders", "team", b"1", b"team/orders.DLT", ("exception", "stack", *OF_RETRY)
)


def letters_of(count: int, first: int = 0, due_ms: int = NOW_MS, apart: int = 1) -> list[BlockLetter]:
    """So many letters whose numbers are so far apart."""
    return [
        BlockLetter(
            first + apart * n, due_ms + n % blocks.WITHIN_MS, b"id%d" % n, b"k%d" % n, b"value %d" % n, FAILED_MS, FAILED_MS,
            FAILED_MS, (b"java.lang.Slow", b"stack %d" % n),
        )
        for n in range(count)
    ]  # fmt: skip


def block_of(count: int, first: int = 0, due_ms: int = NOW_MS, apart: int = 1) -> tuple[bytes, bytes]:
    """The record of a block of so many letters."""
    return encode_block(SHARED, letters_of(count, first, due_ms, apart))


def seal_letters(codec: EnvelopeCodec, shared: BlockFields, letters: Sequence[BlockLetter]) -> list[EnvelopeLetter]:
    """Seal the same letters, each with an envelope of its own."""
    keys = [entry_keys.build_key(each.due_at_ms, shared.stem, each.number, shared.lane) for each in letters]
    entries = [Entry(*fields_of(shared, each)[1:]) for each in letters]
    sealed = [codec.encode(key, entry) for key, entry in zip(keys, entries, strict=True)]
    return [EnvelopeLetter(each.number, each.due_at_ms, envelope) for each, envelope in zip(letters, sealed, strict=True)]


def list_entry_records(changelog: Iterable[Record]) -> list[Record]:
    """The records of a changelog as they would be without blocks; what stays of a block that ends was put once."""
    found = list[Record]()
    # By shard and entry, the block that it is in.
    inside = dict[tuple[int, bytes], bytes]()
    for record in changelog:
        key, shard = record.key or b"", record.partition
        if not blocks.is_block(key):
            before = inside.pop((shard, key), None)
            if before is None or record.value is None:
                found.append(record)
            continue
        for entry, envelope in blocks.list_rows(key, record.value):
            if envelope is not None:
                inside[shard, entry] = key
            elif inside.pop((shard, entry), None) is None:
                continue
            found.append(record._replace(key=entry, value=envelope))
    return found


def count_exploded(changelog: Iterable[Record]) -> tuple[int, int]:
    """How many blocks were put in a changelog, and how many of them ended while some of their entries stayed."""
    put, exploded, alone = 0, 0, set[tuple[int, bytes]]()
    for record in changelog:
        key, shard = record.key or b"", record.partition
        if not blocks.is_block(key):
            alone.add((shard, key))
        elif record.value is not None:
            put += 1
        else:
            exploded += any((shard, entry) in alone for entry in blocks.list_keys(key))
    return put, exploded
