"""A fold that failed leaves portions behind that nobody folds: what follows them must not be folded either."""

from __future__ import annotations

from typing import Any

import pytest

from retry.errors import DataDirUnusable
from retry.worker.engine import Engine


class Shard:
    def __init__(self, fails: bool = False) -> None:
        self.folded: list[str] = []
        self._fails = fails

    def apply_messages(self, messages: Any) -> None:
        if self._fails:
            raise DataDirUnusable("tables/0", "No space left on device")
        self.folded += messages


def test_after_a_failed_fold_nothing_is_folded() -> None:
    # Of an engine nothing but this is needed, and the rest wants brokers.
    engine = Engine.__new__(Engine)
    engine._cut_short = False
    fine, failing = Shard(), Shard(fails=True)
    engine.apply_portions([(fine, ["1"]), (fine, ["2"])])  # type: ignore[list-item]
    with pytest.raises(DataDirUnusable):
        engine.apply_portions([(failing, ["1"]), (fine, ["3"])])  # type: ignore[list-item]
    engine.apply_portions([(fine, ["4"])])  # type: ignore[list-item]
    assert fine.folded == ["1", "2"]
