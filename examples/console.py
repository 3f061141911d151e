"""The console beside the rest of the demo: where it is, that it shows what Kafka holds, and that it stays for who looks at it."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable
from urllib.parse import urlencode

from examples.stage import DemoFailed, Stage
from retry.clock import Deadline, pause

# A task's definition that nobody can read is parked, too.
_PARKED = "state:parked (team:shop or team:billing)"
_ADDRESS = re.compile(r"http on (127\.0\.0\.1:\d+)")


class Console:
    """The process; its own stage, since it outlives the worker.

    Args:
      stage: where it runs, with the settings of the service and a data directory of its own.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        stage.start("console", "retry", "console")

    def await_ready(self, say: Callable[[str], None], deadline: Deadline) -> None:
        """Return when it has read what there is, and say where it is."""
        self._stage.await_ready("console", deadline)
        say(f"see what fails, and act: {self.url}")

    @property
    def url(self) -> str:
        """Where it is."""
        address = _ADDRESS.search(self._stage.log_file("console").read_text())
        return f"http://{address[1] if address else ''}"

    def await_parked(self, parked: int, deadline: Deadline) -> None:
        """Return when it shows that so many letters of the two teams are parked.

        Raises:
          DemoFailed: it shows another number.
        """
        while (shown := self._count(_PARKED)) != parked:
            self._stage.check()
            if deadline.has_passed():
                raise DemoFailed(f"the console shows {shown} parked letters, and Kafka has {parked}")
            pause(0.1)

    def _count(self, meant: str) -> int:
        with urllib.request.urlopen(f"{self.url}/api/letters?{urlencode({'q': meant, 'limit': 1})}", timeout=10) as answer:
            return int(json.loads(answer.read())["count"])

    def keep(self, check: Callable[[], None]) -> None:
        """Return when somebody types Ctrl-C."""
        try:
            while True:
                check()
                self._stage.check()
                pause(0.5)
        except KeyboardInterrupt:
            return
