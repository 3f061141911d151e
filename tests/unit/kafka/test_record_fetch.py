"""Records that pointer letters name: what reading passes by is gone, and what it has not come to is not."""

from __future__ import annotations

from collections import deque

import pytest

from retry.delay_queue.envelopes import Entry
from retry.kafka.record_fetch import GONE, OffsetRun, split_at_holes
from retry.testing.kafka import MemoryRecord


def run(*wanted: int, decided: int = 100) -> OffsetRun:
    return OffsetRun("orders", 0, decided, deque(wanted), {})


def record(offset: int) -> MemoryRecord:
    return MemoryRecord(Entry("orders", None, b"value", [], None, ""), 0, offset, 1)


def test_a_record_is_found_and_what_was_passed_is_gone() -> None:
    wanted, found = run(3, 5, 9), record(5)
    wanted.take_record(found)  # type: ignore[arg-type]
    assert wanted.results == {3: GONE, 5: found}
    assert list(wanted.missing) == [9]
    assert wanted.find_start().offset == 9


def test_another_record_is_never_taken_in_its_place() -> None:
    wanted = run(3, 9)
    wanted.take_record(record(4))  # type: ignore[arg-type]
    assert wanted.results == {3: GONE}


def test_at_the_end_of_what_is_committed_only_what_lies_beyond_all_there_is_is_gone() -> None:
    wanted = run(3, 7, 9, 12)
    wanted.reach_end(7, 10)
    assert wanted.results == {3: GONE, 12: GONE}
    assert not wanted.missing


@pytest.mark.parametrize(("decided", "gone", "missing"), [(100, {3}, [7, 9]), (5, {3}, [7, 9]), (3, {3, 7, 9}, [])])
def test_an_offset_that_is_refused_was_deleted_just_now_or_lies_beyond_the_end(
    decided: int, gone: set[int], missing: list[int]
) -> None:
    wanted = run(3, 7, 9, decided=decided)
    wanted.skip_out_of_range()
    assert wanted.results == dict.fromkeys(gone, GONE)
    assert list(wanted.missing) == missing


def test_small_holes_are_read_over() -> None:
    assert list(split_at_holes([])) == []
    assert list(split_at_holes([0, 200, 400, 601])) == [[0, 200, 400], [601]]
