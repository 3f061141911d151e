"""Files of a table damaged in every way, after twenty histories: the table answers as the changelog says, or says that it cannot.

The changelog is a list here. A damaged table is opened, folded on from where it says that it is, and read whole, as a worker
does it; one that says it is unreadable is wiped and folded anew. What comes out must be the fold of the list, row by row.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from retry.delay_queue.table.interface import ChangelogRow
from retry.delay_queue.table.rocksdb_table import Memory, RocksTable, destroy_database
from retry.errors import TableUnreadable
from retry.testing.memory_table import MemoryTable
from tests.support.faults import Runs
from tests.support.process import await_that
from tests.support.tables import ALL, DAY_MS, IDENTITY, NOW_MS, everything, ordered_key, plain_key

SEEDS = range(20)
RECORDS = 1_500
DAMAGED_BYTES = 4 << 10
Harm = Callable[[bytearray, int], None]
# There is a WAL, but nothing in it.
FILES = {"SST": "*.sst", "WAL": "*.log", "MANIFEST": "MANIFEST-*", "CURRENT": "CURRENT"}


def open_table(path: Path) -> RocksTable:
    """With a cache of its own: blocks that another table has read would hide what is wrong with the file."""
    return RocksTable.open(path, IDENTITY, Memory(8 << 20), NOW_MS, DAY_MS)


def history(draw: random.Random) -> list[ChangelogRow]:
    """A changelog: entries put, some of them delivered in the order of their due times, some of them ordered."""
    log: list[ChangelogRow] = []
    waiting: list[bytes] = []
    for offset in range(RECORDS):
        if waiting and draw.random() < 0.4:
            log.append((waiting.pop(draw.randrange(min(20, len(waiting)))), None))
            continue
        if draw.random() < 0.1:
            key = ordered_key(draw.randrange(10_000), offset, b"%d" % draw.randrange(5))
        else:
            key = plain_key(draw.randrange(10_000), offset)
        waiting.append(key)
        waiting.sort()
        log.append((key, draw.randbytes(draw.randrange(400))))
    return log


def fold_on(table: RocksTable | MemoryTable, log: list[ChangelogRow], draw: random.Random, flush: float = 0.0) -> None:
    """Fold the rest of the changelog in batches, and have the database write a sorted file now and then."""
    while table.next_offset < len(log):
        at = table.next_offset
        rows = log[at : at + draw.choice((1, 5, 200))]
        table.apply_records(rows, at + len(rows), NOW_MS)
        if draw.random() < flush:
            table._db._handle.flush()  # type: ignore[union-attr]


def grow_table(path: Path, log: list[ChangelogRow], draw: random.Random) -> None:
    """A table at `path` as a killed worker leaves it: some of it in sorted files, the rest wherever it is."""
    running = open_table(path.with_suffix(".running"))
    fold_on(running, log[: draw.randrange(RECORDS // 2, RECORDS)], draw, flush=0.2)
    await_that("nothing changes while the files are copied", lambda: copy_of_one_moment(running.path, path))
    running.close()


@pytest.fixture(scope="module")
def killed_tables(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[list[ChangelogRow], Path]]:
    """Changelogs by seed, each with what a worker leaves behind that is killed somewhere on its way through it."""
    folder, found = tmp_path_factory.mktemp("killed"), []
    for seed in SEEDS:
        draw = random.Random(seed)
        log, path = history(draw), folder / str(seed)
        grow_table(path, log, draw)
        found.append((log, path))
    return found


def copy_of_one_moment(source: Path, path: Path) -> bool:
    """Whether the copy is of one moment, as a kill is."""
    shutil.rmtree(path, ignore_errors=True)
    try:
        before = {file.name: file.read_bytes() for file in source.iterdir() if file.is_file() and file.name != "LOCK"}
    except FileNotFoundError:
        return False
    path.mkdir()
    for name, content in before.items():
        (path / name).write_bytes(content)
    return before.keys() == {file.name for file in source.iterdir() if file.is_file() and file.name != "LOCK"}


def flip(content: bytearray, at: int) -> None:
    content[at : at + DAMAGED_BYTES] = bytes(byte ^ 0xFF for byte in content[at : at + DAMAGED_BYTES])


def zero(content: bytearray, at: int) -> None:
    content[at : at + DAMAGED_BYTES] = bytes(len(content[at : at + DAMAGED_BYTES]))


def cut(content: bytearray, at: int) -> None:
    del content[at:]


def damage(path: Path, pattern: str, harm: Harm, draw: random.Random) -> bool:
    """Harm one of the files of this kind somewhere; whether there is one."""
    files = sorted(file for file in path.glob(pattern) if file.stat().st_size)
    if files:
        file = draw.choice(files)
        content = bytearray(file.read_bytes())
        harm(content, draw.randrange(len(content)))
        file.write_bytes(content)
    return bool(files)


def restore_table(path: Path, log: list[ChangelogRow]) -> tuple[dict[bytes, bytes], list[bytes]]:
    """All rows, and the keys that are due one after another, of a table opened and folded to the end."""
    for _ in range(2):
        table = open_table(path)
        try:
            fold_on(table, log, random.Random(0))
            return everything(table), deliver_all(table)
        except TableUnreadable:
            pass
        finally:
            table.close()
        destroy_database(path)
    pytest.fail("a table that was wiped is unreadable")


def deliver_all(table: RocksTable | MemoryTable) -> list[bytes]:
    """List what a worker sends, in its order, until nothing is left."""
    keys: list[bytes] = []
    while lanes := table.find_due_lanes(NOW_MS):
        found = [key for key, _ in table.find_due(NOW_MS, 500, ALL, lanes[0])]
        assert found, "a lane that says it has something due, and has not"
        table.delete_scanned_rows(found)
        keys += found
    assert table.waiting == 0
    return keys


@pytest.mark.slow
@pytest.mark.fault("table file damaged (SST, WAL, MANIFEST, CURRENT)")
@pytest.mark.parametrize("harm", [flip, zero, cut])
@pytest.mark.parametrize("kind", FILES)
def test_a_damaged_file_is_noticed_and_the_table_is_what_the_changelog_says(
    tmp_path: Path, killed_tables: list[tuple[list[ChangelogRow], Path]], kind: str, harm: Harm, runs: Runs
) -> None:
    wrong = []
    for seed in SEEDS:
        log, left = killed_tables[seed]
        draw, path = random.Random(seed), tmp_path / str(seed)
        shutil.copytree(left, path)
        if not damage(path, FILES[kind], harm, draw):
            continue
        runs.add()
        expected = MemoryTable()
        expected.apply_records(log, len(log), NOW_MS)
        rows, due = restore_table(path, log)
        if rows != everything(expected):
            missing, more = len(everything(expected).keys() - rows), len(rows.keys() - everything(expected))
            wrong.append(f"seed {seed}: {missing} missing, {more} come to life")
        elif sorted(due) != sorted(rows):
            wrong.append(f"seed {seed}: delivered {len(due)} of {len(rows)}")
    assert runs.count or kind == "WAL"
    assert wrong == []
