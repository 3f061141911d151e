"""Bitmaps of returned letters: what is marked is found, nothing else is, and what is no bitmap is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.delay_queue import returned_offsets
from retry.delay_queue.returned_offsets import BLOCK_BYTES, OFFSETS_A_BLOCK, PLACE_BYTES, ParkedPlace
from retry.errors import EntryNewer, EntryUnreadable

TOPIC = returned_offsets.hash_topic_id("a-topic-id")
OFFSETS = st.integers(0, 3 * OFFSETS_A_BLOCK)


@given(st.sets(OFFSETS, max_size=40), st.sets(OFFSETS, max_size=40))
def test_a_letter_is_returned_once_it_is_marked(marked: set[int], others: set[int]) -> None:
    bitmaps: dict[bytes, bytes | None] = {}
    for offset in marked:
        block = ParkedPlace(TOPIC, 3, offset).block()
        bitmaps[block] = returned_offsets.mark_offset(bitmaps.get(block), offset)
    blocks = {at: bitmaps.get(ParkedPlace(TOPIC, 3, at).block()) for at in marked | others}
    found = {at for at, bitmap in blocks.items() if returned_offsets.is_offset_returned(bitmap, at)}
    assert found == marked
    for bitmap in bitmaps.values():
        returned_offsets.check(bitmap or b"")


@given(st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 45) - 1))
def test_a_place_is_read_as_it_was_written(partition: int, offset: int) -> None:
    place = ParkedPlace(TOPIC, partition, offset)
    key = place.encode()
    assert (returned_offsets.decode_place(key), returned_offsets.is_place(key)) == (place, True)
    assert (len(key), len(place.block())) == (PLACE_BYTES, BLOCK_BYTES)


def test_each_topic_partition_and_block_has_a_bitmap_of_its_own() -> None:
    last, first = OFFSETS_A_BLOCK - 1, OFFSETS_A_BLOCK
    places = [ParkedPlace(TOPIC, 0, last), ParkedPlace(TOPIC, 0, first), ParkedPlace(TOPIC, 1, last)]
    places.append(ParkedPlace(returned_offsets.hash_topic_id("the-topic-made-anew"), 0, last))
    assert len({place.block() for place in places}) == 4
    assert ParkedPlace(TOPIC, 0, 0).block() == places[0].block()


@pytest.mark.parametrize("key", [b"", b"\x12", ParkedPlace(TOPIC, 0, 1).block(), b"\x01" + ParkedPlace(TOPIC, 0, 1).encode()[1:]])
def test_what_is_no_place_is_refused(key: bytes) -> None:
    with pytest.raises(EntryUnreadable):
        returned_offsets.decode_place(key)


def test_what_is_no_bitmap_is_refused_and_what_is_newer_is_told_apart() -> None:
    bitmap = returned_offsets.mark_offset(None, 5)
    for broken in (b"", bitmap[:-1], bitmap + b"\0"):
        with pytest.raises(EntryUnreadable):
            returned_offsets.check(broken)
    with pytest.raises(EntryNewer):
        returned_offsets.check(bytes([bitmap[0] + 1]) + bitmap[1:])


def test_a_place_is_told_by_the_name_of_its_topic_where_that_is_known() -> None:
    key = ParkedPlace(TOPIC, 2, 9).encode()
    assert returned_offsets.describe_place(key, {TOPIC.hex(): "orders.parked"}) == "orders.parked/2/9"
    assert returned_offsets.describe_place(key, {}) == f"{TOPIC.hex()}/2/9"
