"""`make demo` on a terminal: all of it is checked and shown, and its console stays up for who looks until Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import httpx2
import pytest

from tests.support.process import ROOT, await_that

pytestmark = pytest.mark.check

# What the demo gives itself, and a little.
_WITHIN_S = 960.0
_PARKED = "state:parked (team:shop or team:billing)"
# The process leads a session whose terminal this is, so that a typed Ctrl-C comes as a shell would send it, and is heard also
# where whoever runs the tests has the signal ignored, as a shell has for what it starts in the background.
_ON_TERMINAL = """
import fcntl, runpy, signal, termios
signal.signal(signal.SIGINT, signal.default_int_handler)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
runpy.run_module("examples.demo", run_name="__main__")
"""


class Terminal:
    """A demo that believes somebody looks.

    Args:
      folder: where its report goes.
    """

    def __init__(self, folder: Path) -> None:
        self._ours, theirs = os.openpty()
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _ON_TERMINAL], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environ,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._read: list[bytes] = []
        self._reader = Thread(target=self._read_all)
        self._reader.start()

    def _read_all(self) -> None:
        # A terminal whose programs have all ended is at its end by an error.
        with suppress(OSError):
            while some := os.read(self._ours, 65_536):
                self._read.append(some)

    def text(self) -> str:
        """Return what the demo shows, without colours."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(self._read).decode()).replace("\r\n", "\n")

    def type(self, key: bytes) -> None:
        os.write(self._ours, key)

    def close(self) -> None:
        """End what is left."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)
        self._reader.join(60)
        os.close(self._ours)


@contextmanager
def terminal(folder: Path) -> Iterator[Terminal]:
    """A demo that is ended whatever happens."""
    running = Terminal(folder)
    try:
        yield running
    finally:
        running.close()


def test_the_demo_shows_what_it_checked_and_its_console_stays_until_ctrl_c(tmp_path: Path) -> None:
    with terminal(tmp_path) as demo:
        await_that("it stays", lambda: "Ctrl-C ends all of it" in demo.text() or demo.process.poll() is not None, _WITHIN_S)
        text = demo.text()
        assert demo.process.poll() is None, text
        print(text[text.index("SHOWN") :])
        of_orders = re.search(r"2,500 orders: (\d+) failed and recovered, (\d+) parked, none lost, no retry sent twice", text)
        of_action = re.search(r"(\d+) of those that recovered were parked first, and retried in steps", text)
        opened = re.search(r"OPEN (http://127\.0\.0\.1:\d+) ", text)
        assert of_orders and of_action and opened, text
        assert int(of_action[1]) > 0
        parked = int(of_orders[2])
        with httpx2.Client(base_url=opened[1], timeout=60.0) as browser:
            assert "letters" in browser.get("/").text
            shown = browser.get("/api/letters", params={"q": _PARKED, "limit": 1}).json()
            assert int(shown["count"]) == parked > 0
            assert browser.get("/api/now").json()["parked"] >= parked
        assert "<html" in (tmp_path / "build" / "retry-report.html").read_text()
        demo.type(b"\x03")
        await_that("it ends", lambda: demo.process.poll() is not None)
        assert demo.process.returncode == 0, demo.text()
        assert demo.text().rstrip().endswith("stopped; nothing is left running")
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(opened[1], timeout=60.0)
        with pytest.raises(ProcessLookupError):
            os.killpg(demo.process.pid, 0)


@pytest.mark.parametrize("phase", ["", "starting a Kafka broker", "creating topics", "waiting,"])
def test_ctrl_c_in_any_phase_ends_the_demo_soon_without_a_traceback_and_leaves_no_file(phase: str, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"}
    demo = subprocess.Popen(
        [sys.executable, "-m", "examples.demo"], cwd=tmp_path, env=environ, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        # Whoever runs the tests in the background of a shell ignores it, and so would this before it has begun.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert demo.stdout is not None
    lines = []
    try:
        while phase and not (lines and phase in lines[-1]):
            lines.append(demo.stdout.readline())
            assert lines[-1], lines
    finally:
        os.killpg(demo.pid, signal.SIGINT)
        lines.append(demo.communicate(timeout=30)[0])
    told = "".join(lines)
    assert ("Traceback" in told, list(temporary.iterdir())) == (False, []), told
    if phase:
        assert (demo.returncode, told.rstrip().splitlines()[-1]) == (130, "stopped; nothing is left running"), told
