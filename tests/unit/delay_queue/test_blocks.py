"""A block is a way to write entries: whatever its letters, each of them comes out as it would have been written alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retry.delay_queue import blocks, entry_keys, envelopes
from retry.errors import EntryNewer, EntryUnreadable
from retry.intake.gather_blocks import BlockFields, BlockGathering, BlockLetter, encode_block, fields_of
from tests.support.blocks import NOW_MS, OF_RETRY, SHARED, letters_of, seal_letters
from tests.support.sealed import OLD, KeyFile

MAYBE = st.one_of(st.none(), st.binary(max_size=5))
MS = st.integers(1_000_000_000_000, 4_000_000_000_000)
# The last letter that a topic could have, and the first one of the topic that was made anew in its place.
OF_TWO_INCARNATIONS = [
    BlockLetter(number, NOW_MS, b"", None, None, None, NOW_MS, NOW_MS, (None, b"same"))
    for number in (entry_keys.OFFSET_MAX, entry_keys.number_letter(0, 1))
]


@st.composite
def some_letters(draw: Any) -> list[BlockLetter]:
    numbers = sorted(draw(st.sets(st.integers(0, blocks.SPAN_MAX), min_size=2, max_size=blocks.ENTRIES_MAX)))
    first, slot = draw(st.integers(0, (1 << 62))), draw(MS)
    return [
        BlockLetter(
            first + n, slot + draw(st.integers(0, blocks.WITHIN_MS - 1)), draw(st.binary(max_size=4)), draw(MAYBE), draw(MAYBE),
            draw(st.one_of(st.none(), MS)), draw(MS), draw(MS), (draw(MAYBE), b"same"),
        )
        for n in numbers
    ]  # fmt: skip


@given(some_letters(), st.sampled_from(["orders.DLT", "a", "x" * 249]), st.integers(0, (1 << 31) - 1))
@example(OF_TWO_INCARNATIONS, "orders.DLT", 0)
def test_each_letter_comes_out_as_if_it_had_been_written_alone(letters: list[BlockLetter], topic: str, partition: int) -> None:
    shared = SHARED._replace(lane=entry_keys.lane("team", topic, "orders"), stem=entry_keys.build_key_stem(topic, partition))
    key, value = encode_block(shared, letters)
    alone = [encode_block(shared, [letter]) for letter in letters]
    blocks.check(key, value)
    blocks.check(key, None)
    assert blocks.list_rows(key, value) == alone
    assert blocks.list_rows(key, None) == [(each, None) for each, _ in alone]
    assert blocks.count_entries(key) == len(letters)
    assert blocks.list_entries(key, blocks.decode(value)) == [envelopes.decode(envelope) for _, envelope in alone]
    assert entry_keys.due_at_ms(key) == max(letter.due_at_ms for letter in letters)
    assert entry_keys.read_due_times_ms(blocks.list_keys(key)) == [letter.due_at_ms for letter in letters]
    assert entry_keys.lane_of(key) == entry_keys.build_block_lane(alone[0][0])
    assert entry_keys.build_plain_lane(entry_keys.lane_of(key)) == shared.lane


@given(some_letters())
def test_sealed_letters_come_out_under_their_own_seals(letters: list[BlockLetter]) -> None:
    codec = KeyFile(OLD).codec
    key, value = encode_block(SHARED, seal_letters(codec, SHARED, letters))
    blocks.check(key, value)
    assert (key, blocks.is_of_envelopes(value)) == (encode_block(SHARED, letters)[0], True)
    in_clear = [encode_block(SHARED, [letter]) for letter in letters]
    sealed = blocks.list_rows(key, value)
    assert [each for each, _ in sealed] == [each for each, _ in in_clear]
    opened = [codec.decode(each, envelope or b"") for each, envelope in sealed]
    assert opened == [envelopes.decode(envelope) for _, envelope in in_clear]
    alone = encode_block(SHARED, seal_letters(codec, SHARED, letters[:1]))
    assert (alone[0], codec.decode(*alone)) == (in_clear[0][0], opened[0])


@given(some_letters(), st.sets(st.integers(0, blocks.ENTRIES_MAX)))
def test_whoever_stays_is_put_again_before_the_block_ends(letters: list[BlockLetter], positions: set[int]) -> None:
    block = encode_block(SHARED, letters)
    rows = blocks.list_rows(*block)
    leaving = {key for n, (key, _) in enumerate(rows) if n in positions}
    assert list(blocks.split_blocks([block], leaving)) == [*(row for row in rows if row[0] not in leaving), (block[0], None)]


def test_what_all_have_is_written_once_and_times_of_failure_too() -> None:
    one, many = (encode_block(SHARED, letters_of(n))[1] for n in (2, 32))
    each = (len(many) - len(one)) / 30
    assert each < len(envelopes.encode(fields_of(SHARED, letters_of(1)[0]))) / 3


@pytest.mark.parametrize(
    "spoil",
    [
        lambda key: key[:-1],
        lambda key: key + key[-3:],
        lambda key: key[:-6],
        lambda key: key.replace(b"\0\0\0\0", b"\1\1\1\1", 1)[:20],
        lambda key: key[:-3] + b"\0\0\0",
        lambda key: key[:-3] + b"\xff\xff\0",
        lambda key: key[:17],
        lambda key: key[:1],
    ],
)
def test_what_is_no_key_of_a_block_is_told_apart(spoil: Any) -> None:
    key, value = encode_block(SHARED, letters_of(3))
    for content in (value, None):
        with pytest.raises(EntryUnreadable):
            blocks.check(spoil(key), content)


def test_what_is_no_value_of_a_block_is_told_apart() -> None:
    key, value = encode_block(SHARED, letters_of(3))
    of_two = encode_block(SHARED, letters_of(2))[1]
    alone = encode_block(SHARED, letters_of(1))[1]
    for content in (b"", b"\x93", value[:-1], value + b"\0", of_two, alone, envelopes.encode([1, "orders", 1])):
        with pytest.raises(EntryUnreadable):
            blocks.check(key, content)
    for content in (envelopes.encode([2, [b"x"] * 3]), envelopes.encode([2, [alone] * 2]), envelopes.encode([2, []])):
        with pytest.raises(EntryUnreadable):
            blocks.check(key, content)
    blocks.check(key, envelopes.encode([2, [alone] * 3]))
    with pytest.raises(EntryNewer, match="block version 3"):
        blocks.check(key, envelopes.encode([3, "what a later version writes"]))


@given(st.binary(max_size=200), st.binary(max_size=60))
def test_whatever_lies_there_is_a_block_or_is_told_apart(key: bytes, value: bytes) -> None:
    for content in (value, None):
        try:
            blocks.check(bytes([entry_keys.BLOCK]) + key, content)
        except (EntryUnreadable, EntryNewer):
            continue
        assert len(blocks.list_rows(bytes([entry_keys.BLOCK]) + key, content)) >= 2


def test_letters_join_in_the_order_of_their_numbers_and_near_each_other() -> None:
    first, last, later = letters_of(3)

    def count_together(*letters: BlockLetter) -> list[int]:
        gathering = BlockGathering()
        records = [*gathering.add_letters(SHARED, letters, 32), *gathering.flush_blocks()]
        return [blocks.count_entries(key) for key, _ in records]

    assert count_together(first, last, later) == [3]
    assert count_together(first, later, last) == [2, 1]
    assert count_together(first, last, last) == [2, 1]
    assert count_together(first, last, later._replace(number=first.number + blocks.SPAN_MAX + 1)) == [2, 1]
    assert count_together(first, last, later._replace(due_at_ms=first.due_at_ms + blocks.WITHIN_MS)) == [2, 1]


def test_the_fields_of_letters_without_headers_are_those_of_a_retry() -> None:
    shared = BlockFields(SHARED.lane, SHARED.stem, "orders", "team", b"2", b"team/orders.DLT", tuple(OF_RETRY))
    bare = [letter._replace(header_values=()) for letter in letters_of(2)]
    key, value = encode_block(shared, bare)
    block = blocks.decode(value)
    entries = blocks.list_entries(key, block)
    assert [dict(entry.headers)["retry-due-ms"] for entry in entries] == [b"%d" % (NOW_MS + n) for n in range(2)]
    assert (block.policy, block.attempt) == (b"team/orders.DLT", b"2")
