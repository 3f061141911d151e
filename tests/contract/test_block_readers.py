"""What whoever reads a table is told of letters in blocks: each once, with its own name, due time and contents."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from retry.delay_queue import blocks, envelopes
from retry.delay_queue.entry_keys import Source, read_source
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delay_queue.table.table_directory import open_stored
from retry.operations import waiting_entries
from tests.support.blocks import NOW_MS, TOPIC, block_of
from tests.support.tables import MEMORY, rocks

# The times at which their letters are due overlap: 0 to 4, 2 to 6 and 3 to 7 milliseconds later.
FIRST, SECOND, THIRD = block_of(5), block_of(5, first=100, due_ms=NOW_MS + 2), block_of(5, first=50, due_ms=NOW_MS + 3)
FAR = block_of(5, first=500, due_ms=NOW_MS + 1_000)
ALONE = [block_of(1, first=900 + n, due_ms=NOW_MS + due_ms) for n, due_ms in enumerate((-10, 2, 30, 2_000))]
RECORDS = [ALONE[2], FAR, SECOND, ALONE[0], FIRST, ALONE[3], THIRD, ALONE[1]]
SENT, STAY = (0, 3), (1, 2, 4)


def list_letters(first: int, due_ms: int, numbers: Iterable[int] = range(5)) -> list[tuple[Source, bytes]]:
    """Sources and values of letters that were written together."""
    return [(Source(NOW_MS + due_ms + n, TOPIC, 0, first + n), b"value %d" % n) for n in numbers]


ALL_ALONE = [
    *list_letters(900, -10, [0]), *list_letters(901, 2, [0]), *list_letters(902, 30, [0]), *list_letters(903, 2_000, [0]),
]  # fmt: skip
OF_FIRST, OF_OTHERS = list_letters(0, 0), [*list_letters(100, 2), *list_letters(50, 3), *list_letters(500, 1_000)]
EVERYTHING = sorted([*ALL_ALONE, *OF_FIRST, *OF_OTHERS])


def end_first(how: str) -> list[ChangelogRow]:
    """The records of what becomes of the first block: `exploded` when some of its letters are sent, `ended`, or `left`."""
    if how == "left":
        return []
    keys = blocks.list_keys(FIRST[0])
    return list(blocks.split_blocks([FIRST], [keys[n] for n in SENT])) if how == "exploded" else [(FIRST[0], None)]


def fold(table: Table, records: Iterable[ChangelogRow]) -> None:
    rows = list(records)
    assert not table.apply_records(rows, table.next_offset + len(rows), NOW_MS)


def list_entries(entries: Iterable[tuple[Source, Entry]]) -> list[tuple[Source, bytes | None]]:
    return [(where, entry.value) for where, entry in entries]


@pytest.fixture
def full_table(table: Table) -> Table:
    """A table with four blocks beside entries that have records of their own."""
    fold(table, RECORDS)
    return table


def test_letters_of_blocks_are_listed_once_in_the_order_in_which_they_are_due(full_table: Table) -> None:
    assert list_entries(waiting_entries.iterate_entries(full_table)) == EVERYTHING
    assert sorted(map(read_source, dict(waiting_entries.scan_rows(full_table)))) == [where for where, _ in EVERYTHING]
    fold(full_table, [(FIRST[0], None)])
    assert list_entries(waiting_entries.iterate_entries(full_table)) == sorted([*ALL_ALONE, *OF_OTHERS])


def test_a_list_goes_on_behind_any_letter_of_a_block(full_table: Table) -> None:
    whole = [(place, where) for place, where, _ in waiting_entries.iterate_waiting(full_table, b"")]
    for at, (place, _) in enumerate(whole):
        rest = [where for _, where, _ in waiting_entries.iterate_waiting(full_table, place)]
        assert rest == [where for _, where in whole[at + 1 :]]


def test_letters_of_a_block_that_was_exploded_are_listed_once(full_table: Table) -> None:
    fold(full_table, end_first("exploded"))
    stayed = [*ALL_ALONE, *list_letters(0, 0, STAY), *OF_OTHERS]
    assert list_entries(waiting_entries.iterate_entries(full_table)) == sorted(stayed)


def test_each_letter_of_a_block_is_found(full_table: Table) -> None:
    for where, value in EVERYTHING:
        entry = waiting_entries.find(full_table, where)
        assert entry is not None
        assert (entry.value, dict(entry.headers)["retry-source"]) == (value, b"%b/0/%d" % (TOPIC.encode(), where.offset))
        found = waiting_entries.find_entry(full_table, TOPIC, 0, where.offset)
        assert found is not None
        assert (read_source(found.key), found.entry, found.head) == (where, entry, None)
    others = [Source(NOW_MS + 1, TOPIC, 0, 0), Source(NOW_MS, TOPIC, 0, 5), Source(NOW_MS + 5, TOPIC, 0, 5)]
    assert [waiting_entries.find(full_table, where) for where in others] == [None] * 3
    assert waiting_entries.find_entry(full_table, TOPIC, 0, 5) is None


@pytest.mark.parametrize("ends", ["exploded", "ended"])
def test_of_a_block_that_is_no_more_only_what_stays_is_found(full_table: Table, ends: str) -> None:
    fold(full_table, end_first(ends))
    found = {where.offset for where, _ in OF_FIRST if waiting_entries.find(full_table, where) is not None}
    assert found == (set(STAY) if ends == "exploded" else set())
    by_source = {
        where.offset for where, _ in OF_FIRST if waiting_entries.find_entry(full_table, TOPIC, 0, where.offset) is not None
    }
    assert by_source == found
    assert all(waiting_entries.find(full_table, where) is not None for where, _ in [*ALL_ALONE, *OF_OTHERS])


@pytest.mark.parametrize("first", ["left", "exploded", "ended"])
def test_a_table_on_disk_is_read_letter_by_letter(tmp_path: Path, first: str) -> None:
    table = rocks(tmp_path / "table")
    fold(table, RECORDS)
    fold(table, end_first(first))
    table.close()
    (tmp_path / "beside").mkdir()
    of_first = {"left": OF_FIRST, "exploded": list_letters(0, 0, STAY), "ended": []}[first]
    wanted = sorted([*ALL_ALONE, *of_first, *OF_OTHERS])
    with open_stored(tmp_path / "table", tmp_path / "beside", MEMORY) as stored:
        assert stored is not None
        rows = list(stored.rows)
        assert sorted((read_source(key), envelopes.decode(envelope).value) for key, envelope in rows) == wanted
        assert (stored.waiting, list(stored.strange)) == (len(wanted), [])
