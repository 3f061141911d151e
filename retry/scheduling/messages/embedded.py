"""A scheduler inside another program: started, ready, and closed when that one says so.

    from retry.scheduling.messages.embedded import Runner

    with Runner({"BOOTSTRAP_SERVERS": "localhost:9092", "SCHEDULES_TOPICS": "schedules"}) as scheduler:
        ...                        # schedules are sent; scheduler.url serves the REST API

It runs in a process of its own: its watchdog ends the process that it is in, and an interpreter is best not shared. `mini=True`
needs no Kafka.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from retry.clock import Deadline, pause
from retry.errors import SchedulerEnded
from retry.kafka.child_process import Tethered
from retry.kafka.local_broker import free_port
from retry.settings import copy_environment

_POLL_S = 0.1


class Runner:
    """One scheduler, as `retry scheduler` runs it.

    Args:
      environ: its variables, see docs/reference/scheduled-messages.md, beside those of this process. By default it listens on
        free ports of loopback, and has its tables in `retry-data/<GROUP_ID>`.
      log: a file to which its log is appended; else it goes where that of this process goes.
    """

    def __init__(self, environ: Mapping[str, str] | None = None, *, mini: bool = False, log: Path | None = None) -> None:
        free = {name: f"127.0.0.1:{free_port()}" for name in ("SERVER_ADDR", "METRICS_ADDR")}
        self._environ, self._mini, self._log = {**free, **copy_environment(), **(environ or {})}, mini, log
        # The ports of the next start may be others; its tables are not.
        self._environ.setdefault("RETRY_DATA_DIR", f"retry-data/{self._environ.get('GROUP_ID', 'scheduler-cg')}")
        self._process: Tethered | None = None

    @property
    def url(self) -> str:
        scheme = "https" if self._environ.get("RETRY_SCHEDULER_TLS_CERT") else "http"
        return f"{scheme}://{self._environ['SERVER_ADDR']}"

    def start(self, within_s: float = 60.0) -> Runner:
        """Start the scheduler and wait until schedules are sent; raises SchedulerEnded, and then leaves nothing running."""
        program = [sys.executable, "-m", "retry", "scheduler", *(["--mini"] if self._mini else [])]
        output = self._log.open("ab") if self._log else None
        try:
            self._process = Tethered(program, output, self._environ)
        finally:
            if output:
                output.close()
        deadline = Deadline(within_s)
        while not self._is_ready():
            code = self._process.poll()
            if code is not None or deadline.has_passed():
                self.close(0.0)
                raise SchedulerEnded(f"it ended with {code}" if code is not None else f"it was not ready within {within_s:.0f} s")
            pause(_POLL_S)
        return self

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection(self._environ["SERVER_ADDR" if self._mini else "METRICS_ADDR"], timeout=5)
        try:
            if self._mini:
                # Whoever can connect is answered, with TLS or without.
                connection.connect()
                return True
            connection.request("GET", "/health/ready")
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False
        finally:
            connection.close()

    def close(self, within_s: float = 30.0) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def __enter__(self) -> Runner:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
