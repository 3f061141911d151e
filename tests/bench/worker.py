"""The worker's process: starting and ending it, and what it says of itself over HTTP."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from retry.kafka.local_broker import free_port

from .letters import Incorrect

ROOT = Path(__file__).parents[2]
_READY_S = 60
_STOP_S = 30


class Worker:
    """`python -m retry worker`, one process at a time, with a log of its own."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self._http = f"127.0.0.1:{free_port()}"
        self._environment = {**environment, "RETRY_HTTP_ADDR": self._http}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start it, and return when that was."""
        began = time.time()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "retry", "worker"], env=self._environment, cwd=ROOT,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        return began

    @property
    def pid(self) -> int:
        """The id of its process; 0 before the first start."""
        return self._process.pid if self._process else 0

    def running(self) -> None:
        """Nothing, if it runs.

        Raises:
          Incorrect: it has ended.
        """
        if self._process is None or self._process.poll() is not None:
            raise Incorrect("the worker has ended")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def stop(self) -> float:
        """End it in an orderly way, and say how many seconds that took."""
        self.running()
        assert self._process is not None
        began = time.time()
        self.signal(signal.SIGTERM)
        try:
            code = self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            raise Incorrect(f"the worker did not end within {_STOP_S} s of SIGTERM") from None
        if code:
            raise Incorrect(f"the worker ended with exit code {code} on SIGTERM")
        return time.time() - began

    def kill(self) -> None:
        """End it, if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def log_tail(self) -> str:
        """Return the last lines of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:]) if self._log.exists() else ""

    def ready(self, timeout_s: float = _READY_S) -> float:
        """When it first says that it is ready."""
        return self.until("readiness", lambda: self._get("/health/ready") is not None, timeout_s, 0.01)

    def waiting(self) -> int:
        """How many entries wait, as its metrics have it; -1 where it does not answer."""
        return self.metric("retry_entries_waiting")

    def metric(self, name: str) -> int:
        """One of its metrics, summed over its labels; -1 where it does not answer, or has none of that name."""
        lines = [line for line in (self._get("/metrics") or "").splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return int(sum(float(line.rpartition(" ")[2]) for line in lines)) if lines else -1

    def until_waiting(self, entries: int, timeout_s: float) -> float:
        """When its metrics first show so many waiting entries."""
        return self.until(f"{entries:,} waiting entries", lambda: self.waiting() == entries, timeout_s, 0.05)

    def until(self, what: str, there: Callable[[], bool], timeout_s: float, pause_s: float) -> float:
        """When something came about that is asked for again and again.

        Raises:
          Incorrect: it did not, in this time.
        """
        deadline = time.time() + timeout_s
        while not there():
            self.running()
            if time.time() > deadline:
                raise Incorrect(f"no {what} within {timeout_s:.0f} s; {self.waiting():,} entries wait")
            time.sleep(pause_s)
        return time.time()

    def _get(self, path: str) -> str | None:
        try:
            with urllib.request.urlopen(f"http://{self._http}{path}", timeout=10) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None
