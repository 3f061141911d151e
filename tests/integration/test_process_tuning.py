"""A worker of many shards opens more files than a process may open at first, and one that a library crashes says where it was."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys

import pytest

_PRINTS = "import resource; "
_PRINTS += "from retry.process.start import tune_process; tune_process(); print(*resource.getrlimit(resource.RLIMIT_NOFILE))"


@pytest.mark.parametrize(("most", "expected"), [(2_000, "2000 2000"), (256, "256 256")])
def test_a_process_may_open_as_many_files_as_its_system_lets_it(most: int, expected: str) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, most))

    told = subprocess.run([sys.executable, "-c", _PRINTS], preexec_fn=limit, check=True, capture_output=True, text=True)
    assert told.stdout.strip() == expected


def test_a_process_that_a_library_crashes_says_where_its_threads_were() -> None:
    crashes = "from retry.process.start import tune_process; tune_process(); import ctypes; ctypes.string_at(0)"
    ended = subprocess.run([sys.executable, "-c", crashes], check=False, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in ended.stderr
    assert "string_at" in ended.stderr
