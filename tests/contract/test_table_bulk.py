"""A table that is filled in bulk is the one that is folded as usual, row by row, whatever the log and whoever was killed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retry.delay_queue.table import rocksdb
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delay_queue.table.rocksdb_table import RocksTable
from retry.testing.memory_table import MemoryTable
from retry.worker.shards import restore
from retry.worker.shards.restore import RestoreProgress
from tests.support.process import await_that
from tests.support.tables import ALL, NOW_MS, cancel, everything, lane, named_key, ordered_key, plain_key, rocks

PAUSE = b"\x10pause/all/"


def log(seed: int, length: int) -> list[ChangelogRow]:
    """Puts, nulls with a put and without, queues, names that are replaced and cancelled, and controls."""
    chance, rows, version = random.Random(seed), list[ChangelogRow](), 0
    for offset in range(length):
        due, kind = chance.randrange(500), chance.random()
        if rows and kind < 0.3:
            rows.append((chance.choice(rows)[0], None))
        elif kind < 0.35:
            rows.append((plain_key(due, 10_000 + offset), None))
        elif kind < 0.6:
            rows.append((plain_key(due, offset, lane(chance.randrange(3))), b"plain %d" % offset))
        elif kind < 0.75:
            rows.append((ordered_key(due, offset, b"%d" % chance.randrange(4)), b"ordered %d" % offset))
        elif kind < 0.9:
            version += 1
            rows.append((named_key(due, version, b"%d" % chance.randrange(5)), b"named %d" % offset))
        elif kind < 0.95:
            version += 1
            rows.append(cancel(version, b"%d" % chance.randrange(5)))
        else:
            rows.append((PAUSE, b'{"at_ms": 1, "reason": ""}'))
    return rows


def rows_of(table: Table) -> dict[bytes, bytes]:
    """All rows as they lie there, less the state."""
    if isinstance(table, MemoryTable):
        return dict(table._rows)
    assert isinstance(table, RocksTable)
    return dict(table._db.scan(b"\x01", b"\xff", ALL, ALL)[0])


def describe_table(table: Table) -> object:
    """Describe what a table tells whoever sweeps it."""
    # A lane may be told of that has nothing any more.
    due = {each: rows for each in sorted(table.list_lanes()) if (rows := table.find_due(ALL, ALL, ALL, each))}
    return table.next_offset, table.waiting, dict(table.controls), table.list_superseded(ALL), everything(table), due


class Restore:
    """Folds a log in large steps as a shard does that has much to read; now and then it is killed, or ended in order."""

    def __init__(self, path: Path, log: list[ChangelogRow], chance: random.Random) -> None:
        self._path, self._log, self._chance, self._deaths = path, log, chance, 0
        self.in_bulk = 0

    def run(self) -> RocksTable:
        table = self._opened()
        progress = RestoreProgress(table, len(self._log))
        while progress.unread():
            progress.update_bulk_load()
            self.in_bulk += table._in_bulk
            to = min(len(self._log), table.next_offset + self._chance.randrange(1, 80))
            table.apply_records(self._log[table.next_offset : to], to, NOW_MS)
            if self._chance.random() < 0.3:
                table._db.flush()
            if self._chance.random() < 0.2:
                table = self._again(table)
                progress = RestoreProgress(table, len(self._log))
        progress.end_bulk()
        progress.update_bulk_load()
        assert not table._in_bulk
        return table

    def _opened(self) -> RocksTable:
        return rocks(self._path / f"table-{self._deaths}")

    def _again(self, table: RocksTable) -> RocksTable:
        """Open it anew, as it was written, or as a process leaves it that is killed: only what is in its files."""
        before = self._path / f"table-{self._deaths}"
        if self._chance.random() < 0.5:
            table.close()
            return self._opened()
        self._deaths += 1
        # Or files that are merged just then would vanish while they are copied.
        table._db._handle.cancel_all_background(True)
        now = self._path / f"table-{self._deaths}"
        now.mkdir()
        for file in before.iterdir():
            if file.name != "LOCK":
                (now / file.name).write_bytes(file.read_bytes())
        table.close()
        return self._opened()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "_BULK_RECORDS", 40)
    # Merging begins in the midst of it, and writers come to wait for it.
    monkeypatch.setattr(rocksdb, "_MERGED_FROM_BULK", 6)


@pytest.mark.usefixtures("few")
@given(seed=st.integers(0, 1 << 32), length=st.integers(0, 400))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bulk_and_usual_fold_make_equal_tables(tmp_path_factory: pytest.TempPathFactory, seed: int, length: int) -> None:
    rows, chance, path = log(seed, length), random.Random(seed), tmp_path_factory.mktemp("bulk")
    usual, memory = rocks(path / "usual"), MemoryTable()
    for table in (usual, memory):
        for offset, row in enumerate(rows):
            table.apply_records([row], offset + 1, NOW_MS)
    restoring = Restore(path, rows, chance)
    bulk = restoring.run()
    assert rows_of(bulk) == rows_of(usual) == rows_of(memory)
    assert describe_table(bulk) == describe_table(usual) == describe_table(memory)
    assert length <= 40 or restoring.in_bulk
    # Opened anew nothing is different: what is noted in memory follows from the rows.
    before = describe_table(bulk), rows_of(bulk)
    bulk.close()
    again = restoring._opened()
    assert (describe_table(again), rows_of(again)) == before
    for table in (again, usual):
        table.close()


def test_what_is_there_stays_whenever_a_table_is_told_of_bulk(table: Table) -> None:
    table.bulk_load(on=False)
    table.apply_records([(plain_key(1), b"a"), (named_key(2, 1), b"b")], 2, NOW_MS)
    for on in (True, True, False, False, True):
        table.bulk_load(on=on)
        assert (table.waiting, table.find_due(ALL, ALL, ALL)) == (2, [(plain_key(1), b"a")])
    table.apply_records([(plain_key(1), None)], 3, NOW_MS)
    assert (table.waiting, table.next_offset) == (1, 3)


def test_files_are_merged_when_a_table_is_filled_and_not_before(tmp_path: Path) -> None:
    table = rocks(tmp_path / "table")

    def files(level: int) -> int:
        return int(table._db._handle.property_value(f"rocksdb.num-files-at-level{level}") or 0)

    table.bulk_load(on=True)
    for number in range(rocksdb._MERGED_FROM * 5):
        table.apply_records([(plain_key(due, number), b"v") for due in range(10)], number + 1, NOW_MS)
        table._db.flush()
    assert files(0) == rocksdb._MERGED_FROM * 5
    table.bulk_load(on=False)
    await_that("merged files", lambda: files(0) < rocksdb._MERGED_FROM)
    assert table.waiting == len(table.scan_entries(b"", ALL)) == rocksdb._MERGED_FROM * 50
    table.close()
