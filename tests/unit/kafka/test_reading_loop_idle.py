"""Who reads while nothing comes looks less often, and gathers from the first record on."""

from __future__ import annotations

from typing import Any

from retry.kafka.reading_loop import ErrorLog, ReadingLoop


class Record:
    def error(self) -> None:
        return None


class FakeConsumer:
    """Gives out records in the portions it was made of, and notes what it was asked for."""

    def __init__(self, *portions: int) -> None:
        self.portions, self.asked = [*portions], list[tuple[int, float]]()

    def consume(self, records_max: int, wait_s: float) -> list[Any]:
        self.asked.append((records_max, wait_s))
        return [Record() for _ in range(self.portions.pop(0))]


def test_a_reader_that_found_nothing_waits_longer_for_the_next_record_and_not_under_load() -> None:
    consumer = FakeConsumer(3, 0, 0, 1, 4, 0, 0)
    loop = ReadingLoop(consumer, ErrorLog(), idle_s=0.2)  # type: ignore[arg-type]
    assert [len(loop.read(10, 0.05)) for _ in range(6)] == [3, 0, 0, 5, 0, 0]
    assert consumer.asked == [(10, 0.05), (10, 0.05), (1, 0.2), (1, 0.2), (9, 0.05), (10, 0.05), (1, 0.2)]


def test_who_does_not_wait_and_who_wants_no_idling_ask_once() -> None:
    for idle_s, wait_s in ((0.2, 0.0), (0.0, 0.05)):
        consumer = FakeConsumer(0, 0, 1)
        loop = ReadingLoop(consumer, ErrorLog(), idle_s=idle_s)  # type: ignore[arg-type]
        assert [len(loop.read(10, wait_s)) for _ in range(3)] == [0, 0, 1]
        assert consumer.asked == [(10, wait_s)] * 3


def test_one_record_that_was_wanted_is_not_followed_by_a_question_for_none() -> None:
    consumer = FakeConsumer(0, 1)
    loop = ReadingLoop(consumer, ErrorLog(), idle_s=0.2)  # type: ignore[arg-type]
    assert [len(loop.read(1, 0.05)) for _ in range(2)] == [0, 1]
    assert consumer.asked == [(1, 0.05), (1, 0.2)]
