"""Workers that are silent, and since when: as their records in the notes tell, and the group that shares the shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from retry.console.replica.rows import WorkerState
from retry.console.web.app import Console
from retry.console.web.looked_up import LookedUp
from retry.kafka import consumer_groups


class Workers(NamedTuple):
    """The number of workers that run, as their consumer group tells.

    Attributes:
      running: how many members the group has; None where the brokers do not tell.
      silent_since_ms: since when no worker runs, as far as this console has seen; None while one runs, or nobody knows.
    """

    running: int | None
    silent_since_ms: int | None = None


class Silence(NamedTuple):
    """Something to be told of workers.

    Attributes:
      since_ms: when one was heard of last; None where nobody knows.
    """

    text: str
    since_ms: int | None


def silent_workers(console: Console) -> LookedUp[Workers]:
    """Watch how many members the consumer group of the shards has."""

    def count_workers(before: Workers) -> Workers:
        cluster = console.cluster()
        running = consumer_groups.count_members(cluster.admin, cluster.names.table_group)
        return Workers(running, (before.silent_since_ms or console.clock_ms()) if running == 0 else None)

    return LookedUp("workers", count_workers, Workers(None))


def silences(said: Sequence[WorkerState], group: Workers) -> list[Silence]:
    """List the messages of a page about silent workers; empty while all workers are heard.

    Args:
      said: what workers say of themselves.
    """
    silent = [each for each in said if each.is_silent]
    heard = any(not each.is_silent and not each.has_ended for each in said)
    if group.running == 0 or (group.running is None and said and not heard):
        last_ms = max((each.at_ms for each in said), default=group.silent_since_ms)
        return [Silence("No worker runs, and nothing is sent until one starts.", last_ms)]
    return [Silence(_describe_worker(each), each.at_ms) for each in silent]


def _describe_worker(worker: WorkerState) -> str:
    who = f"Worker {worker.name} on {worker.host}" if worker.name else "A worker"
    return f"{who} is silent. What waits in its {worker.shards} shards is late until another worker has taken them over."
