"""How many letters a batch may have: by their values, keys and headers together."""

from __future__ import annotations

import pytest
from confluent_kafka import Message

from retry.intake.batch import BatchSize
from retry.kafka.refused_headers import UnreadableHeaders

KB = 1 << 10


def letter(value: int, *headers: int, key: int = 0) -> Message:
    named = [("h", bytes(size)) for size in headers]
    return Message(topic="t", partition=0, offset=0, key=bytes(key), value=bytes(value), headers=named)


def learnt(messages: list[Message], records_max: int = 5_000, bytes_max: int = 1_000 * KB) -> int:
    size = BatchSize(records_max, bytes_max)
    size.learn(messages)
    return size.records


def test_the_first_batch_is_a_thousand_or_what_is_allowed() -> None:
    assert BatchSize(5_000, 1).records == 1_000
    assert BatchSize(10, 1).records == 10


@pytest.mark.parametrize(
    "letters", [[letter(KB - 1)], [letter(0, KB - 2)], [letter(0, key=KB - 1)], [letter(511, 255, 254, key=1)]]
)
def test_values_keys_and_headers_count_alike(letters: list[Message]) -> None:
    assert learnt(letters) == 1_000
    assert learnt(letters * 3_000) == 1_000


def test_small_letters_are_bounded_by_their_number() -> None:
    assert learnt([letter(0)] * 5_000) == 5_000


def test_one_letter_is_read_however_large_it_is() -> None:
    assert learnt([letter(2_000 * KB)]) == 1
    assert learnt([letter(0, 2_000 * KB)]) == 1


def test_of_different_letters_the_mean_counts() -> None:
    assert learnt([letter(KB - 2), letter(3 * KB)]) == 500
    assert learnt([letter(0, KB - 3), letter(0, 3 * KB)]) == 500


def test_traces_of_64_kb_bound_a_batch_by_the_settings_as_they_come() -> None:
    found = learnt([letter(500, *[30] * 9, 64 * KB)] * 1_000, bytes_max=16 << 20)
    assert 16 << 20 >= found * (64 * KB + 500) > 15 << 20


def test_headers_that_the_client_cannot_read_count_nothing() -> None:
    assert learnt([UnreadableHeaders(letter(KB - 2, key=1))] * 100) == 1_000


def test_fewer_bytes_make_a_smaller_batch_from_the_next_one_on() -> None:
    size = BatchSize(5_000, 1_000 * KB)
    size.limit_bytes(100 * KB)
    assert size.records == 1_000
    size.learn([letter(KB - 1)])
    assert (size.records, size.estimate_bytes(10)) == (100, 10 * KB)
    size.limit_bytes(1)
    assert size.records == 1
    size.limit_bytes(1_000 * KB)
    assert size.records == 1_000
