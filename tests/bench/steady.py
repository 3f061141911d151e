"""What workers take while they have little to do: with nothing due at all, and at a steady rate of letters."""

from __future__ import annotations

import time

from . import spread
from .figures import Figure
from .letters import Incorrect
from .machine import cpu_s, rss_mb
from .service import Service

_PATIENCE_S = 120
_CALM_CORES, _CALM_S = 0.15, 3.0


def idle(service: Service, seconds: float) -> list[Figure]:
    """Seconds of CPU in a second in which nothing is due and no letter comes."""
    before, began = _cpu_s(service), time.time()
    time.sleep(seconds)
    share = (_cpu_s(service) - before) / (time.time() - began)
    return [Figure("idle", share * 100, "% of a core")]


def rate(service: Service, per_s: int, seconds: float) -> list[Figure]:
    """Lateness and CPU at so many letters a second, each due 1 to 5 s after it was written.

    Raises:
      Incorrect: a letter did not come back exactly once, or came early.
    """
    letters, before = int(per_s * seconds), _cpu_s(service)
    behind_s = spread.trickle(service.bootstrap, service.read, letters, per_s)
    service.reader.await_count(letters, _PATIENCE_S, service.worker.running)
    spent_s = _cpu_s(service) - before
    service.check_retries(letters)
    late_ms, _ = spread.late_ms(service.reader.batches)
    if late_ms[0] < 0:
        raise Incorrect(f"letters came back up to {-late_ms[0]:.0f} ms early")
    service.reader.forget()
    return [
        Figure("lateness, p50", spread.find_quantile(late_ms, 0.5), "ms"),
        Figure("lateness, p99", spread.find_quantile(late_ms, 0.99), "ms"),
        Figure("producer behind", behind_s * 1_000, "ms"),
        Figure("CPU, steady", spent_s / letters * 1e6, "us a letter"),
    ]


def memory(service: Service, when: str) -> list[Figure]:
    """Measure the memory of all workers together: resident, and the most since each began."""
    pids = [worker.pid for worker in service.workers]
    return [
        Figure(f"RSS {when}", sum(map(rss_mb, pids)), "MB"),
        Figure(f"peak RSS {when}", sum(rss_mb(pid, "VmHWM") for pid in pids), "MB"),
    ]


def until_calm(service: Service, timeout_s: float) -> float:
    """Seconds until workers and broker have done what a fill left them to do, as merging files; at most the timeout."""
    began = time.time()
    while time.time() - began < timeout_s:
        before, at = _cpu_s(service) + cpu_s(service.broker_pid), time.time()
        time.sleep(_CALM_S)
        if (_cpu_s(service) + cpu_s(service.broker_pid) - before) / (time.time() - at) < _CALM_CORES * (1 + len(service.workers)):
            break
    return time.time() - began


def _cpu_s(service: Service) -> float:
    return sum(cpu_s(worker.pid) for worker in service.workers)
