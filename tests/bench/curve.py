"""One worker, and ever more entries that wait: what should stay as it is, and what may grow with them."""

from __future__ import annotations

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
    """So many entries wait, due from 3 to 27 hours on; a restore, `due` letters at one moment, a steady rate, a restart.

    Each letter that is due comes back exactly once; of those that wait none does, and all are there at every start.
    """
    worker = service.worker
    worker.start()
    worker.ready()
    bare_s = cpu_s(worker.pid)
    worker.stop()
    waiting.fill(service, entries, waiting.scattered(entries, now_ms() + _FROM_MS, _OVER_MS))
    restored_s = _ready_s(service, entries)
    spent_s = cpu_s(worker.pid) - bare_s
    calm_s = steady.until_calm(service, _CALM_S)
    figures = [
        Figure("restore", restored_s, "s"),
        Figure("restore and fold, CPU", max(0.0, spent_s) / entries * 1e6, "us an entry"),
        Figure("calm after", calm_s, "s"),
        *steady.memory(service, "waiting"),
        Figure("disk, waiting", disk_mb(service.data_dir), "MB"),
        *steady.idle(service, seconds),
    ]
    service.warm(entries)
    figures += [_told(figure) for figure in due_together(service, due, entries) if figure.name in _OF_SWEEP]
    service.reader.forget()
    service.until_waiting(entries, _READY_S)
    figures += steady.rate(service, per_s, seconds)
    figures += [*steady.memory(service, "at the end"), Figure("disk, at the end", disk_mb(service.data_dir), "MB")]
    worker.stop()
    figures.append(Figure("restart, state kept", _ready_s(service, entries), "s"))
    if service.reader.count:
        raise Incorrect(f"{service.reader.count:,} entries came back before they were due")
    return figures


_OF_SWEEP = ("sweep, first to last", "sweep, due to last", "sweep, due to first", "sweep, worker CPU")


def _told(figure: Figure) -> Figure:
    """CPU in microseconds an entry, as the other figures of this table have it."""
    if not figure.name.endswith("CPU"):
        return Figure(figure.name, figure.value, figure.unit)
    return Figure("sweep, CPU", figure.value * 1e3, "us an entry")


def _ready_s(service: Service, entries: int) -> float:
    worker = service.worker
    began = worker.start()
    seconds = worker.ready(_READY_S + entries / _ENTRIES_PER_S) - began
    if (found := worker.waiting()) != entries:
        raise Incorrect(f"ready with {found:,} of {entries:,} entries")
    return seconds
