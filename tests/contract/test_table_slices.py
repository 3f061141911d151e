"""Slices of actions in either table: beside the entries, in the order of their keys, and there again after a restart."""

from __future__ import annotations

from pathlib import Path

from retry.delay_queue import action_records, ramp_records
from retry.delay_queue.action_records import SLICE
from retry.delay_queue.table.interface import ChangelogRow, Table
from tests.support.tables import ALL, NOW_MS, everything, plain_key, rocks

ONE, TWO = b"\x01" * action_records.ACTION_BYTES, b"\xff" * action_records.ACTION_BYTES
KEYS = [action_records.build_slice_key(ONE, step, number) for step in (0, 1) for number in (0, 1, 300)]
LAST = action_records.build_slice_key(TWO, 0xFFFF, 0xFFFFFFFF)
VALUE = action_records.encode_slice([], NOW_MS)


def fold(table: Table, *rows: ChangelogRow) -> None:
    table.apply_records(list(rows), table.next_offset + len(rows), NOW_MS)


def keys(table: Table, prefix: bytes = SLICE, rows_max: int = ALL, after: bytes = b"") -> list[bytes]:
    return [key for key, _ in table.list_slices(prefix, rows_max, after)]


def test_a_new_table_has_none(table: Table) -> None:
    assert (table.has_slices, table.list_slices(SLICE, ALL)) == (False, [])


def test_slices_come_by_action_step_and_number(table: Table) -> None:
    fold(table, *((key, VALUE) for key in [LAST, *reversed(KEYS)]))
    assert table.has_slices
    assert keys(table) == [*KEYS, LAST]
    assert keys(table, action_records.build_slices_prefix(ONE)) == KEYS
    assert keys(table, action_records.build_slices_prefix(TWO), 1) == [LAST]


def test_reading_goes_on_behind_a_slice_or_all_of_an_action(table: Table) -> None:
    fold(table, *((key, VALUE) for key in [*KEYS, LAST]))
    assert keys(table, SLICE, 2, KEYS[1]) == KEYS[2:4]
    assert keys(table, action_records.build_slices_prefix(ONE), ALL, KEYS[-1]) == []
    assert keys(table, SLICE, ALL, action_records.build_end_key(SLICE + ONE)) == [LAST]


def test_slices_are_neither_entries_nor_controls(table: Table) -> None:
    fold(table, (plain_key(100), b"v"), (KEYS[0], VALUE), (LAST, VALUE))
    assert (everything(table), table.waiting, dict(table.controls)) == ({plain_key(100): b"v"}, 1, {})
    assert table.list_lanes() == [plain_key(100)[:9]]


def test_a_null_ends_a_slice_and_what_is_left_of_one_takes_its_place(table: Table) -> None:
    fold(table, (KEYS[0], VALUE), (KEYS[1], VALUE))
    left = action_records.encode_slice([], NOW_MS + 1)
    fold(table, (KEYS[0], None), (KEYS[1], left))
    assert (table.has_slices, table.list_slices(SLICE, ALL)) == (True, [(KEYS[1], left)])
    fold(table, (KEYS[1], None), (KEYS[2], None))
    assert (table.has_slices, table.list_slices(SLICE, ALL)) == (False, [])


def test_slices_are_there_when_a_table_is_opened_anew(tmp_path: Path) -> None:
    table = rocks(tmp_path / "table")
    fold(table, (KEYS[0], VALUE))
    table.close()
    again = rocks(tmp_path / "table")
    assert (again.has_slices, again.list_slices(SLICE, ALL)) == (True, [(KEYS[0], VALUE)])
    fold(again, (KEYS[0], None))
    again.close()
    third = rocks(tmp_path / "table")
    assert not third.has_slices
    third.close()


def test_letters_that_are_sent_keep_a_shard_at_work_and_marks_of_those_that_failed_do_not(table: Table) -> None:
    sending, failed = (
        ramp_records.build_sending_key(ONE, 1, 0, 0),
        [ramp_records.build_failed_row(ONE, 1, n, 5, team=7) for n in (2, 1)],
    )
    marks = [(row["key"], row["value"]) for row in failed]
    fold(table, *marks, (sending, VALUE))
    assert table.has_slices
    assert keys(table, ramp_records.build_sending_prefix(ONE)) == [sending]
    assert table.list_slices(ramp_records.build_failed_prefix(ONE), ALL) == sorted(marks)
    assert keys(table, ramp_records.build_failed_prefix(ONE, 1)) == sorted(key for key, _ in marks)
    assert keys(table, ramp_records.build_failed_prefix(ONE, 0)) == keys(table, ramp_records.build_failed_prefix(TWO)) == []
    fold(table, (sending, None))
    assert not table.has_slices
    assert (everything(table), table.waiting, dict(table.controls)) == ({}, 0, {})
