"""What a table promises of entries in blocks: that nobody who reads it, and nobody who ends some of them, need know of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.delay_queue import blocks, entry_keys
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delay_queue.table.rocksdb_table import RocksTable
from retry.delivery.movers import list_nulls
from retry.intake.gather_blocks import encode_block
from retry.testing.memory_table import MemoryTable
from tests.support.blocks import LANE, NOW_MS, SHARED, block_of, letters_of
from tests.support.tables import ALL, everything, list_rows, plain_key, rocks

BLOCKS = entry_keys.build_block_lane(LANE + bytes(8))
FAR_MS = NOW_MS + 1_000_000


@pytest.fixture(params=["memory", "rocks"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    made: Table = rocks(tmp_path / "table") if request.param == "rocks" else MemoryTable()
    yield made
    made.close()


def fold(table: Table, *rows: ChangelogRow) -> None:
    assert not table.apply_records(rows, table.next_offset + len(rows), NOW_MS)


def keys_of(block: tuple[bytes, bytes]) -> list[bytes]:
    return blocks.list_keys(block[0])


def test_its_entries_are_there_one_by_one(table: Table) -> None:
    block = block_of(20)
    fold(table, block)
    rows = dict(blocks.list_rows(*block))
    assert (everything(table), table.waiting, table.list_lanes()) == (rows, 20, [BLOCKS])
    assert {key: table.get(key) for key in rows} == rows
    assert table.get(keys_of(block_of(20, first=7_000))[0]) is None
    assert table.find_blocks([*rows, *keys_of(block_of(3, first=100))]) == [block]


def test_one_that_leaves_and_comes_back_in_one_fold_counts_once(table: Table) -> None:
    block = block_of(20)
    fold(table, block)
    fold(table, (block[0], None), block)
    assert (table.waiting, len(everything(table))) == (20, 20)


def test_it_is_due_as_a_whole_with_the_last_of_its_entries(table: Table) -> None:
    first, second = block_of(20), block_of(5, due_ms=NOW_MS + 1_000)
    fold(table, first, second)
    assert (table.find_due_lanes(NOW_MS + 18), table.find_due_lanes(NOW_MS + 19)) == ([], [BLOCKS])
    assert table.find_due(NOW_MS + 18, ALL, ALL, BLOCKS) == []
    assert table.find_due(NOW_MS + 19, 1, ALL, BLOCKS) == [first]
    assert table.find_due(FAR_MS, 20, ALL, BLOCKS) == [first]
    assert table.find_due(FAR_MS, 21, ALL, BLOCKS) == [first, second]
    table.delete_scanned_rows([first[0], second[0]])
    assert (table.waiting, table.find_due(FAR_MS, ALL, ALL, BLOCKS)) == (0, [])
    fold(table, (first[0], None), (second[0], None))
    assert (table.waiting, everything(table)) == (0, {})


def test_it_ends_with_a_null_that_somebody_else_wrote(table: Table) -> None:
    block, other = block_of(20), block_of(20, first=500)
    fold(table, block, other)
    fold(table, (block[0], None))
    fold(table, (block[0], None))
    assert (table.waiting, everything(table)) == (20, dict(blocks.list_rows(*other)))


@pytest.mark.parametrize("folded", [0, 1, 2, 3])
def test_those_that_stay_are_there_at_once_whatever_the_fold_has_told(table: Table, folded: int) -> None:
    block = block_of(4)
    fold(table, block)
    keys = keys_of(block)
    records = list_nulls(table, keys[:2])
    assert records == [*blocks.list_rows(*block)[2:], (block[0], None)]
    for record in records[:folded]:
        fold(table, record)
    table.delete_rows(keys[:2])
    stay = dict(blocks.list_rows(*block)[2:])
    assert everything(table) == stay
    for record in records[folded:]:
        fold(table, record)
    assert (everything(table), table.waiting) == (stay, 2)


def test_those_that_stayed_and_were_sent_do_not_come_back_to_life(table: Table) -> None:
    block = block_of(4)
    fold(table, block)
    keys = keys_of(block)
    records = list_nulls(table, keys[:2])
    table.delete_rows(keys[:2])
    due = table.find_due(FAR_MS, ALL, ALL, LANE)
    assert [key for key, _ in due] == keys[2:]
    table.delete_scanned_rows(keys[2:])
    assert all(table.is_leaving(key) for key in keys[2:])
    for record in [*records, *((key, None) for key in keys[2:])]:
        fold(table, record)
        assert everything(table) == {}
    assert (table.waiting, table.is_leaving(keys[2])) == (0, False)


@pytest.mark.parametrize("leaves", ["delete_scanned_rows", "delete_rows"])
@pytest.mark.parametrize("when", ["before", "after", "never"])
def test_all_count_once_whenever_the_fold_tells_of_them(table: Table, leaves: str, when: str) -> None:
    block, sent = block_of(8), keys_of(block_of(8))[4:]
    fold(table, block)
    records = list_nulls(table, keys_of(block)[:4])
    table.delete_rows(keys_of(block)[:4])
    assert table.waiting == 4
    due = [key for key, _ in table.find_due(FAR_MS, ALL, ALL, LANE)]
    assert due == sent
    ended = [*records, *((key, None) for key in sent)]
    if when == "before":
        fold(table, *ended)
        assert table.waiting == 0
    getattr(table, leaves)(sent)
    if when == "after":
        fold(table, *ended)
    assert (table.waiting, everything(table)) == (0, {})


@pytest.mark.parametrize("left", [0, 4])
def test_those_that_stay_count_once_after_a_restart_before_the_fold_has_told_of_them(tmp_path: Path, left: int) -> None:
    table, block = rocks(tmp_path / "table"), block_of(8)
    fold(table, block)
    records = list_nulls(table, keys_of(block)[:left]) if left else [*blocks.list_rows(*block), (block[0], None)]
    table.delete_rows(keys_of(block)[:left]) if left else table.explode([block[0]])
    table.close()
    table = rocks(tmp_path / "table")
    assert table.waiting == 8 - left
    fold(table, *records, (plain_key(NOW_MS, 99), b"\x91\x01"))
    assert table.waiting == len(everything(table)) == 9 - left
    assert len(table.find_due(FAR_MS, ALL, ALL, LANE)) == 8 - left
    table.close()


@pytest.mark.parametrize("other", [{"destination": "elsewhere"}, {"team": "another"}])
def test_one_in_the_lane_of_others_is_passed_over(table: Table, other: dict[str, str]) -> None:
    """The lane of its first entry is taken for that of all: theirs would wait for what keeps this one."""
    foreign = encode_block(SHARED._replace(**other), letters_of(3))
    (unreadable,) = table.apply_records([foreign, block_of(4, first=50)], 2, NOW_MS)
    assert (unreadable.key, table.waiting) == (foreign[0], 4)


def test_they_are_met_before_all_that_are_in_no_block(table: Table) -> None:
    """So whoever reads page by page meets those that leave their block meanwhile."""
    blocks_of = [block_of(8, first=100 * n, due_ms=NOW_MS + 1_000 * n) for n in range(3)]
    alone = [(plain_key(NOW_MS, n, LANE), b"\x91\x01") for n in range(4)]
    fold(table, *blocks_of, *alone)
    at, pages = b"", []
    while page := table.scan_entries(at, 2):
        pages.append([key for _, key, _ in page])
        at = page[-1][0]
    assert pages == [*map(keys_of, blocks_of), [alone[0][0], alone[1][0]], [alone[2][0], alone[3][0]]]


def test_one_that_stayed_left_and_comes_back_as_it_was_waits_again(table: Table) -> None:
    block = block_of(4)
    fold(table, block)
    table.explode([block[0]])
    rows = blocks.list_rows(*block)
    key = rows[1][0]
    table.delete_rows([key])
    # Of the records of one key in one read the last one counts.
    fold(table, *rows, (block[0], None), (key, None))
    assert table.get(key) is None
    fold(table, rows[1])
    assert (table.get(key), table.waiting) == (rows[1][1], 4)


def test_exploded_its_entries_wait_as_others_do(table: Table) -> None:
    block = block_of(4)
    fold(table, block)
    table.explode([block[0]])
    rows = blocks.list_rows(*block)
    assert (table.find_due(FAR_MS, ALL, ALL, LANE), table.find_due(FAR_MS, ALL, ALL, BLOCKS)) == (rows, [])
    fold(table, *rows, (block[0], None))
    assert (everything(table), table.waiting) == (dict(rows), 4)


def test_what_no_version_wrote_is_passed_over(table: Table) -> None:
    key, value = block_of(4)
    unreadable = table.apply_records([(key, value[:-1]), (key[:-1], value), (key, block_of(3)[1])], 3, NOW_MS)
    assert (len(unreadable), everything(table), table.waiting) == (3, {}, 0)


def test_the_estimate_counts_entries(table: Table) -> None:
    for n in range(100):
        fold(table, block_of(10, first=100 * n, due_ms=NOW_MS + 1_000 * n))
    until = [NOW_MS + 1_500, NOW_MS + 20_500, NOW_MS + 200_000]
    counted = table.estimate_due(until, 100_000)
    assert (counted.first_ms, counted.due) == (NOW_MS + 9, [20, 210, 1_000])
    estimated = table.estimate_due(until, 64)
    assert estimated.due[0] == 20
    assert 100 < estimated.due[1] < 400
    assert 500 < estimated.due[2] <= 1_000


def test_an_estimate_reads_few_blocks_since_each_is_large(tmp_path: Path) -> None:
    table = rocks(tmp_path / "table")
    try:
        fold(table, *(block_of(10, first=100 * n, due_ms=NOW_MS + 100 * n) for n in range(3_000)))
        asked, keys = list[int](), table._db.scan_keys

        def count_keys(start: bytes, end: bytes, rows_max: int) -> list[bytes]:
            asked.append(len(found := keys(start, end, rows_max)))
            return found

        table._db.scan_keys = count_keys  # type: ignore[method-assign]
        estimated = table.estimate_due([NOW_MS + 60_000, NOW_MS + 300_000], 2_500).due
        assert sum(asked) < 250
        assert estimated == [pytest.approx(6_000, rel=0.3), pytest.approx(30_000, rel=0.3)]
    finally:
        table.close()


def test_of_many_blocks_of_one_moment_that_of_a_letter_is_found(table: Table) -> None:
    # Every other letter, so that each block lies within the numbers of another.
    made = [block_of(20, first=40 * n + odd, apart=2) for n in range(60) for odd in (0, 1)]
    fold(table, *made)
    for block in made[::7]:
        assert table.find_blocks(keys_of(block)[5:7]) == [block]


class Life:
    """A changelog partition, the table that is its fold, and what waits."""

    def __init__(self, path: Path | None, seed: int) -> None:
        self.random, self.path = Random(seed), path
        self.table: Table = MemoryTable() if path is None else rocks(path)
        self.log: list[ChangelogRow] = []
        self.wait: dict[bytes, bytes] = {}
        self.put = 0

    def step(self) -> None:
        draw = self.random.random()
        if draw < 0.3:
            self.take_in()
        elif draw < 0.6:
            self.fold()
        elif draw < 0.8:
            self.end_some()
        elif draw < 0.9:
            self.sweep()
        elif isinstance(self.table, RocksTable) and self.path is not None:
            # What was not folded is folded before anything else happens, as a shard that is opened does.
            self.table.close()
            self.table = rocks(self.path)
            self.fold(whole=True)

    def take_in(self) -> None:
        count = self.random.randint(1, 6)
        row = block_of(count, first=self.put, due_ms=NOW_MS + self.random.randint(0, 60), apart=self.random.randint(1, 3))
        self.put += 100
        self.log.append(row)

    def fold(self, *, whole: bool = False) -> None:
        at = self.table.next_offset
        some = self.log[at : len(self.log) if whole else at + self.random.randint(1, 5)]
        for key, value in some:
            if value is not None:
                self.wait.update({key: e for key, e in blocks.list_rows(key, value) if e is not None and key not in self.ended})
        self.table.apply_records(some, at + len(some), NOW_MS)

    @property
    def ended(self) -> set[bytes]:
        return self.__dict__.setdefault("_ended", set())

    def end_some(self) -> None:
        if not self.wait:
            return
        keys = self.random.sample(sorted(self.wait), self.random.randint(1, min(5, len(self.wait))))
        self.log += list_nulls(self.table, keys)
        if self.random.random() < 0.3:
            self.fold()
        self.table.delete_rows(keys)
        self._gone(keys)

    def sweep(self) -> None:
        for lane in self.table.find_due_lanes(FAR_MS):
            rows = self.table.find_due(FAR_MS, self.random.randint(1, 8), ALL, lane)
            if lane == BLOCKS and self.random.random() < 0.3:
                self.log += blocks.split_blocks(rows, ())
                self.table.explode([key for key, _ in rows])
                continue
            self.log += [(key, None) for key, _ in rows]
            self.table.delete_scanned_rows([key for key, _ in rows])
            self._gone([entry for key, _ in rows for entry, _ in blocks.list_rows(key, None)])

    def _gone(self, keys: list[bytes]) -> None:
        for key in keys:
            del self.wait[key]
        self.ended.update(keys)

    def check(self) -> None:
        rows = list_rows(self.table)
        assert dict(rows) == self.wait
        assert {key: self.table.get(key) for key in self.wait} == self.wait


@given(st.integers(0, 1 << 30), st.booleans())
def test_whatever_happens_to_blocks_each_entry_waits_until_it_ends(seed: int, on_disk: bool) -> None:
    with TemporaryDirectory() as scratch:
        life = Life(Path(scratch) / "table" if on_disk else None, seed)
        for _ in range(60):
            life.step()
            life.check()
        life.fold(whole=True)
        life.check()
        assert life.table.waiting == len(life.wait) == len(everything(life.table))
        life.table.close()
