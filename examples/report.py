"""A report in a Spark session that starts long before it is needed: `python -m examples.report PAGE BEGIN`.

Spark's Java process starts while the broker does and while letters flow. The report is made when the file BEGIN is there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from examples.screen import Screen
from examples.stage import DemoFailed, Stage
from retry.__main__ import main as retry
from retry.analytics.spark_session import open_session
from retry.analytics.text_report import format_report
from retry.clock import Deadline, pause

# Every retry that was to fail again has done so by then: there is nothing to wait for.
_REPORT = ("analytics", "report", "--settle", "0s", "--json", "--html")


class Analytics:
    """The process that makes the report.

    Args:
      stage: where it runs; its settings are those of the service.
      page: where the page is to lie.
    """

    def __init__(self, stage: Stage, page: Path) -> None:
        self._stage, self._begin = stage, stage.log_file("begin")
        page.parent.mkdir(exist_ok=True)
        page.unlink(missing_ok=True)
        stage.start("report", "examples.report", str(page), str(self._begin))

    def begin(self) -> None:
        """Start to count: everything that the report is to show lies on Kafka."""
        self._begin.touch()

    def answer(self, screen: Screen, deadline: Deadline, fates: tuple[int, int]) -> Iterator[str]:
        """Lines of the report.

        Args:
          screen: shows that Spark is at work.
          fates: how many letters were parked and how many recovered.

        Raises:
          DemoFailed: the report has other numbers, or none in time.
        """
        with screen:
            self._stage.await_end("report", deadline, lambda: screen.show("report", "Spark counts what became of every letter"))
        *_, last = (line for line in self._stage.log_file("report").read_text().splitlines() if line.startswith("{"))
        answers = json.loads(last)
        totals = answers["totals"]
        if (totals["parked"], totals["recovered"], totals["unknown"]) != (*fates, 0):
            raise DemoFailed(f"the report has other numbers than Kafka, parked and recovered {fates}: {totals}")
        yield ""
        yield from format_report(answers)


def main(page: str, begin: str) -> None:
    """Start Spark, and make the report when the file is there."""
    with open_session():
        while not Path(begin).exists():
            pause(0.05)
        # It takes the session that there is.
        retry([*_REPORT, page], standalone_mode=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
