"""What a stock of waiting entries costs: memory, disk, and the time to have it back after a restart."""

from __future__ import annotations

import shutil
import time

from .figures import Figure
from .letters import Incorrect
from .machine import disk_mb, rss_mb
from .rates import HOUR_MS
from .service import Service, now_ms

_SHARE = 5
_PATIENCE_S = 300
_SETTLE_S = 3
_RSS_MB = 300.0
_RESTORE_S = 3.0


def memory(service: Service, letters: int) -> list[Figure]:
    """Five times the letters, waiting."""
    entries, worker = letters * _SHARE, service.worker
    worker.start()
    worker.ready()
    usage, empty_mb = service.usage(), rss_mb(worker.pid)
    service.fill(entries, now_ms() + HOUR_MS)
    worker.until_waiting(entries, _PATIENCE_S)
    usage.stop()
    time.sleep(_SETTLE_S)
    figures = [
        Figure("memory, entries waiting", worker.waiting(), "entries"),
        Figure("memory, RSS before", empty_mb, "MB"),
        Figure("memory, RSS settled", rss_mb(worker.pid), "MB", most=_RSS_MB),
        Figure("memory, RSS peak", rss_mb(worker.pid, "VmHWM"), "MB"),
        Figure("memory, state on disk", disk_mb(service.data_dir), "MB"),
        Figure("memory, others", usage.others, "cores"),
    ]
    service.check_waiting(entries)
    return figures


def restore(service: Service, letters: int) -> list[Figure]:
    """A stock of entries; an orderly end; and a new start with the state, without the tables, and with nothing."""
    worker = service.worker
    worker.start()
    worker.ready()
    service.fill(letters, now_ms() + HOUR_MS)
    worker.until_waiting(letters, _PATIENCE_S)
    service.check_waiting(letters)
    stopping_s = worker.stop()
    kept_s = _restart_s(service, letters)
    shutil.rmtree(service.data_dir / "tables")
    without_tables_s = _restart_s(service, letters)
    shutil.rmtree(service.data_dir)
    without_all_s = _restart_s(service, letters)
    service.check_waiting(letters)
    return [
        Figure("restore, state kept", kept_s, "s"),
        Figure("restore, tables wiped", without_tables_s, "s", most=_RESTORE_S),
        Figure("restore, all state wiped", without_all_s, "s", most=_RESTORE_S),
        Figure("restore, stop by SIGTERM", stopping_s, "s"),
    ]


def _restart_s(service: Service, letters: int) -> float:
    """From the start of the process to readiness; then it must have every entry, and is ended again."""
    worker = service.worker
    began = worker.start()
    seconds = worker.ready() - began
    if (found := worker.waiting()) != letters:
        raise Incorrect(f"ready with {found:,} of {letters:,} entries")
    worker.stop()
    return seconds
