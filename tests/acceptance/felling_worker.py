"""A worker that kills a broker with SIGKILL while it commits.

    FELL=<file> python -m tests.acceptance.felling_worker

Whichever worker next commits a transaction of an id in the file kills the process whose pid stands beside it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from threading import Timer
from typing import Any

from retry.kafka.client_config import Config
from retry.kafka.transactional_producer import KafkaTransactionalProducer
from tests.acceptance.crashing_worker import after, before

_UNDER_WAY_S = 0.002


def order(file: Path, pids: Mapping[str, int]) -> None:
    """Have one of these processes killed during the next commit of one of these transactional ids: the one of that id."""
    new = file.with_suffix(".new")
    new.write_text("".join(f"{transactional_id} {pid}\n" for transactional_id, pid in pids.items()))
    new.rename(file)


def arm(file: Path) -> None:
    """Look for an order at every commit."""

    def built(writer: Any, config: Config) -> None:
        writer.id = config["transactional.id"]

    def commits(writer: Any) -> None:
        if file.exists():
            pids = dict(line.split() for line in file.read_text().splitlines())
            if writer.id in pids:
                file.unlink()
                Timer(_UNDER_WAY_S, os.kill, (int(pids[writer.id]), signal.SIGKILL)).start()

    after(KafkaTransactionalProducer, "__init__", built)
    before(KafkaTransactionalProducer, "commit", commits)


def main() -> None:
    """Arm and run."""
    arm(Path(os.environ["FELL"]))
    from retry.cli.worker import worker

    worker()


if __name__ == "__main__":
    main()
