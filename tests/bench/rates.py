"""How fast letters go in, wait, and come out: intake, sweep, drain, fold."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.interface import Identity
from retry.delay_queue.table.rocksdb_table import Memory, RocksTable

from .figures import Figure, rate
from .letters import SPRING, Incorrect, key, letter
from .machine import Usage
from .service import Service, now_ms

HOUR_MS = 3_600_000
_PATIENCE_S = 180
_SESSION_S = 5.0
# Letters that are to be due together must all wait before that; when they do not, once more with more time.
_TAKEN_IN_PER_S = 15_000
_TRIES = 3
_FOLD_ROWS = 10_000


def intake(service: Service, letters: int, name: str = "intake") -> list[Figure]:
    """A warm worker is stopped, the topic filled, and the worker let loose."""
    worker = service.warmed().worker
    worker.signal(signal.SIGSTOP)
    stopped_at = time.time()
    service.fill(letters, now_ms() + HOUR_MS)
    stopped_s = time.time() - stopped_at
    usage = service.usage()
    began = time.time()
    worker.signal(signal.SIGCONT)
    committed = service.until_committed(_PATIENCE_S)
    folded = worker.until_waiting(letters, _PATIENCE_S)
    usage.stop()
    if stopped_s > _SESSION_S:
        raise Incorrect(f"filling took {stopped_s:.1f} s, the stopped worker lost its session: use fewer --letters")
    service.check_waiting(letters)
    return [
        rate(name, letters, committed - began, "letters/s", 0.2),
        rate(f"{name} until folded", letters, folded - began, "letters/s"),
        *make_usage_figures(name, usage, letters),
    ]


def intake_of_spring(service: Service, letters: int) -> list[Figure]:
    """Measure intake with letters of Spring Kafka: eleven headers, a stack trace of 3 KB, a rule that matches its cause."""
    service.headers = SPRING
    return intake(service, letters, "intake of Spring's letters")


def sweep(service: Service, letters: int) -> list[Figure]:
    """All letters wait for one moment."""
    return due_together(service.warmed(), letters)


def due_together(service: Service, letters: int, beside: int = 0) -> list[Figure]:
    """Measure letters that are due together, by a warm worker in which so many other entries wait, and wait on."""
    lead_s = 3 + letters / _TAKEN_IN_PER_S
    for _ in range(_TRIES):
        due_s = time.time() + lead_s
        service.fill(letters, int(due_s * 1_000))
        if _all_wait(service, beside + letters, due_s - 0.5):
            return _swept(service, letters, due_s)
        service.reader.await_count(letters, _PATIENCE_S, service.worker.running)
        service.check_retries(letters)
        service.reader.forget()
        lead_s *= 2
    raise Incorrect("letters were due before all of them waited")


def _all_wait(service: Service, letters: int, until_s: float) -> bool:
    while (found := service.waiting()) < letters and time.time() < until_s:
        service.worker.running()
        time.sleep(0.2)
    return found == letters and time.time() < until_s


def _swept(service: Service, letters: int, due_s: float) -> list[Figure]:
    time.sleep(max(0.0, due_s - time.time() - 0.1))
    usage = service.usage()
    last = service.reader.await_count(letters, _PATIENCE_S, service.worker.running)
    usage.stop()
    first = service.reader.batches[0][0]
    service.check_retries(letters)
    return [
        rate("sweep, first to last", letters, last - first, "entries/s", 0.3),
        rate("sweep, due to last", letters, last - due_s, "entries/s", 0.3),
        Figure("sweep, due to first", first - due_s, "s"),
        *make_usage_figures("sweep", usage, letters),
    ]


def drain(service: Service, letters: int) -> list[Figure]:
    """A worker is started that has everything before it, and all of it due."""
    service.fill(letters, now_ms() - 1_000)
    began = service.worker.start()
    usage = service.usage()
    last = service.reader.await_count(letters, _PATIENCE_S, service.worker.running)
    usage.stop()
    first = service.reader.batches[0][0]
    service.check_retries(letters)
    return [
        rate("drain, start to last", letters, last - began, "letters/s", 0.1),
        Figure("drain, start to first", first - began, "s"),
        *make_usage_figures("drain", usage, letters),
    ]


def fold(work: Path, letters: int) -> list[Figure]:
    """Changelog rows into an empty table, as many at a time as a worker reads."""
    due_ms = now_ms() + HOUR_MS
    stem = entry_keys.build_key_stem("letters", 0)
    headers = [("x-origin", b"bench"), *((f"retry-header-{n}", b"x" * 16) for n in range(6))]
    rows = [
        (
            entry_keys.build_key(due_ms, stem, n),
            envelopes.encode(Entry("retries", key(n), letter(n, due_ms), headers, due_ms, "bench")),
        )
        for n in range(letters)
    ]
    table = RocksTable(work / "fold", Identity("cluster", "topic", 0), Memory(64 << 20))
    began = time.time()
    for start in range(0, letters, _FOLD_ROWS):
        table.apply_records(rows[start : start + _FOLD_ROWS], min(start + _FOLD_ROWS, letters), now_ms())
    seconds = time.time() - began
    whole = [row[1:] for row in table.scan_entries(b"", letters + 1)] == rows and table.waiting == letters
    table.close()
    if not whole:
        raise Incorrect("the table is not the fold of its rows")
    return [rate("fold", letters, seconds, "records/s")]


def make_usage_figures(name: str, usage: Usage, letters: int) -> list[Figure]:
    """Make figures of what the worker used, called `name`."""
    return [
        Figure(f"{name}, worker CPU", usage.worker_s / letters * 1_000, "s/1,000"),
        Figure(f"{name}, worker peak RSS", usage.peak_mb, "MB"),
        Figure(f"{name}, others", usage.others, "cores"),
    ]
