"""Processes that do nothing but keep the cores busy, so that everybody else is starved."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.process import end

# It ends by itself when whoever began it is gone.
_SPIN = """
import os, sys
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        while os.getppid() != 1:
            for _ in range(1_000_000): pass
        os._exit(0)
sys.stdin.read()
"""
_END_S = 60.0


@contextmanager
def busy_cores(processes: int) -> Iterator[None]:
    """Keep so many processes spinning until the end of the block; none where it is 0."""
    if not processes:
        yield
        return
    spinning = subprocess.Popen([sys.executable, "-c", _SPIN, str(processes)], stdin=subprocess.PIPE)
    try:
        yield
    finally:
        end(spinning, _END_S)
