"""A worker that kills a broker with SIGKILL while it commits.

    FELL=<file> python -m tests.acceptance.felling_worker

Whichever worker next commits a transaction of the id in the file kills the process whose pid stands beside it.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Timer
from typing import Any

from retry.kafka.client_config import Config
from retry.kafka.transactional_producer import Transactions
from tests.acceptance.crashing_worker import after, before

_UNDER_WAY_S = 0.002


def order(file: Path, transactional_id: str, pid: int) -> None:
    """Have this process killed during the next commit of this id."""
    new = file.with_suffix(".new")
    new.write_text(f"{transactional_id} {pid}")
    new.rename(file)


def arm(file: Path) -> None:
    """Look for an order at every commit."""

    def built(writer: Any, config: Config) -> None:
        writer.id = config["transactional.id"]

    def commits(writer: Any) -> None:
        if file.exists():
            transactional_id, pid = file.read_text().split()
            if writer.id == transactional_id:
                file.unlink()
                Timer(_UNDER_WAY_S, os.kill, (int(pid), signal.SIGKILL)).start()

    after(Transactions, "__init__", built)
    before(Transactions, "commit", commits)


def main() -> None:
    """Arm and run."""
    arm(Path(os.environ["FELL"]))
    from retry.cli.worker import worker

    worker()


if __name__ == "__main__":
    main()
