"""Tables that share a budget for unwritten rows use what their rows need of it."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from retry import clock
from retry.delay_queue import entry_keys
from retry.delay_queue.table.interface import Identity
from retry.delay_queue.table.rocksdb_table import Memory, RocksTable

TABLES, ROWS = 64, 20
NOW_MS = 1_700_000_000_000


def test_a_few_rows_in_each_of_many_tables_make_no_more_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No table grows old enough to be written for its age.
    monkeypatch.setattr(clock, "monotonic_s", lambda: 0.0)
    memory = Memory(64 << 20)
    with ExitStack() as opened:
        identities = [Identity("cluster", "topic", n) for n in range(TABLES)]
        tables = [opened.enter_context(closing(RocksTable(tmp_path / str(i.partition), i, memory))) for i in identities]
        for number in range(ROWS):
            key = entry_keys.build_key(number, entry_keys.build_key_stem("letters", 0), number)
            for table in tables:
                table.apply_records([(key, b"v" * 600)], number + 1, NOW_MS)
        assert [table.waiting for table in tables] == [ROWS] * TABLES
        # Of the first records, which are written at once.
        assert len(list(tmp_path.rglob("*.sst"))) == TABLES
