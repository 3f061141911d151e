"""Lanes are independent of each other, and one in which nothing is due costs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from retry.delay_queue import entry_keys
from retry.delay_queue.table.interface import Table
from tests.support.tables import ALL, NOW_MS, lane, ordered_key, plain_key, rocks

A, B, C = (lane(n) for n in range(3))


def put_entries(table: Table, of: bytes, *due_ms: int) -> None:
    rows = [(plain_key(each, lane=of), b"%d" % each) for each in due_ms]
    table.apply_records(rows, table.next_offset + len(rows), NOW_MS)


def due(table: Table, of: bytes, now_ms: int, rows_max: int = ALL) -> list[int]:
    return [entry_keys.due_at_ms(key) for key, _ in table.find_due(now_ms, rows_max, ALL, of)]


def deliver(table: Table, now_ms: int, *of: bytes, rows_max: int = ALL) -> list[int]:
    """Deliver one batch from several lanes and list what it holds."""
    keys = [key for each in of for key, _ in table.find_due(now_ms, rows_max, ALL, each)]
    table.delete_scanned_rows(keys)
    return [entry_keys.due_at_ms(key) for key in keys]


def test_lanes_are_those_that_have_entries(table: Table) -> None:
    assert table.list_lanes() == []
    put_entries(table, A, 100)
    put_entries(table, B, 200)
    table.apply_records([(ordered_key(50, 0), b"")], 3, NOW_MS)
    assert sorted(table.list_lanes()) == sorted([A, B, lane(0, ordered=True)])
    assert deliver(table, 150, A) == [100]
    assert due(table, A, 150) == []
    assert sorted(table.list_lanes()) == sorted([B, lane(0, ordered=True)])


def test_due_lanes_come_in_the_order_of_what_is_oldest_in_them(table: Table) -> None:
    put_entries(table, A, 200, 500)
    put_entries(table, B, 300, 100)
    put_entries(table, C, 400)
    assert [table.find_due_lanes(now_ms) for now_ms in (99, 100, 200, 400)] == [[], [B], [B, A], [B, A, C]]


def test_a_lane_with_nothing_due_is_named_again_when_its_next_row_is_due(table: Table) -> None:
    put_entries(table, A, 100, 5_000)
    put_entries(table, B, 100)
    assert sorted(deliver(table, 1_000, A, B)) == [100, 100]
    assert [due(table, each, 1_000) for each in (A, B)] == [[], []]
    assert [table.find_due_lanes(now_ms) for now_ms in (1_000, 4_999, 5_000)] == [[], [], [A]]


@pytest.mark.parametrize("late", [50, 100, 900])
def test_a_lane_is_named_again_when_something_is_put_below_what_was_scanned(table: Table, late: int) -> None:
    put_entries(table, A, 100)
    assert deliver(table, 1_000, A) == [100]
    assert due(table, A, 1_000) == []
    put_entries(table, A, late)
    assert (table.find_due_lanes(late - 1), table.find_due_lanes(1_000)) == ([], [A])
    assert due(table, A, 1_000) == [late]


def test_a_lane_whose_due_rows_were_deleted_is_named_until_one_look(table: Table) -> None:
    put_entries(table, A, 100, 5_000)
    table.apply_records([(plain_key(100, lane=A), None)], 3, NOW_MS)
    assert due(table, A, 1_000) == []
    assert [table.find_due_lanes(now_ms) for now_ms in (1_000, 4_999, 5_000)] == [[], [], [A]]
    table.apply_records([(plain_key(5_000, lane=A), None)], 4, NOW_MS)
    assert due(table, A, 6_000) == []
    assert (table.list_lanes(), table.find_due_lanes(1 << 62)) == ([], [])


def test_the_look_at_one_lane_leaves_the_others_as_they_are(table: Table) -> None:
    put_entries(table, A, 100, 200)
    put_entries(table, B, 150, 250)
    assert deliver(table, 1_000, A) == [100, 200]
    put_entries(table, A, 120)
    assert due(table, B, 1_000) == [150, 250]
    assert due(table, A, 1_000) == [120]


def test_a_batch_of_several_lanes_is_forgotten_in_each(table: Table) -> None:
    put_entries(table, A, 100, 200, 300)
    put_entries(table, B, 150, 250, 350)
    assert deliver(table, 1_000, A, B, rows_max=2) == [100, 200, 150, 250]
    assert (due(table, A, 1_000), due(table, B, 1_000), table.waiting) == ([300], [350], 2)


def test_what_is_put_while_a_batch_of_several_lanes_is_delivered_is_found_in_each(table: Table) -> None:
    put_entries(table, A, 100, 200)
    put_entries(table, B, 100, 200)
    batch = [key for each in (A, B) for key, _ in table.find_due(1_000, 1, ALL, each)]
    put_entries(table, A, 50)
    put_entries(table, B, 150)
    table.delete_scanned_rows(batch)
    assert (due(table, A, 1_000), due(table, B, 1_000)) == ([50, 200], [150, 200])


def test_of_several_lanes_that_were_looked_at_only_one_may_be_delivered(table: Table) -> None:
    """The destination of the other one refused."""
    put_entries(table, A, 100, 300)
    put_entries(table, B, 200)
    batch, _ = (table.find_due(1_000, ALL, ALL, each) for each in (A, B))
    table.delete_scanned_rows([key for key, _ in batch])
    assert (due(table, A, 1_000), due(table, B, 1_000), table.waiting) == ([], [200], 1)
    assert table.find_due_lanes(1_000) == [B]


def test_entries_of_one_due_time_and_letter_in_two_lanes_are_two(table: Table) -> None:
    """Moved to another destination: put there and deleted here, in whichever order it is read."""
    table.apply_records([(plain_key(100, 7, A), b"a")], 1, NOW_MS)
    table.apply_records([(plain_key(100, 7, B), b"b"), (plain_key(100, 7, A), None)], 3, NOW_MS)
    assert table.scan_entries(b"", ALL) == [(plain_key(100, 7, B), plain_key(100, 7, B), b"b")]
    assert table.waiting == 1
    assert deliver(table, 100, A, B) == [100]


def test_deletes_of_several_lanes_that_are_read_back_count_once(table: Table) -> None:
    put_entries(table, A, 100, 200)
    put_entries(table, B, 100, 200)
    batch = [key for each in (A, B) for key, _ in table.find_due(1_000, 1, ALL, each)]
    table.apply_records([(batch[0], None)], 5, NOW_MS)  # Before it is forgotten …
    table.delete_scanned_rows(batch)
    table.apply_records([(batch[1], None)], 6, NOW_MS)  # … and after.
    assert (table.waiting, len(table.scan_entries(b"", ALL))) == (2, 2)


def test_a_delete_that_is_read_back_counts_once_though_another_lane_is_forgotten_first(table: Table) -> None:
    put_entries(table, A, 100)
    put_entries(table, B, 100)
    one, other = ([key for key, _ in table.find_due(1_000, ALL, ALL, each)] for each in (A, B))
    table.apply_records([(one[0], None)], 3, NOW_MS)
    table.delete_scanned_rows(other)
    table.delete_scanned_rows(one)
    assert (table.waiting, table.scan_entries(b"", ALL)) == (0, [])


def test_a_thousand_lanes_with_nothing_due_are_not_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = rocks(tmp_path / "table")
    for n in range(1_000):
        table.apply_records([(plain_key(10_000 + n, lane=lane(n)), b"")], n + 1, NOW_MS)
    table.close()
    table = rocks(tmp_path / "table")  # Where the rows of each lane begin is known from the start.
    looks: list[bytes] = []
    scan = table._db.scan

    def note_and_scan(start: bytes, *rest: object) -> object:
        looks.append(start)
        return scan(start, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(table._db, "scan", note_and_scan)
    assert (len(table.list_lanes()), table.find_due_lanes(9_999), looks) == (1_000, [], [])
    assert table.find_due_lanes(10_001) == [lane(0), lane(1)]
    assert deliver(table, 10_001, *table.find_due_lanes(10_001)) == [10_000, 10_001]
    assert (len(looks), table.find_due_lanes(10_001), len(table.list_lanes())) == (2, [], 998)
    table.close()
