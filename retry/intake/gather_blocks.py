"""Gathers letters of one batch that may be written as one record, and writes them; see `retry.delay_queue.blocks`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

from retry.delay_queue import blocks, entry_keys, envelopes
from retry.delay_queue.blocks import ENTRIES_MAX, SPAN_MAX, WITHIN_MS, Block, EnvelopeBlock
from retry.delay_queue.entry_keys import OFFSET_MAX
from retry.delay_queue.envelopes import EntryFields

Record = tuple[bytes, bytes]


class BlockLetter(NamedTuple):
    """The part of a letter that is its own in a block; for its number see `entry_keys.number_letter`."""

    number: int
    due_at_ms: int
    id: bytes
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    failed_ms: int
    first_failed_ms: int
    header_values: tuple[bytes | None, ...]


class EnvelopeLetter(NamedTuple):
    """A letter whose envelope stays whole in a block; for its number see `entry_keys.number_letter`."""

    number: int
    due_at_ms: int
    envelope: bytes


AnyLetter = BlockLetter | EnvelopeLetter


class BlockFields(NamedTuple):
    """The part that all letters of a block have in common, see `retry.delay_queue.blocks.Block`."""

    lane: bytes
    stem: bytes
    destination: str
    team: str
    attempt: bytes
    policy: bytes
    header_names: tuple[str, ...]


class BlockGathering:
    def __init__(self) -> None:
        self._open: dict[BlockFields, dict[int, list[AnyLetter]]] = {}

    def add_letters(self, shared: BlockFields, letters: Iterable[AnyLetter], letters_max: int) -> list[Record]:
        """Add letters in the order of their numbers, so many to a block at most; gives back records of full blocks."""
        full, records = min(ENTRIES_MAX, letters_max), list[Record]()
        by_time = self._open.setdefault(shared, {})
        for letter in letters:
            slot, number = letter[1] // WITHIN_MS, letter[0]
            try:
                gathered = by_time[slot]
            except KeyError:
                by_time[slot] = [letter]
                continue
            if len(gathered) < full and gathered[-1][0] < number <= gathered[0][0] + SPAN_MAX:
                gathered.append(letter)
            else:
                records.append(encode_block(shared, gathered))
                by_time[slot] = [letter]
        return records

    def flush_blocks(self) -> list[Record]:
        gathered = [(shared, letters) for shared, by_time in self._open.items() for letters in by_time.values()]
        self._open.clear()
        return [encode_block(shared, letters) for shared, letters in gathered]


def encode_block(shared: BlockFields, letters: Sequence[AnyLetter]) -> tuple[bytes, bytes]:
    """Encode some letters as one record, and return its key and value: of a block, or of a plain entry for a single letter.

    Their numbers rise, no two of them more than `SPAN_MAX` apart.
    """
    first = letters[0]
    if len(letters) > 1:
        key = blocks.pack_key(shared.lane, shared.stem, [each[:2] for each in letters])
        if isinstance(first, EnvelopeLetter):
            return key, blocks.encode_value(EnvelopeBlock([each[2] for each in letters]))
        return key, blocks.encode_value(_gather(shared, cast(Sequence[BlockLetter], letters)))
    envelope = first.envelope if isinstance(first, EnvelopeLetter) else envelopes.encode(fields_of(shared, first))
    return entry_keys.build_key(first.due_at_ms, shared.stem, first.number, shared.lane), envelope


def _gather(shared: BlockFields, letters: Sequence[BlockLetter]) -> Block:
    _, _, ids, keys, values, stamps, failed, first_failed, header_values = zip(*letters, strict=True)
    count = len(letters)
    return Block(
        destination=shared.destination,
        team=shared.team,
        attempt=shared.attempt,
        policy=shared.policy,
        header_names=list(shared.header_names),
        header_values=[each[0] if each.count(each[0]) == count else list(each) for each in zip(*header_values, strict=True)],
        ids=list(ids),
        keys=list(keys),
        values=list(values),
        failed_ms=list(failed),
        timestamps_ms=None if stamps == failed else list(stamps),
        first_failed_ms=None if first_failed == failed else list(first_failed),
    )


def fields_of(shared: BlockFields, letter: BlockLetter) -> EntryFields:
    source = b"%b%d" % (blocks.name_place(shared.stem), letter.number & OFFSET_MAX)
    values = (
        *letter.header_values, letter.id, shared.attempt, source, b"%d" % letter.due_at_ms, shared.policy,
        b"%d" % letter.first_failed_ms,
    )  # fmt: skip
    headers = list(zip(shared.header_names, values, strict=True))
    return (
        envelopes.VERSION, shared.destination, letter.key, letter.value, headers, letter.timestamp_ms, shared.team,
        letter.failed_ms,
    )  # fmt: skip
