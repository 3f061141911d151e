"""A worker that was started by a supervisor and ends by itself ends with its own exit code."""

from __future__ import annotations

import subprocess
import sys

# Long enough for the thread to wait for the supervisor's end.
_ENDS = "from retry.clock import pause; from retry.worker.supervisor import end_with_supervisor; "
_ENDS += "end_with_supervisor(); pause(0.5); raise SystemExit(3)"


def test_a_supervised_process_that_ends_while_its_supervisor_lives_keeps_its_exit_code() -> None:
    process = subprocess.Popen([sys.executable, "-c", _ENDS], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert (process.wait(), process.stderr and process.stderr.read()) == (3, b"")
