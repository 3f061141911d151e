"""What is due soon, and the first of every lane: the same of any table, and nothing is changed by asking."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retry.delay_queue import entry_keys
from retry.delay_queue.table.interface import DueEstimate, Table
from retry.testing.memory_table import MemoryTable
from tests.support.tables import ALL, NOW_MS, lane, named_key, ordered_key, plain_key, rocks

MINUTE_MS = 60_000
UNTIL = [NOW_MS + MINUTE_MS, NOW_MS + 5 * MINUTE_MS]


def fold(table: Table, keys: Sequence[bytes]) -> None:
    table.apply_records([(key, key[-4:]) for key in keys], table.next_offset + len(keys), NOW_MS)


def test_an_empty_table_has_nothing_due(table: Table) -> None:
    assert table.estimate_due(UNTIL, 100) == DueEstimate(None, [0, 0])
    assert table.list_first_entries(5, ALL) == []


def test_what_is_due_by_then_is_counted_in_every_lane(table: Table) -> None:
    due_ms = [-5_000, 0, MINUTE_MS, MINUTE_MS + 1, 5 * MINUTE_MS, 5 * MINUTE_MS + 1]
    fold(table, [plain_key(NOW_MS + due, n, lane(at)) for at in range(3) for n, due in enumerate(due_ms)])
    assert table.estimate_due(UNTIL, 100) == DueEstimate(NOW_MS - 5_000, [9, 15])


def test_of_ordered_ones_the_first_of_each_key_counts_and_of_named_ones_the_one_that_does(table: Table) -> None:
    fold(table, [ordered_key(NOW_MS + 10 + n, n) for n in range(4)] + [named_key(NOW_MS + 5, 1), named_key(NOW_MS + 7, 2)])
    assert table.estimate_due(UNTIL, 100) == DueEstimate(NOW_MS + 7, [2, 2])


def test_what_was_sent_counts_no_more_and_asking_changes_nothing(table: Table) -> None:
    fold(table, [plain_key(NOW_MS + n, n) for n in range(10)])
    first = [key for key, _ in table.find_due(NOW_MS + 3, ALL, ALL)]
    assert table.estimate_due(UNTIL, 100).due == [10, 10]
    table.delete_scanned_rows(first)
    assert table.estimate_due(UNTIL, 100) == DueEstimate(NOW_MS + 4, [6, 6])
    assert [key for key, _ in table.find_due(NOW_MS + 9, ALL, ALL)] == [plain_key(NOW_MS + n, n) for n in range(4, 10)]


def test_the_first_of_every_lane_are_told_within_bounds(table: Table) -> None:
    fold(table, [plain_key(NOW_MS + n, n, lane(at)) for at in range(2) for n in range(5)])
    keys = [plain_key(NOW_MS + n, n, lane(at)) for at in range(2) for n in range(2)]
    assert table.list_first_entries(2, ALL) == sorted((key, key[-4:]) for key in keys)
    assert len(table.list_first_entries(5, 5)) == 4


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(-9, 400), st.integers(0, 2)), max_size=60, unique=True))
def test_few_are_counted_exactly(tmp_path: Path, due: list[tuple[int, int]]) -> None:
    keys = [plain_key(NOW_MS + at_s * 1_000, n, lane(of)) for n, (at_s, of) in enumerate(due)]
    disk, memory = rocks(tmp_path / str(Random().random())), MemoryTable()
    try:
        for table in (disk, memory):
            fold(table, keys)
        assert disk.estimate_due(UNTIL, 1_000) == memory.estimate_due(UNTIL, 1_000)
    finally:
        disk.close()


@pytest.mark.parametrize("shape", ["even", "rising", "at once"])
def test_many_are_estimated_from_few(tmp_path: Path, shape: str) -> None:
    random, many = Random(7), 30_000
    spread = {"even": random.random, "rising": lambda: random.random() ** 0.5, "at once": lambda: 0.5}[shape]
    table = rocks(tmp_path / "table")
    try:
        fold(table, [plain_key(NOW_MS + int(spread() * 10 * MINUTE_MS), n) for n in range(many)])
        asked: list[int] = []
        keys = table._db.scan_keys

        def counting(start: bytes, end: bytes, rows_max: int) -> list[bytes]:
            found = keys(start, end, rows_max)
            asked.append(len(found))
            return found

        table._db.scan_keys = counting  # type: ignore[method-assign]
        exact = [sum(entry_keys.due_at_ms(key) <= until for _, key, _ in table.scan_entries(b"", ALL)) for until in UNTIL]
        found = table.estimate_due(UNTIL, 1_000).due
        assert sum(asked) < 2_500
        for told, is_so in zip(found, exact, strict=True):
            # All at one instant cannot be told from a crowd around it; but there are never more than wait.
            assert told == pytest.approx(is_so, rel=0.3) if shape != "at once" else 0 <= told <= many
    finally:
        table.close()
