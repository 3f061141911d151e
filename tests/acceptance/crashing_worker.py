"""A worker that kills itself with SIGKILL at a named point.

    CRASH_AT=<point>:<n> python -m tests.acceptance.crashing_worker

The points are patched in from outside, so that the product has no switch for them. `n` counts how often the point is
passed before the end comes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Timer
from typing import Any

from retry.delay_queue.table import rocksdb_table
from retry.delay_queue.table.entry_writers import OrderedEntries
from retry.delay_queue.table.rocksdb_table import RocksTable
from retry.kafka.client_config import Config
from retry.kafka.transactional_producer import KafkaTransactionalProducer
from retry.worker.shards import restore
from retry.worker.shards.restore import Phase
from retry.worker.shards.shard import Shard

# By the step of the protocol that they surround, each with how often it is passed before the end.
STEPS = {
    "intake": {
        "intake-before-begin": 2,
        "intake-after-begin": 2,
        "intake-after-write": 2,
        "intake-before-read-to": 2,
        "intake-after-read-to": 2,
        "intake-after-arrived": 2,
    },
    "commit": {
        "intake-before-commit": 2,
        "intake-during-commit": 2,
        "intake-after-commit": 2,
        "sweep-before-commit": 3,
        "sweep-during-commit": 3,
        "sweep-after-commit": 3,
    },
    "sweep": {
        "sweep-after-scan": 3,
        "sweep-after-begin": 3,
        "sweep-after-publish": 3,
        "sweep-after-write": 3,
        "sweep-before-read-to": 3,
        "sweep-after-read-to": 3,
        "sweep-after-forget": 3,
    },
    "apply": {
        "fold-before-write": 3,
        "fold-after-write": 3,
        "fold-in-queue": 9,
        "forget-in-queue": 9,
    },
    "restore": {
        "open-before-bounds": 1,
        "open-after-bounds": 1,
        "open-after-table": 1,
        "restore": 1,
    },
    "wipe": {
        "wipe-before": 1,
        "wipe-first-half": 1,
        "wipe-last-half": 1,
        "wipe-after": 1,
    },
}
POINTS = {point: passages for points in STEPS.values() for point, passages in points.items()}
_ACKNOWLEDGED_S = 5.0
_UNDER_WAY_S = 0.002


class Crash:
    """Counts passages of one point, and ends the process at the last."""

    def __init__(self, point: str, passages: int) -> None:
        self.point, self._left, self._lock = point, passages, Lock()

    def at(self, point: str) -> bool:
        """Whether the end is now."""
        if point != self.point:
            return False
        with self._lock:
            self._left -= 1
            return self._left == 0

    def pass_by(self, point: str) -> None:
        """End here, if this is the point and the time."""
        if self.at(point):
            end()


def end() -> None:
    """End this process as the kernel ends one that uses too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def patch_after(owner: Any, method: str, tell: Callable[..., None]) -> None:
    """Call `tell` with the arguments of a method each time when it has returned."""
    original = getattr(owner, method)

    def call_and_tell(*arguments: Any, **named: Any) -> Any:
        answer = original(*arguments, **named)
        tell(*arguments)
        return answer

    setattr(owner, method, call_and_tell)


def patch_before(owner: Any, method: str, tell: Callable[..., None]) -> None:
    """Call `tell` with the arguments of a method each time before it runs."""
    original = getattr(owner, method)

    def tell_and_call(*arguments: Any, **named: Any) -> Any:
        tell(*arguments)
        return original(*arguments, **named)

    setattr(owner, method, tell_and_call)


def arm(crash: Crash) -> None:
    """Patch every point in; those that are not named do nothing."""
    _arm_transactions(crash)
    _arm_tables(crash)
    _arm_opening(crash)


def _arm_transactions(crash: Crash) -> None:
    def name_stage(writer: Any, config: Config, _ids: object) -> None:
        writer.stage = "intake" if "-intake-" in config["transactional.id"] else "sweep"

    def make_teller(moment: str, *, arrived: bool = False) -> Callable[..., None]:
        def pass_by_point(writer: Any, *_: Any) -> None:
            point = f"{writer.stage}-{moment}"
            if arrived and crash.point == point:
                # All of it is on the broker, and undecided.
                writer._producer.flush(_ACKNOWLEDGED_S)
            crash.pass_by(point)

        return pass_by_point

    def pass_by_write(writer: Any, _topic: str, _partition: int, rows: list[Any]) -> None:
        if rows:
            make_teller("after-write", arrived=True)(writer)

    def commits(writer: Any) -> None:
        make_teller("before-commit", arrived=True)(writer)
        if crash.at(f"{writer.stage}-during-commit"):
            Timer(_UNDER_WAY_S, end).start()

    patch_after(KafkaTransactionalProducer, "__init__", name_stage)
    patch_before(KafkaTransactionalProducer, "begin", make_teller("before-begin"))
    patch_after(KafkaTransactionalProducer, "begin", make_teller("after-begin"))
    patch_after(KafkaTransactionalProducer, "publish", make_teller("after-publish", arrived=True))
    patch_after(KafkaTransactionalProducer, "write", pass_by_write)
    patch_before(KafkaTransactionalProducer, "read_to", make_teller("before-read-to", arrived=True))
    patch_after(KafkaTransactionalProducer, "read_to", make_teller("after-read-to"))
    patch_after(KafkaTransactionalProducer, "await_arrival", make_teller("after-arrived"))
    patch_before(KafkaTransactionalProducer, "commit", commits)
    patch_after(KafkaTransactionalProducer, "commit", make_teller("after-commit"))


def _arm_tables(crash: Crash) -> None:
    queueing: dict[int, str] = {}

    def make_queue_teller(stage: str) -> Callable[..., None]:
        return lambda queues, *_: queueing.update({id(queues): stage})

    patch_before(OrderedEntries, "apply_rows", make_queue_teller("fold"))
    patch_before(OrderedEntries, "replace", make_queue_teller("forget"))
    # Each ordered entry is written by itself; others of the same batch are still to come.
    patch_after(OrderedEntries, "_write", lambda queues, *_: crash.pass_by(f"{queueing[id(queues)]}-in-queue"))
    patch_after(RocksTable, "find_due", lambda *_: crash.pass_by("sweep-after-scan"))
    patch_after(RocksTable, "delete_scanned_rows", lambda *_: crash.pass_by("sweep-after-forget"))
    patch_before(RocksTable, "apply_records", lambda *_: crash.pass_by("fold-before-write"))
    patch_after(RocksTable, "apply_records", lambda *_: crash.pass_by("fold-after-write"))


def _arm_opening(crash: Crash) -> None:
    def folding(shard: Shard, *_: Any) -> None:
        if shard.phase is Phase.RESTORING:
            crash.pass_by("restore")

    def wiping(path: Path) -> None:
        crash.pass_by("wipe-before")
        files = sorted(path.iterdir())
        for point, half in (("wipe-first-half", files[: len(files) // 2]), ("wipe-last-half", files[len(files) // 2 :])):
            if crash.at(point):
                for file in half:
                    file.unlink()
                end()

    patch_before(restore, "fetch_bounds", lambda *_: crash.pass_by("open-before-bounds"))
    patch_before(restore, "table", lambda *_: crash.pass_by("open-after-bounds"))
    patch_after(restore, "table", lambda *_: crash.pass_by("open-after-table"))
    # Before the shard is called ready: all of a small changelog may come in one go.
    patch_after(Shard, "_guarded_fold", folding)
    patch_before(rocksdb_table, "destroy_database", wiping)
    patch_after(rocksdb_table, "destroy_database", lambda *_: crash.pass_by("wipe-after"))


def main() -> None:
    """Arm and run; without `CRASH_AT` an ordinary worker."""
    point, _, passages = os.environ.get("CRASH_AT", "nowhere:1").partition(":")
    assert point in {*POINTS, "nowhere"}, point
    arm(Crash(point, int(passages or 1)))
    from retry.cli.servers import worker

    worker()


if __name__ == "__main__":
    main()
