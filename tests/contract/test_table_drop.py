"""What a table promises of rows that are moved by somebody who was not handed them by a scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retry.delay_queue import entry_keys
from retry.delay_queue.table.interface import Identity, Table
from retry.delay_queue.table.rocksdb_table import Memory, RocksTable
from retry.testing.memory_table import MemoryTable

NOW_MS = 1_700_000_000_000
ALL = 1 << 30
MEMORY = Memory(8 << 20)
LANE = entry_keys.lane("team", "orders.DLT", "orders.retry", ordered=True)
ORDER = entry_keys.hash_record_key("team", "orders.DLT", b"k")

Row = tuple[bytes, bytes]


@pytest.fixture(params=["memory", "rocks"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    made = open_table(tmp_path / "table") if request.param == "rocks" else MemoryTable()
    yield made
    made.close()


def open_table(path: Path) -> RocksTable:
    return RocksTable.open(path, Identity("cluster", "topic", 0), MEMORY, NOW_MS, 1 << 40)


def plain(due_ms: int, offset: int = 0) -> bytes:
    return entry_keys.build_key(due_ms, entry_keys.build_key_stem("orders.DLT", 0), offset)


def ordered_key(due_ms: int, offset: int, partition: int = 0) -> bytes:
    return entry_keys.build_key(due_ms, ORDER + entry_keys.build_key_stem("orders.DLT", partition), offset, LANE)


def put_keys(table: Table, *keys: bytes) -> None:
    table.apply_records([(key, key) for key in keys], table.next_offset + len(keys), NOW_MS)


def move_entries(table: Table, moves: list[tuple[bytes, bytes]], *, fold_first: bool) -> None:
    """Old key to new key, as a committed transaction has it; the fold tells of it before or after, and once more."""
    records = [record for old, new in moves for record in ((new, new), (old, None))]
    if fold_first:
        table.apply_records(records, table.next_offset + len(records), NOW_MS)
    table.delete_rows([old for old, _ in moves], [(new, new) for _, new in moves])
    if not fold_first:
        table.apply_records(records, table.next_offset + len(records), NOW_MS)


def list_held_keys(table: Table) -> list[bytes]:
    return sorted([key for _, key, _ in table.scan_entries(b"", ALL)] + [key for _, key, _ in table.page_behind(b"", ALL)])


def swept(table: Table, now_ms: int) -> list[int]:
    """Offsets of letters in the order in which they go out, one batch after another."""
    found: list[int] = []
    while batch := [key for lane in table.find_due_lanes(now_ms) for key, _ in table.find_due(now_ms, ALL, ALL, lane)]:
        table.delete_scanned_rows(batch)
        table.apply_records([(key, None) for key in batch], table.next_offset + len(batch), NOW_MS)
        found += [entry_keys.read_source(key).offset for key in batch]
    return found


@pytest.mark.parametrize("fold_first", [False, True])
def test_a_row_that_moves_is_there_once_and_counted_once(table: Table, fold_first: bool) -> None:
    put_keys(table, plain(100), plain(200, 1), plain(300, 2))
    move_entries(table, [(plain(200, 1), plain(50, 1)), (plain(300, 2), plain(400, 2))], fold_first=fold_first)
    assert list_held_keys(table) == [plain(50, 1), plain(100), plain(400, 2)]
    assert table.waiting == 3
    assert swept(table, 500) == [1, 0, 2]
    assert (table.waiting, list_held_keys(table)) == (0, [])


def test_what_is_dropped_is_gone_before_the_fold_tells_of_it(table: Table) -> None:
    put_keys(table, plain(100), plain(200, 1))
    table.delete_rows([plain(100)])
    assert [key for key, _ in table.find_due(500, ALL, ALL)] == [plain(200, 1)]
    assert table.waiting == 1


def test_nothing_is_dropped_twice_and_nothing_that_is_not_there(table: Table) -> None:
    put_keys(table, plain(100), plain(200, 1), ordered_key(100, 0))
    for _ in range(2):
        table.delete_rows([plain(100), plain(100, 7), ordered_key(100, 0), ordered_key(200, 9)])
    assert (list_held_keys(table), table.waiting) == ([plain(200, 1)], 1)


def test_a_drop_below_where_a_scan_ended_leaves_the_batch_of_that_scan_alone(table: Table) -> None:
    put_keys(table, plain(100), plain(200, 1), plain(300, 2))
    batch = [key for key, _ in table.find_due(250, ALL, ALL)]
    move_entries(table, [(plain(300, 2), plain(150, 2))], fold_first=False)
    table.delete_scanned_rows(batch)
    assert (list_held_keys(table), table.waiting) == ([plain(150, 2)], 1)
    assert swept(table, 500) == [2]


def test_a_drop_moves_no_offset(table: Table) -> None:
    put_keys(table, plain(100))
    table.delete_rows([plain(100)])
    assert table.next_offset == 1


@pytest.mark.parametrize("fold_first", [False, True])
@pytest.mark.parametrize("who", [(0,), (1,), (2,), (0, 1), (1, 2), (2, 1, 0), (0, 2)])
def test_ordered_rows_that_move_keep_their_order(table: Table, who: tuple[int, ...], fold_first: bool) -> None:
    put_keys(table, *(ordered_key(100 + n, n) for n in range(3)))
    move_entries(table, [(ordered_key(100 + n, n), ordered_key(300 - n, n)) for n in who], fold_first=fold_first)
    assert list_held_keys(table) == sorted(ordered_key(300 - n if n in who else 100 + n, n) for n in range(3))
    assert table.waiting == 3
    assert swept(table, 99) == []
    assert swept(table, 500) == [0, 1, 2]
    assert (table.waiting, list_held_keys(table)) == (0, [])


@pytest.mark.parametrize("fold_first", [False, True])
def test_rows_leave_a_queue_and_join_one(table: Table, fold_first: bool) -> None:
    put_keys(table, ordered_key(100, 0), ordered_key(101, 1), plain(100, 2), plain(50, 3))
    moves = [(ordered_key(100, 0), plain(10, 0)), (plain(100, 2), ordered_key(500, 2)), (plain(50, 3), ordered_key(400, 3))]
    move_entries(table, moves, fold_first=fold_first)
    assert table.waiting == len(list_held_keys(table)) == 4
    assert swept(table, 450) == [0, 1]
    assert swept(table, 500) == [2, 3]
    assert table.waiting == 0


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_letters_of_a_partition_go_in_their_order_whichever_record_comes_first(table: Table, order: tuple[int, ...]) -> None:
    """Fold a changelog that was compacted after the first ones had been moved: their old records are gone."""
    put_keys(table, *(ordered_key(100, n) for n in order))
    assert table.waiting == 3
    assert swept(table, 500) == [0, 1, 2]
    assert table.waiting == 0


def test_letters_of_several_partitions_go_in_an_order_that_a_restore_finds_again(table: Table) -> None:
    put_keys(table, ordered_key(100, 5, partition=1))
    put_keys(table, ordered_key(100, 4, partition=0))
    assert swept(table, 500) == [4, 5]


MOVES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60), st.booleans(), st.booleans()), max_size=8)


@pytest.mark.parametrize("kind", ["memory", "rocks"])
def test_any_moves_leave_the_fold_of_the_log(tmp_path_factory: pytest.TempPathFactory, kind: str) -> None:
    @settings(max_examples=40, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(MOVES)
    def run(moves: list[tuple[int, int, bool, bool]]) -> None:
        make: Callable[[], Table] = MemoryTable if kind == "memory" else lambda: open_table(tmp_path_factory.mktemp("t") / "t")
        table = make()
        now = {n: (ordered_key if n % 2 else plain)(n * 10, n) for n in range(6)}
        put_keys(table, *now.values())
        for n, due_ms, to_ordered, fold_first in moves:
            new = (ordered_key if to_ordered else plain)(due_ms, n)
            if new != now[n]:
                move_entries(table, [(now[n], new)], fold_first=fold_first)
                now[n] = new
        assert list_held_keys(table) == sorted(now.values())
        assert table.waiting == 6
        queued = [n for n in range(6) if now[n][0] == entry_keys.ORDERED]
        out = swept(table, 1_000)
        assert [n for n in out if n in queued] == queued
        assert sorted(out) == list(range(6))
        table.close()

    run()
