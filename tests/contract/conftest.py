"""The tables that every promise holds for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from retry.table.base import Table
from retry.table.memory import MemoryTable
from tests.support.tables import rocks


@pytest.fixture(params=["memory", "rocks"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    """A new table, of either kind."""
    made = MemoryTable() if request.param == "memory" else rocks(tmp_path / "table")
    yield made
    made.close()
