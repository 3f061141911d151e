"""The processes of the demo, each with its log, all ended whatever happens."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from retry.clock import Deadline, pause
from retry.kafka.child_process import Tethered

# A worker on a starved machine ends what it has begun.
_STOP_S = 60.0
_TAIL_LINES = 15
_ADDRESS = re.compile(r"http on (127\.0\.0\.1:\d+)")


class DemoFailed(Exception):
    """Something did not go as it must; the message says what."""


class Stage:
    """Starts Python modules as processes of their own.

    Args:
      folder: where their logs go.
      settings: the `RETRY_*` variables that they get; those of the caller's environment are not passed on.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self._folder = folder
        # What Java and Python need from the environment passes; what would change the demo does not.
        # Nothing of theirs stays in the system's temporary folder.
        temporary = folder / "tmp"
        temporary.mkdir(exist_ok=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RETRY_")}
        launcher = {"TMPDIR": str(temporary), "SPARK_LAUNCHER_OPTS": "-XX:-UsePerfData"}
        self._environment = environment | launcher | dict(settings)
        self._processes: dict[str, Tethered] = {}

    def run(self, *arguments: str, deadline: Deadline) -> str:
        """Run one command of the service to its end and return what it printed."""
        command = [sys.executable, "-m", "retry", *arguments]
        left_s = deadline.remaining_s()
        try:
            # In a session of its own: a typed Ctrl-C is answered here alone, and `subprocess` then kills it.
            done = subprocess.run(
                command, env=self._environment, capture_output=True, text=True, timeout=left_s, check=False,
                start_new_session=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"time is up: `retry {' '.join(arguments)}` was still at work") from None
        if done.returncode != 0:
            raise DemoFailed(f"`retry {' '.join(arguments)}` said: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def start(self, name: str, *arguments: str) -> None:
        """Start a module in the background."""
        with self.log_file(name).open("wb") as log:
            self._processes[name] = Tethered([sys.executable, "-m", *arguments], log, self._environment, own_session=True)

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a process a signal."""
        self._processes[name].send_signal(number)

    def log_file(self, name: str) -> Path:
        """Where the output of a process is."""
        return self._folder / f"{name}.log"

    def tail(self, name: str) -> str:
        """The last lines of a process's log."""
        file = self.log_file(name)
        return "\n".join(file.read_text(errors="replace").splitlines()[-_TAIL_LINES:]) if file.exists() else ""

    def check(self, but: str = "") -> None:
        """Raise DemoFailed if a process has ended by itself, other than the one that may."""
        for name, process in list(self._processes.items()):
            if name != but and process.poll() is not None:
                raise DemoFailed(f"{name} ended by itself with code {process.returncode}: {self.tail(name)}")

    def await_end(self, name: str, deadline: Deadline, meanwhile: Callable[[], None]) -> None:
        """Return when a process has ended by itself with code 0; `meanwhile` is called again and again."""
        process = self._processes[name]
        while process.poll() is None:
            meanwhile()
            if deadline.has_passed():
                raise DemoFailed(f"time is up: {name} was still at work")
            pause(0.1)
        self.check(but=name if process.returncode == 0 else "")

    def await_ready(self, name: str, deadline: Deadline) -> None:
        """Return when the process says over HTTP that it is ready."""
        while not self._is_ready(name):
            self.check()
            if deadline.has_passed():
                raise DemoFailed(f"{name} was not ready in time")
            pause(0.1)

    def _is_ready(self, name: str) -> bool:
        address = _ADDRESS.search(self.log_file(name).read_text(errors="replace"))
        if address is None:
            return False
        try:
            with urllib.request.urlopen(f"http://{address[1]}/health/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def stop(self) -> None:
        """End every process at the same time: with SIGTERM, or where that does not help, with SIGKILL."""
        stubborn = self._end_all()
        self._processes.clear()
        if stubborn:
            raise DemoFailed(f"{', '.join(stubborn)} did not stop within {_STOP_S:.0f} s")

    def _end_all(self) -> list[str]:
        """Names of the processes that had to be killed."""
        stopping, stubborn = Deadline(_STOP_S), []
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self._processes.items():
            try:
                process.wait(stopping.remaining_s())
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                stubborn.append(name)
            _kill_group(process)
        return stubborn

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_raised: object) -> None:
        if kind is None:
            self._end_all()
        else:
            # Whoever stops the demo, or it itself, throws away what it made: nothing has to end in order.
            self._kill_all()

    def _kill_all(self) -> None:
        for process in self._processes.values():
            _kill_group(process)
        for process in self._processes.values():
            process.wait()


def _kill_group(process: Tethered) -> None:
    """Kill a process and what it has started, such as Spark's Java, which would go on for a while."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
