"""One worker, and ever more entries that wait: what should stay as it is, and what may grow with them."""

from __future__ import annotations

import shutil

from . import steady, waiting
from .figures import Figure
from .letters import Incorrect
from .machine import cpu_s, disk_mb
from .rates import HOUR_MS, due_together
from .service import Service, now_ms

# Lanes of these; further teams make further lanes.
TEAMS = [f"team-{n:02d}" for n in range(16)]
_FROM_MS, _OVER_MS = 3 * HOUR_MS, 24 * HOUR_MS
# Some 10,000 entries a second at the very least.
_READY_S, _ENTRIES_PER_S = 60, 10_000
_CALM_S = 180.0


def curve(service: Service, entries: int, due: int, per_s: int, seconds: float) -> list[Figure]:
    """So many wait, due from 3 to 27 hours on: `due` letters at one moment, a steady rate, a restart, a restore.

    What a restore costs is its CPU less that of a restart that finds its tables. Each letter that is due comes back exactly
    once; of those that wait none does, and all are there at every start.
    """
    worker = service.worker
    worker.start()
    worker.ready()
    before_s = cpu_s(worker.pid)
    waiting.fill(service, entries, waiting.scattered(entries, now_ms() + _FROM_MS, _OVER_MS))
    service.until_waiting(entries, _READY_S + entries / _ENTRIES_PER_S)
    folded_s = cpu_s(worker.pid) - before_s
    calm_s = steady.until_calm(service, _CALM_S)
    figures = [
        Figure("fold, CPU", folded_s / entries * 1e6, "us an entry"),
        Figure("calm after", calm_s, "s"),
        *steady.memory(service, "waiting"),
        Figure("disk, waiting", disk_mb(service.data_dir), "MB"),
        *steady.idle(service, seconds),
    ]
    service.warm(entries)
    figures += [convert_to_micros(figure) for figure in due_together(service, due, entries) if figure.name in _OF_SWEEP]
    service.reader.forget()
    service.until_waiting(entries, _READY_S)
    figures += steady.rate(service, per_s, seconds)
    figures += [*steady.memory(service, "at the end"), Figure("disk, at the end", disk_mb(service.data_dir), "MB")]
    worker.stop()
    figures += _started_again(service, entries)
    if service.reader.count:
        raise Incorrect(f"{service.reader.count:,} entries came back before they were due")
    return figures


_OF_SWEEP = ("sweep, first to last", "sweep, due to last", "sweep, due to first", "sweep, worker CPU")


def convert_to_micros(figure: Figure) -> Figure:
    """CPU in microseconds an entry, as the other figures of this table have it."""
    if not figure.name.endswith("CPU"):
        return Figure(figure.name, figure.value, figure.unit)
    return Figure("sweep, CPU", figure.value * 1e3, "us an entry")


def _started_again(service: Service, entries: int) -> list[Figure]:
    kept_s, kept_cpu_s = _ready_s(service, entries)
    service.worker.stop()
    shutil.rmtree(service.data_dir / "tables")
    wiped_s, wiped_cpu_s = _ready_s(service, entries)
    return [
        Figure("restart, state kept", kept_s, "s"),
        Figure("restart, tables wiped", wiped_s, "s"),
        Figure("restore, CPU", (wiped_cpu_s - kept_cpu_s) / entries * 1e6, "us an entry"),
        *steady.memory(service, "restored"),
    ]


def _ready_s(service: Service, entries: int) -> tuple[float, float]:
    """Seconds and seconds of CPU from the start of the process until it is ready, with everything that waits."""
    worker = service.worker
    began = worker.start()
    seconds, spent_s = worker.ready(_READY_S + entries / _ENTRIES_PER_S) - began, cpu_s(worker.pid)
    if (found := worker.waiting()) != entries:
        raise Incorrect(f"ready with {found:,} of {entries:,} entries")
    return seconds, spent_s
