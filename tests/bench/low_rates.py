"""What an application and its broker take while few letters come: readings beside a run of the peers' harness."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from .machine import cpu_s, family

_EVERY_S = 2.0
# The harness waits so long after all came back before it ends the application.
_LINGERS_S = 1.0
_SWITCHES = re.compile(r"^voluntary_ctxt_switches:\s+(\d+)", re.MULTILINE)
_KINDS = Path(__file__).parent / "CountRequests.java"


class Reading(NamedTuple):
    """The amounts that were used up to a moment.

    Attributes:
      at_s: of the wall clock.
      application_s: seconds of CPU.
      broker_s: seconds of CPU.
      switches: voluntary context switches of all threads of the application.
      requests: that the broker has had, by kind.
    """

    at_s: float
    application_s: float
    broker_s: float
    switches: int
    requests: dict[str, int]


class RequestCounts:
    """Asks a broker how many requests it has had.

    Args:
      jmx_port: of the broker, on this machine; nobody may need a password there.
    """

    def __init__(self, jmx_port: int) -> None:
        command = ["java", "-XX:TieredStopAtLevel=1", str(_KINDS), str(jmx_port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self) -> dict[str, int]:
        """How many of each kind there were since the broker was started."""
        assert self._process.stdin and self._process.stdout
        print(file=self._process.stdin, flush=True)
        return {kind: int(count) for kind, count in (each.split("=") for each in self._process.stdout.readline().split())}

    def close(self) -> None:
        """End the process that asks."""
        self._process.communicate(timeout=60)


def watch(harness: subprocess.Popen[bytes], broker: int, counts: RequestCounts) -> list[Reading]:
    """Read until the harness ends; readings in which its application ran.

    Args:
      broker: its process.
    """
    found = []
    while harness.poll() is None:
        try:
            if application := family(harness.pid)[1:]:
                found.append(_read(application, broker, counts))
        except FileNotFoundError:
            # A process or a thread ended while it was read; so this is no reading of the steady part.
            pass
        time.sleep(_EVERY_S)
    return found


def _read(application: list[int], broker: int, counts: RequestCounts) -> Reading:
    states = [file.read_text() for pid in application for file in Path(f"/proc/{pid}/task").glob("*/status")]
    switches = sum(int(found[1]) for state in states if (found := _SWITCHES.search(state)))
    return Reading(time.time(), sum(map(cpu_s, application)), cpu_s(broker), switches, counts.read())


def sum_up(readings: list[Reading], seconds: float, delay_max_s: float) -> dict[str, float]:
    """Sum up what was used a second while letters came in and went out: between the first retries and the last letter.

    Args:
      seconds: for which letters were sent.
      delay_max_s: of a letter.

    Returns:
      Fields for the run's line; none where there are no two readings in that time.
    """
    if not readings:
        return {}
    last_sent_s = readings[-1].at_s - delay_max_s - _LINGERS_S
    began_s = last_sent_s - seconds + delay_max_s + _EVERY_S
    steady = [each for each in readings if began_s <= each.at_s <= last_sent_s]
    if len(steady) < 2:
        return {}
    first, last = steady[0], steady[-1]
    span_s = last.at_s - first.at_s
    return {
        "application_percent": (last.application_s - first.application_s) / span_s * 100,
        "broker_percent": (last.broker_s - first.broker_s) / span_s * 100,
        "switches_per_s": (last.switches - first.switches) / span_s,
        "requests_per_s": (sum(last.requests.values()) - sum(first.requests.values())) / span_s,
        "transactions_per_s": (last.requests.get("EndTxn", 0) - first.requests.get("EndTxn", 0)) / span_s,
    }
