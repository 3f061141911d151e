"""A worker that kills a broker with SIGKILL while it commits, or stops itself where it was about to.

    FELL=<file> python -m tests.acceptance.felling_worker

Whichever worker next commits a transaction of an id in the file sends a signal to the process whose pid stands beside it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from threading import Timer, get_ident
from typing import Any

from retry.kafka.client_config import Config
from retry.kafka.transactional_producer import KafkaTransactionalProducer
from tests.acceptance.crashing_worker import after, before

_UNDER_WAY_S = 0.002


def order(file: Path, pids: Mapping[str, int], number: int = signal.SIGKILL) -> None:
    """Have one of these processes killed during the next commit of one of these transactional ids: the one of that id.

    Args:
      number: another signal. Where the process is the worker itself it comes before the commit, in an open transaction.
    """
    new = file.with_suffix(".new")
    new.write_text("".join(f"{transactional_id} {pid} {number:d}\n" for transactional_id, pid in pids.items()))
    new.rename(file)


def arm(file: Path) -> None:
    """Look for an order at every commit."""

    def built(writer: Any, config: Config) -> None:
        writer.id = config["transactional.id"]

    def commits(writer: Any) -> None:
        try:
            orders = {name: (int(pid), int(number)) for name, pid, number in map(str.split, file.read_text().splitlines())}
            if writer.id not in orders:
                return
            file.unlink()
        except FileNotFoundError:
            # There is none; or another thread, or the other worker, has just taken it.
            return
        pid, number = orders[writer.id]
        if pid == os.getpid():
            # To this thread: any other could be told a moment later, when the commit is done.
            signal.pthread_kill(get_ident(), number)
        else:
            Timer(_UNDER_WAY_S, os.kill, (pid, number)).start()

    after(KafkaTransactionalProducer, "__init__", built)
    before(KafkaTransactionalProducer, "commit", commits)


def main() -> None:
    """Arm and run."""
    arm(Path(os.environ["FELL"]))
    from retry.cli.worker import worker

    worker()


if __name__ == "__main__":
    main()
