"""A worker that kills itself with SIGKILL at a named point.

    CRASH_AT=<point>:<n> python -m tests.acceptance.crashing_worker

The points are patched in from outside, so that the product has no switch for them. `n` counts how often the point is
passed before the end comes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from threading import Lock, Thread
from typing import Any

from retry.kafka.transactions import Transactions
from retry.shard import Phase, Shard
from retry.table.rocks import RocksTable
from retry.table.tables import RocksTables

POINTS = {
    "intake-before-commit": 2,
    "intake-during-commit": 2,
    "intake-after-commit": 2,
    "sweep-after-publish": 3,
    "sweep-before-commit": 3,
    "sweep-during-commit": 3,
    "sweep-after-commit": 3,
    "sweep-after-forget": 3,
    "fold-before-write": 3,
    "fold-after-write": 3,
    "open-after-fence": 1,
    "restore": 1,
}
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
    publishing: set[int] = set()

    def published(writer: Transactions, *_: Any) -> None:
        publishing.add(id(writer))
        if crash.point == "sweep-after-publish":
            writer._producer.flush(_ACKNOWLEDGED_S)
            crash.pass_by("sweep-after-publish")

    def stage(writer: Transactions) -> str:
        return "sweep" if id(writer) in publishing else "intake"

    def commits(writer: Transactions) -> None:
        if crash.point == f"{stage(writer)}-before-commit":
            # All of it is on the broker, and undecided.
            writer._producer.flush(_ACKNOWLEDGED_S)
            crash.pass_by(crash.point)
        if crash.at(f"{stage(writer)}-during-commit"):
            committing = Thread(target=writer._producer.commit_transaction, args=(_ACKNOWLEDGED_S,))
            committing.start()
            committing.join(_UNDER_WAY_S)
            end()

    def committed(writer: Transactions) -> None:
        crash.pass_by(f"{stage(writer)}-after-commit")
        publishing.discard(id(writer))

    def folding(shard: Shard, *_: Any) -> None:
        if shard.phase is Phase.RESTORING:
            crash.pass_by("restore")

    after(Transactions, "publish", published)
    before(Transactions, "commit", commits)
    after(Transactions, "commit", committed)
    after(RocksTable, "forget", lambda *_: crash.pass_by("sweep-after-forget"))
    before(RocksTable, "fold", lambda *_: crash.pass_by("fold-before-write"))
    after(RocksTable, "fold", lambda *_: crash.pass_by("fold-after-write"))
    # Before the shard is called ready: all of a small changelog may come in one go.
    after(Shard, "_guarded_fold", folding)
    before(RocksTables, "open", lambda *_: crash.pass_by("open-after-fence"))


def main() -> None:
    """Arm and run; without `CRASH_AT` an ordinary worker."""
    point, _, passages = os.environ.get("CRASH_AT", "nowhere:1").partition(":")
    assert point in {*POINTS, "nowhere"}, point
    arm(Crash(point, int(passages or 1)))
    from retry.commands.worker import worker

    worker()


if __name__ == "__main__":
    main()
