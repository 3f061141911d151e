"""A worker that kills a broker with SIGKILL while it commits, or stops itself where it was about to.

    FELL=<file> python -m tests.acceptance.felling_worker

Whichever worker next commits a transaction whose id matches one in the file, or is about to prove what it owns, sends a signal to
the process whose pid stands beside it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from threading import Timer, get_ident
from typing import Any

from retry.kafka.transactional_producer import KafkaTransactionalProducer
from tests.acceptance.crashing_worker import patch_before

COMMIT, PROOF = "commit", "proof"
_UNDER_WAY_S = 0.002


def order(file: Path, pids: Mapping[str, int], number: int = signal.SIGKILL, moment: str = COMMIT) -> None:
    """Have one of these processes killed during the next commit of one of these transactional ids: the one of that id.

    Args:
      pids: by transactional id, or by a pattern of them with `*`.
      number: another signal. Where the process is the worker itself it comes before the commit, in an open transaction.
      moment: `PROOF` to have it before the transaction's offsets are sent.
    """
    new = file.with_suffix(".new")
    new.write_text("".join(f"{pattern} {pid} {number:d} {moment}\n" for pattern, pid in pids.items()))
    new.rename(file)


def arm(file: Path) -> None:
    """Look for an order at every commit."""

    def comes_to(moment: str, writer: Any) -> None:
        try:
            orders = [line.split() for line in file.read_text().splitlines()]
            ours = [each for each in orders if fnmatch(writer._ids.current, each[0]) and each[3] == moment]
            if not ours:
                return
            file.unlink()
        except FileNotFoundError:
            # There is none; or another thread, or the other worker, has just taken it.
            return
        pid, number = int(ours[0][1]), int(ours[0][2])
        if pid == os.getpid():
            # To this thread: any other could be told a moment later, when the commit is done.
            signal.pthread_kill(get_ident(), number)
        else:
            Timer(_UNDER_WAY_S, os.kill, (pid, number)).start()

    patch_before(KafkaTransactionalProducer, "commit", lambda writer: comes_to(COMMIT, writer))
    patch_before(KafkaTransactionalProducer, "read_to", lambda writer, *_: comes_to(PROOF, writer))


def main() -> None:
    arm(Path(os.environ["FELL"]))
    from retry.cli.servers import worker

    worker()


if __name__ == "__main__":
    main()
