"""A command that says nothing for two seconds says on a terminal that it works, and takes that back; elsewhere it does not."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.check

# No broker listens there; the client asks for ten seconds.
COMMAND = [sys.executable, "-m", "retry", "pauses", "--bootstrap-servers", "127.0.0.1:1"]


def test_whoever_looks_at_a_terminal_sees_that_it_works_and_nothing_of_that_is_left() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(COMMAND, stderr=theirs) as command:
        os.close(theirs)
        told = b""
        while piece := _read(ours):
            told += piece
    assert command.returncode == 1
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", told.decode()) if line.strip()]
    assert lines[:2] == ["working, 2 s …", "working, 3 s …"], lines
    assert lines[-1].startswith("no broker answered at 127.0.0.1:1")
    assert f"\r{' ' * len(lines[-2])}\rno broker answered" in told.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4_096)
    except OSError:
        # The other end is closed.
        return b""


def test_a_file_has_the_messages_alone() -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("no broker answered")
