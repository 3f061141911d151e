"""The tests of broken tables checked: where scans are not asked for their status, they must fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rocksdict import RdictIter, ReadOptions

from retry.delay_queue.table.rocksdb import Database
from tests.integration.test_table_faults import ALL, NOW_MS, ROWS, corrupt, open_table, rows

SEEDS = 8


@contextmanager
def iterate_unasked(database: Database, start: bytes, end: bytes) -> Iterator[RdictIter]:
    """`Database._iterator`, without the question."""
    options = ReadOptions()
    options.set_iterate_upper_bound(end)
    found = database._handle.iter(options)
    found.seek(start)
    yield found


def test_a_scan_that_is_not_asked_for_its_status_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Database, "_iterator", iterate_unasked)
    for seed in range(SEEDS):
        path = tmp_path / str(seed)
        table = open_table(path)
        table.apply_records(rows(), ROWS, NOW_MS)
        table._db._handle.flush()
        table.close()
        corrupt(path, seed)
        table = open_table(path)
        answer = table.find_due(NOW_MS, ALL, ALL)
        table.close()
        if answer != rows():
            print(f"after {seed + 1} seeds: {len(answer):,} of {ROWS:,} rows, and no error")
            return
    pytest.fail("every answer was whole")
