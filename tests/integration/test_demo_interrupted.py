"""A demo that is interrupted ends at once and says so, whatever its clients make of that; what fails by itself says why."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.process import ROOT

pytestmark = pytest.mark.check

PROGRAM = """
import os, signal, threading
from examples.lifetime import run_demo
def play(folder):
    # One that Python would wait for.
    threading.Thread(target=threading.Event().wait).start()
    {step}
    raise SystemError("a client was interrupted")
run_demo(play, print)
"""
INTERRUPTED = """try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    except KeyboardInterrupt:
        pass"""


@pytest.mark.parametrize(("step", "code", "said"), [
    (INTERRUPTED, 130, "stopped; nothing is left running"), ("pass", 1, "FAILED: a client was interrupted"),
])  # fmt: skip
def test_it_ends_at_once_with_its_own_code(step: str, code: int, said: str) -> None:
    program = [sys.executable, "-c", PROGRAM.format(step=step)]
    ended = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (code, said)
    assert ("Traceback" in ended.stderr) == (code == 1)
