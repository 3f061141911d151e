"""The end of a process that a test started: asked for first, and not for ever."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.support.process import end

WAITS = "import signal; print('ready', flush=True); signal.pause()"
REFUSES = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"


@pytest.mark.parametrize(
    ("program", "within_s", "by"), [(WAITS, 60.0, signal.SIGTERM), (REFUSES, 0.1, signal.SIGKILL)], ids=["ends", "refuses"]
)
def test_who_does_not_end_when_asked_is_killed(program: str, within_s: float, by: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout and process.stdout.readline() == b"ready\n"
    end(process, within_s)
    assert process.returncode == -by
    process.stdout.close()
    # Who has ended already is not asked again.
    end(process, within_s)
    assert process.returncode == -by
