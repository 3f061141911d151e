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
    """What the kernel does to a process that uses too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def after(owner: Any, method: str, told: Callable[..., None]) -> None:
    """Call `told` with the arguments of a method each time when it has returned."""
    original = getattr(owner, method)

    def patched(*arguments: Any, **named: Any) -> Any:
        answer = original(*arguments, **named)
        told(*arguments)
        return answer

    setattr(owner, method, patched)


def before(owner: Any, method: str, told: Callable[..., None]) -> None:
    """Call `told` with the arguments of a method each time before it runs."""
    original = getattr(owner, method)

    def patched(*arguments: Any, **named: Any) -> Any:
        told(*arguments)
        return original(*arguments, **named)

    setattr(owner, method, patched)


def arm(crash: Crash) -> None:
    """Patch every point in; those that are not named do nothing."""
    _arm_transactions(crash)
    _arm_tables(crash)
    _arm_opening(crash)


def _arm_transactions(crash: Crash) -> None:
    def built(writer: Any, config: Config) -> None:
        writer.stage = "intake" if "-intake-" in config["transactional.id"] else "sweep"

    def at(moment: str, *, arrived: bool = False) -> Callable[..., None]:
        def told(writer: Any, *_: Any) -> None:
            point = f"{writer.stage}-{moment}"
            if arrived and crash.point == point:
                # All of it is on the broker, and undecided.
                writer._producer.flush(_ACKNOWLEDGED_S)
            crash.pass_by(point)

        return told

    def written(writer: Any, _topic: str, _partition: int, rows: list[Any]) -> None:
        if rows:
            at("after-write", arrived=True)(writer)

    def commits(writer: Any) -> None:
        at("before-commit", arrived=True)(writer)
        if crash.at(f"{writer.stage}-during-commit"):
            Timer(_UNDER_WAY_S, end).start()

    after(KafkaTransactionalProducer, "__init__", built)
    before(KafkaTransactionalProducer, "begin", at("before-begin"))
    after(KafkaTransactionalProducer, "begin", at("after-begin"))
    after(KafkaTransactionalProducer, "publish", at("after-publish", arrived=True))
    after(KafkaTransactionalProducer, "write", written)
    before(KafkaTransactionalProducer, "read_to", at("before-read-to", arrived=True))
    after(KafkaTransactionalProducer, "read_to", at("after-read-to"))
    after(KafkaTransactionalProducer, "await_arrival", at("after-arrived"))
    before(KafkaTransactionalProducer, "commit", commits)
    after(KafkaTransactionalProducer, "commit", at("after-commit"))


def _arm_tables(crash: Crash) -> None:
    queueing: dict[int, str] = {}

    def begun(stage: str) -> Callable[..., None]:
        return lambda queues, *_: queueing.update({id(queues): stage})

    before(OrderedEntries, "apply_rows", begun("fold"))
    before(OrderedEntries, "replace", begun("forget"))
    # Each ordered entry is written by itself; others of the same batch are still to come.
    after(OrderedEntries, "_write", lambda queues, *_: crash.pass_by(f"{queueing[id(queues)]}-in-queue"))
    after(RocksTable, "find_due", lambda *_: crash.pass_by("sweep-after-scan"))
    after(RocksTable, "delete_scanned_rows", lambda *_: crash.pass_by("sweep-after-forget"))
    before(RocksTable, "apply_records", lambda *_: crash.pass_by("fold-before-write"))
    after(RocksTable, "apply_records", lambda *_: crash.pass_by("fold-after-write"))


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

    before(restore, "fetch_bounds", lambda *_: crash.pass_by("open-before-bounds"))
    before(restore, "table", lambda *_: crash.pass_by("open-after-bounds"))
    after(restore, "table", lambda *_: crash.pass_by("open-after-table"))
    # Before the shard is called ready: all of a small changelog may come in one go.
    after(Shard, "_guarded_fold", folding)
    before(rocksdb_table, "destroy_database", wiping)
    after(rocksdb_table, "destroy_database", lambda *_: crash.pass_by("wipe-after"))


def main() -> None:
    """Arm and run; without `CRASH_AT` an ordinary worker."""
    point, _, passages = os.environ.get("CRASH_AT", "nowhere:1").partition(":")
    assert point in {*POINTS, "nowhere"}, point
    arm(Crash(point, int(passages or 1)))
    from retry.cli.servers import worker

    worker()


if __name__ == "__main__":
    main()
