"""What the machine is, how fast it is just now, and what a process uses of it."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import confluent_kafka

from retry.jars import fetch_jars

_TICK = os.sysconf("SC_CLK_TCK")
_STAT_CPU_IDLE = (3, 4)
_STAT_CPU_ALL = slice(0, 8)


def describe() -> str:
    """One line: cores, model, versions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    broker = next(jar.stem.split("-")[-1] for jar in fetch_jars("broker") if jar.name.startswith("kafka_2.13-"))
    return (
        f"{os.cpu_count()} cores, {model}; Python {platform.python_version()}, "
        f"librdkafka {confluent_kafka.libversion()[0]}, broker {broker}"
    )


def calibrate_ms() -> float:
    """Time of a fixed loop on one core, the best of 5: tells a slow spell of the machine from a slow program."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        seen: dict[int, int] = {}
        x = 1
        for n in range(200_000):
            x = (x * 69_069 + n) & 0xFFFF_FFFF
            seen[x & 1_023] = n
        best = min(best, time.perf_counter() - began)
    return best * 1_000


def family(pid: int) -> list[int]:
    """A process and those that it has started, as far as they run."""
    children = [int(child) for of in Path(f"/proc/{pid}/task").glob("*/children") for child in of.read_text().split()]
    return [pid, *(each for child in children for each in family(child))]


def cpu_s(pid: int) -> float:
    """CPU seconds of a process since it began, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def busy_s() -> float:
    """CPU seconds that all cores have been busy."""
    ticks = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:]][_STAT_CPU_ALL]
    return (sum(ticks) - sum(ticks[n] for n in _STAT_CPU_IDLE)) / _TICK


def rss_mb(pid: int, field: str = "VmRSS") -> float:
    """Memory of a process in 10^6 bytes: resident now, or `VmHWM`, the most since `forget_peak`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1_024 / 1e6
    return 0.0


def forget_peak(pid: int) -> None:
    """Let the peak of a process's memory begin anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def disk_mb(folder: Path) -> float:
    """Measure what a folder takes on the disk, in 10^6 bytes."""
    return sum(f.stat().st_blocks * 512 for f in folder.rglob("*") if f.is_file()) / 1e6


class Usage:
    """The resources that a worker uses from here on, and the rest of the machine beside it; 0 where there is no worker."""

    def __init__(self, worker: int, broker: int) -> None:
        self._worker, self._broker = worker, broker
        if worker:
            forget_peak(worker)
        self._cpu_s, self._busy_s, self._known_s, self._at = self._of_worker(), busy_s(), self._known(), time.time()
        self.worker_s = self.peak_mb = self.others = 0.0

    def _known(self) -> float:
        return self._of_worker() + cpu_s(self._broker) + sum(os.times()[:2])

    def _of_worker(self) -> float:
        return cpu_s(self._worker) if self._worker else 0.0

    def stop(self) -> Usage:
        """Take the second reading."""
        self.worker_s = self._of_worker() - self._cpu_s
        self.peak_mb = rss_mb(self._worker, "VmHWM") if self._worker else 0.0
        unknown = busy_s() - self._busy_s - (self._known() - self._known_s)
        self.others = max(0.0, unknown / (time.time() - self._at))
        return self
