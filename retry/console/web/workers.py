"""Workers: who sweeps which shards, what keeps targets closed, and how far this console has read the changelog."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retry import clock
from retry.console.rows import Scope, WorkerState
from retry.console.web.app import Console, console_of, render_page, viewer_of
from retry.console.web.rights import Role, needs
from retry.errors import RetryError
from retry.kafka import consumer_groups
from retry.kafka.interface import KafkaException

# Something that only the brokers know, asked for while somebody looks, in a thread of its own: no page waits for it.

log = logging.getLogger(__name__)

_EVERY_S = 10.0
_Found = TypeVar("_Found")


class LookedUp(Generic[_Found]):
    """A value that is looked up in a thread of its own, every ten seconds at most.

    Args:
      what: for the thread and the log.
      look: finds the value; is given the value before.
      unknown: the value where the brokers do not answer, and before they have.
    """

    def __init__(self, what: str, look: Callable[[_Found], _Found], unknown: _Found) -> None:
        self._what, self._look, self._unknown, self._found = what, look, unknown, unknown
        self._due = clock.Interval(_EVERY_S, at_once=True)
        self._lock = threading.Lock()
        self._looking = False

    def read_latest(self) -> _Found:
        """Return the last value at once, and start a new look-up where one is due."""
        with self._lock:
            if not self._looking and self._due.is_due():
                self._looking = True
                threading.Thread(target=self._run_lookup, name=self._what, daemon=True).start()
            return self._found

    def _run_lookup(self) -> None:
        found = self._unknown
        try:
            found = self._look(self._found)
        except (RetryError, KafkaException, TimeoutError) as error:
            log.debug("%s: nobody tells: %s", self._what, error)
        finally:
            with self._lock:
                self._found, self._looking = found, False


# Workers that are silent, and since when: as their records in the notes tell, and the group that shares the shards.

class Workers(NamedTuple):
    """The number of workers that run, as their consumer group tells.

    Attributes:
      running: how many members the group has; None where the brokers do not tell.
      silent_since_ms: since when no worker runs, as far as this console has seen; None while one runs, or nobody knows.
    """

    running: int | None
    silent_since_ms: int | None = None


class Silence(NamedTuple):
    """A message about workers that are silent, and when one was heard of last; None where nobody knows."""

    text: str
    since_ms: int | None


def watch_silent_workers(console: Console) -> LookedUp[Workers]:
    """Watch how many members the consumer group of the shards has."""

    def count_workers(before: Workers) -> Workers:
        cluster = console.cluster()
        running = consumer_groups.count_members(cluster.admin, cluster.names.table_group)
        return Workers(running, (before.silent_since_ms or console.clock_ms()) if running == 0 else None)

    return LookedUp("workers", count_workers, Workers(None))


def list_silences(said: Sequence[WorkerState], group: Workers) -> list[Silence]:
    """List the messages of a page about silent workers, from what workers say of themselves; empty while all are heard."""
    silent = [each for each in said if each.is_silent]
    heard = any(not each.is_silent and not each.has_ended for each in said)
    if group.running == 0 or (group.running is None and said and not heard):
        last_ms = max((each.at_ms for each in said), default=group.silent_since_ms)
        return [Silence("No worker runs, and nothing is sent until one starts.", last_ms)]
    return [Silence(_describe_worker(each), each.at_ms) for each in silent]


def _describe_worker(worker: WorkerState) -> str:
    who = f"Worker {worker.name} on {worker.host}" if worker.name else "A worker"
    return f"{who} is silent. What waits in its {worker.shards} shards is late until another worker has taken them over."


PART = "workers"


def build_routes(console: Console, group: LookedUp[Workers]) -> list[Route]:
    @needs(Role.VIEWER)
    def render_workers(request: Request) -> Response:
        console, scope = console_of(request), viewer_of(request).scope()
        return render_page(request, "workers.html", live=(PART, ""), **_build_page(console, scope, group.read_latest()))

    console.keep_fresh(PART, "workers_live.html", lambda sight, _: _build_page(console, sight.scope, group.read_latest()))
    return [Route("/workers", render_workers)]


def _build_page(console: Console, scope: Scope, group: Workers) -> dict[str, Any]:
    now = console.replica.load_now(scope)
    return {"now": now, "running": group.running, "silences": list_silences(now.workers, group)}
