"""The tables that every promise holds for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from retry.delay_queue.table.interface import Table
from retry.testing.memory_table import MemoryTable
from tests.support.tables import rocks


@pytest.fixture(params=["memory", "rocks"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    """A new table, of either kind."""
    made = MemoryTable() if request.param == "memory" else rocks(tmp_path / "table")
    yield made
    made.close()
