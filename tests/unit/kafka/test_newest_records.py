"""Where the newest records of a partition begin, whatever lies between them: ends of transactions, aborted records, holes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.clock import Deadline
from retry.kafka.offset_ranges import Span
from retry.kafka.topic_ends import SpanReader, cut_to_newest


class Found(NamedTuple):
    """A record, as far as the search asks."""

    partition_: int
    offset_: int

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.partition_

    def offset(self) -> int:
        return self.offset_


def reader(offsets: dict[int, list[int]], read: list[int] | None = None) -> SpanReader:
    """Reads a topic that has records at these offsets; how many were read is appended to `read`."""

    def records(spans: list[Span]) -> Iterator[list[Found]]:
        for span in spans:
            batch = [Found(span.partition, offset) for offset in offsets[span.partition] if span.start <= offset < span.stop]
            if read is not None:
                read.append(len(batch))
            yield batch

    return records  # type: ignore[return-value]


@given(st.sets(st.integers(0, 300)), st.sets(st.integers(0, 300)), st.integers(1, 40), st.integers(0, 100))
def test_each_span_is_left_with_its_newest_records(first: set[int], second: set[int], records_max: int, start: int) -> None:
    offsets = {0: sorted(first), 1: sorted(second)}
    spans = [Span("t", n, start, 301) for n in offsets]
    cut = cut_to_newest(reader(offsets), dict.fromkeys(spans, records_max))
    for span in cut:
        readable = [offset for offset in offsets[span.partition] if offset >= start]
        kept = [offset for offset in readable if offset >= span.start]
        assert kept == readable[-records_max:]
        assert span.stop == 301 and span.start >= start


def test_partitions_that_have_no_more_offsets_than_wanted_are_not_read() -> None:
    read: list[int] = []
    span = Span("t", 0, 5, 15)
    assert cut_to_newest(reader({0: [7]}, read), {span: 10}) == [span]
    assert read == []


def test_no_more_than_a_few_times_the_wanted_records_are_read() -> None:
    read: list[int] = []
    cut_to_newest(reader({0: list(range(0, 1_000_000, 3))}, read), {Span("t", 0, 0, 1_000_000): 1_000})
    assert sum(read) < 3_000


def test_a_search_ends_with_its_time() -> None:
    (cut,) = cut_to_newest(reader({0: [0]}), {Span("t", 0, 0, 1_000): 1}, Deadline(0))
    assert cut.stop == 1_000


@pytest.mark.parametrize("records_max", [1, 7])
def test_a_partition_without_records_is_searched_to_its_beginning(records_max: int) -> None:
    assert cut_to_newest(reader({0: []}), {Span("t", 0, 3, 90): records_max}) == [Span("t", 0, 3, 90)]
