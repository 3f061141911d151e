"""What operators are told of records that were returned goes by the topic that has that name now, and by single offsets."""

from __future__ import annotations

from typing import Any

import pytest

from retry.delay_queue import returned_offsets
from retry.delay_queue.returned_offsets import OFFSETS_A_BLOCK, ParkedPlace
from retry.operations.explain.search import LetterLocation
from retry.operations.listing import ReturnedRecords

AT = LetterLocation("orders.parked", 1, OFFSETS_A_BLOCK + 3)


def records(topic_id: str) -> ReturnedRecords:
    """One record of a topic of this id was returned."""
    place = ParkedPlace(returned_offsets.hash_topic_id("an id"), AT.partition, AT.offset)
    nobody: Any = None
    known = ReturnedRecords(nobody, {place.block(): returned_offsets.mark_offset(None, AT.offset)}.get)
    known.topic_hash = lambda _topic: returned_offsets.hash_topic_id(topic_id)  # type: ignore[assignment]
    return known


def test_a_record_that_was_returned_is_known() -> None:
    assert records("an id").is_record_returned(AT)


@pytest.mark.parametrize("other", [
    AT._replace(offset=AT.offset + 1), AT._replace(offset=3), AT._replace(partition=0), AT._replace(offset=0),
])  # fmt: skip
def test_those_beside_it_are_not(other: LetterLocation) -> None:
    assert not records("an id").is_record_returned(other)


def test_nothing_of_a_topic_that_was_made_anew_was_returned() -> None:
    assert not records("another id").is_record_returned(AT)
