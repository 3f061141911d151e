"""Many dead-letter topics, or many shards on two workers: a start, nothing to do, a backlog, a steady rate."""

from __future__ import annotations

from . import steady
from .figures import Figure
from .letters import Incorrect, flush, producer, write
from .machine import cpu_s
from .service import Service, now_ms

_READY_S, _LAST_S = 120, 120
_BACKLOG = 1_000


def wide(service: Service, per_s: int, seconds: float) -> list[Figure]:
    """Workers that have been there before are started on letters that are due, one for each topic at least.

    Raises:
      Incorrect: a letter did not come back exactly once, or shards are not ready in time.
    """
    time_start(service)
    service.warm()
    for worker in service.workers:
        worker.stop()
    backlog = max(_BACKLOG, len(service.read))
    to = producer(service.bootstrap)
    for number in range(backlog):
        write(to, service.read[number % len(service.read)], number, now_ms() - 1_000)
    flush(to)
    began, ready_at = time_start(service)
    spent_s = sum(cpu_s(worker.pid) for worker in service.workers)
    last = service.reader.await_count(backlog, _LAST_S, service.worker.running)
    service.check_retries(backlog)
    service.reader.forget()
    steady.until_calm(service, _READY_S)
    return [
        Figure("start to ready", ready_at - began, "s"),
        Figure("CPU of the start", spent_s, "s"),
        Figure(f"start to the last of {backlog:,}", last - began, "s"),
        *steady.idle(service, seconds),
        *steady.rate(service, per_s, seconds),
        *steady.memory(service, "at the end"),
    ]


def time_start(service: Service) -> tuple[float, float]:
    """When they were started, and when every shard was ready, as many on each worker as on the others."""
    began = min([worker.start() for worker in service.workers])
    each = service.shards // len(service.workers)

    def ready() -> bool:
        found = [worker.metric("retry_shards_ready") for worker in service.workers]
        return sum(found) == service.shards and min(found) >= each

    at = service.worker.until(f"{service.shards} ready shards", ready, _READY_S, 0.05)
    for worker in service.workers:
        worker.running()
        if worker.metric("retry_shards_owned") < each:
            raise Incorrect("shards moved on while they became ready")
    return began, at
