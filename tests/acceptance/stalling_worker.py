"""A worker of which one thread hangs for good at a named point, as at a disk that does not answer.

    STALL_AT=<point>:<n> python -m tests.acceptance.stalling_worker

The points are patched in from outside; `n` counts how often the point is passed before it hangs.
"""

from __future__ import annotations

import os
from threading import Event, Lock
from typing import Any

from retry.delay_queue.table.rocksdb_table import RocksTable
from retry.intake.intake import Intake
from tests.acceptance.crashing_worker import patch_before

# What the watchdog is to say of each.
POINTS = {"fold": "folding", "sweep": "sweeping", "intake": "taking letters in"}


class Stall:
    """Counts passages of one point, and never comes back from the last."""

    def __init__(self, point: str, passages: int) -> None:
        self.point, self._left, self._lock = point, passages, Lock()

    def pass_by(self, point: str, *_: Any) -> None:
        """Hang here, if this is the point and the time."""
        if point == self.point:
            with self._lock:
                self._left -= 1
                hangs = self._left == 0
            if hangs:
                Event().wait()


def main() -> None:
    point, _, passages = os.environ["STALL_AT"].partition(":")
    assert point in POINTS, point
    stall = Stall(point, int(passages))
    patch_before(RocksTable, "apply_records", lambda *_: stall.pass_by("fold"))
    patch_before(RocksTable, "delete_scanned_rows", lambda *_: stall.pass_by("sweep"))
    patch_before(Intake, "write", lambda *_: stall.pass_by("intake"))
    from retry.cli.servers import worker

    worker()


if __name__ == "__main__":
    main()
