"""A worker as a real process, which tests start, watch, freeze and kill; and the end of any other."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from retry.clock import Deadline, monotonic_s, pause

ROOT = Path(__file__).parents[2]
WORKER = ("-m", "retry", "worker")

# A line may be read before all of it is written: a number ends before something else.
_HTTP = re.compile(r"http on 127\.0\.0\.1:(\d+)(?=[\s\"])")
# What the chart gives a worker between SIGTERM and SIGKILL.
TERMINATION_S = 60.0
_ABORTED_S = 20.0
_POLL_S, _ANSWER_S = 0.05, 20.0


class _NoAnswer(float):
    """Neither equal to any number, nor more or less, nor true: waiting for a number goes on, and no assertion holds of it."""

    def __bool__(self) -> bool:
        return False


_NO_ANSWER = _NoAnswer("nan")


def await_that(what: str, holds: object, timeout_s: float = 180.0) -> None:
    """Ask `holds` until it says yes; the way in which tests wait for something."""
    deadline = Deadline(timeout_s)
    while True:
        # Asked once more when the time is over: on a busy machine a question may take as long as the whole time.
        last = deadline.has_passed()
        if holds():  # type: ignore[operator]
            return
        if last:
            raise AssertionError(f"not within {timeout_s:.0f} s: {what}")
        pause(_POLL_S)


def let_pass(seconds: float) -> None:
    """Let time pass: for tests of what load does meanwhile, not of what comes of the waiting."""
    deadline = Deadline(seconds)
    while not deadline.has_passed():
        pause(deadline.remaining_s())


def end(process: subprocess.Popen[bytes], within_s: float) -> None:
    """SIGTERM, and SIGKILL to what still runs after that time; returns when it is gone."""
    process.terminate()
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class WorkerProcess:
    """One worker: a data directory, a log, and at any time at most one process.

    Args:
      environ: the whole environment; `RETRY_DATA_DIR` is added.

    Attributes:
      root: the tree whose code is run from the next start on.
    """

    def __init__(self, name: str, folder: Path, environ: Mapping[str, str]) -> None:
        self.name, self.data_dir, self.log_file = name, folder / name, folder / f"{name}.log"
        self.log_file.touch()
        self.root = ROOT
        # Whatever ends it by a signal, it says where its threads were.
        self._environ = {**environ, "RETRY_DATA_DIR": str(self.data_dir), "PYTHONFAULTHANDLER": "1"}
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def start(self, *program: str, **environ: str) -> WorkerProcess:
        """Start `python -m retry worker`, or another program, with more in its environment if need be."""
        assert not self.running(), f"{self.name} is running"
        self._log_start = self.log_file.stat().st_size
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *(program or WORKER)],
                cwd=self.root, env={**self._environ, **environ}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        return self

    def await_ready(self, timeout_s: float = 120.0) -> WorkerProcess:
        """Wait until every shard that it owns is swept."""
        await_that(f"{self.name} is ready", self.ready, timeout_s)
        return self

    def ready(self) -> bool:
        """Whether `/health/ready` says so; fails if the process has ended."""
        assert self.running(), f"{self.name} ended with {self.exit_code()}:\n{self.tail()}"
        return self.get("/health/ready")[0] == http.client.OK

    def port(self) -> int:
        """The port where it serves health and metrics; 0 if it does not yet."""
        found = _HTTP.findall(self.log())
        return int(found[-1]) if found else 0

    def get(self, path: str, timeout_s: float = _ANSWER_S) -> tuple[int, str]:
        """Status and body of one answer; status 0 if there is none."""
        if not (port := self.port()):
            return 0, ""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):
            # It may end in the middle of its answer.
            return 0, ""
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels; 0 where it is not there, and no number at all where there is no answer."""
        status, page = self.get("/metrics")
        if status != http.client.OK:
            return _NO_ANSWER
        lines = [line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#")]
        return sum(float(value) for label, value in lines if label.split("{")[0] == name)

    @property
    def pid(self) -> int:
        """The process, running or ended; 0 before the first start."""
        return self._process.pid if self._process else 0

    def running(self) -> bool:
        """Whether the process is there; a frozen one is."""
        return self._process is not None and self._process.poll() is None

    def exit_code(self) -> int | None:
        """The exit code as `subprocess` has it: negative for a signal, None while it runs."""
        return self._process.poll() if self._process else None

    def signal(self, number: int) -> None:
        if self.running():
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.signal(signal.SIGKILL)
        if self._process:
            self._process.wait()

    def wait(self, timeout_s: float) -> int:
        """Wait for the process to end by itself, and return its exit code."""
        assert self._process
        return self._process.wait(timeout_s)

    def _abort(self) -> None:
        """Have it end now, and print what its threads wait for."""
        self.signal(signal.SIGABRT)
        try:
            self.wait(_ABORTED_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def terminate(self, timeout_s: float = TERMINATION_S) -> float:
        """SIGTERM; returns how many seconds it took to end, and fails if these are too many or the end is a failure."""
        began_s = monotonic_s()
        self.signal(signal.SIGTERM)
        try:
            code = self.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._abort()
            raise AssertionError(f"{self.name} still runs {timeout_s:.0f} s after SIGTERM:\n{self.tail(400)}") from None
        assert code == 0, f"{self.name} ended with {code}:\n{self.tail()}"
        return monotonic_s() - began_s

    def log(self) -> str:
        """Return what this incarnation has logged."""
        with self.log_file.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def tail(self, lines: int = 40) -> str:
        """The last lines of all incarnations."""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])
