"""One real broker for all processes of a test run: started by the first that needs it, stopped when the last has ended.

A keeper, `python -m tests.support.shared_broker FOLDER`, holds the broker, since no test process may wait for the others.
Each holds a shared lock for as long as it lives, so the keeper outlives none of them, however they end.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from retry.errors import BrokerNotStarted
from retry.kafka.local_broker import LocalBroker
from tests.support.ports import use_everywhere
from tests.support.process import await_that

# Formatting takes a process of its own before the broker's three minutes begin.
_HEAP_MB, _START_S = 768, 300.0
# A broker that gets no processor for three seconds would count as away: its partitions would have no leader for a moment, and
# groups and transactions would begin anew, in tests that know of no fault.
PATIENT = ("broker.session.timeout.ms=60000",)


@contextmanager
def shared_broker(folder: Path) -> Iterator[LocalBroker]:
    """The broker of a run, whose processes all name the same folder; not theirs to stop.

    Raises:
      BrokerNotStarted: the keeper ended; what it said is part of the message.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder / "in use", fcntl.LOCK_SH):
        with hold_lock(folder / "starting", fcntl.LOCK_EX):
            if not _port(folder).exists():
                _start_keeper(folder)
            broker = _broker(folder, int(_port(folder).read_text()))
        yield broker


@contextmanager
def hold_lock(path: Path, how: int) -> Iterator[IO[bytes]]:
    with path.open("ab") as file:
        fcntl.flock(file, how)
        yield file


def _port(folder: Path) -> Path:
    return folder / "port"


def _broker(folder: Path, port: int = 0) -> LocalBroker:
    # It lives for the whole run, so code that is compiled well pays.
    return LocalBroker(folder / "broker", port, heap_mb=_HEAP_MB, overrides=PATIENT, brief=False)


def _start_keeper(folder: Path) -> None:
    log = folder / "keeper.log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", __spec__.name, str(folder)]
        keeper = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    await_that("the broker answers, or not at all", lambda: _port(folder).exists() or keeper.poll() is not None, _START_S)
    if not _port(folder).exists():
        raise BrokerNotStarted(log.read_text())


def keep(folder: Path) -> None:
    """Start the broker, tell its port, and stop it when nobody uses it; who comes later starts another."""
    with _broker(folder) as broker:
        half_written = folder / "port.new"
        half_written.write_text(str(broker.port))
        half_written.rename(_port(folder))
        with hold_lock(folder / "in use", fcntl.LOCK_EX):
            _port(folder).unlink()
            broker.stop()


if __name__ == "__main__":
    use_everywhere()
    keep(Path(sys.argv[1]))
