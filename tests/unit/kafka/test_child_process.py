"""A process that is tethered ends with the one that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from retry.kafka.child_process import Tethered
from tests.support.process import await_that

LONG = [sys.executable, "-c", "import time; print('runs', flush=True); time.sleep(600)"]
PARENT = """
import sys, time
from retry.kafka.child_process import Tethered
print(Tethered(sys.argv[1:], None).pid, flush=True)
time.sleep(600)
"""

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # Nobody may have asked how it ended yet.
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@LINUX
def test_kill_9_of_a_process_leaves_nothing_that_it_started() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *LONG], stdout=subprocess.PIPE)
    assert parent.stdout
    # In any order: the child may run before its parent gets on.
    told = {parent.stdout.readline() for _ in range(2)}
    assert b"runs\n" in told
    (child,) = map(int, told - {b"runs\n"})
    started = children(parent.pid)
    assert child in started
    parent.kill()
    parent.wait()
    await_that("all have ended", lambda: not any(map(alive, started)))


@LINUX
def test_kill_9_at_any_moment_of_a_start_leaves_nothing() -> None:
    for _ in range(8):
        parent = subprocess.Popen([sys.executable, "-c", PARENT, *LONG], stdout=subprocess.PIPE)
        started: list[int] = []
        while len(started) < 2 and parent.poll() is None:
            started = children(parent.pid)
        parent.kill()
        parent.wait()
        await_that("all have ended", lambda: not any(map(alive, started)))  # noqa: B023


def test_a_process_that_ended_is_not_watched_any_more(tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as output:
        ended = Tethered([sys.executable, "-c", "print('done'); raise SystemExit(3)"], output)
        assert ended.wait() == 3
        stopped = Tethered(LONG, output, own_session=True)
        assert stopped.poll() is None
        stopped.terminate()
        assert stopped.wait() == -signal.SIGTERM
    assert (tmp_path / "output").read_bytes().startswith(b"done")
    for each in (ended, stopped):
        assert each._watch.returncode is not None
