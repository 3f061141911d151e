"""A process that was told to stop, and is stuck, ends, and says what it waits for."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.check

PATIENT_S = 60.0
STUCK = """
import threading
from retry.process import self_restart
self_restart._PATIENCE_S = 3.0
threading.Thread(target=self_restart.end_in_time, args=[lambda: True], daemon=True).start()
def wait_for_ever():
    threading.Event().wait()
wait_for_ever()
"""
IN_TIME = """
import threading, time
from retry.process import self_restart
threading.Thread(target=self_restart.end_in_time, args=[lambda: True], daemon=True).start()
time.sleep(4)
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENT_S, check=False)


def test_one_that_is_stuck_ends_and_says_where() -> None:
    ended = run(STUCK)
    assert ended.returncode == 1
    assert "3 s after it was told to stop" in ended.stderr
    assert "in wait_for_ever" in ended.stderr


def test_one_that_ends_by_itself_is_left_alone() -> None:
    ended = run(IN_TIME)
    assert (ended.returncode, ended.stderr) == (0, "")
