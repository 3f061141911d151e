"""Now: what waits, what is new, what is held, and whether retries help; a sentence first."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backoff import duration_text
from retry import clock
from retry.console.rows import Held, LetterRow, Scope, WorkerState
from retry.console.rows import Now as Snapshot
from retry.console.web.app import Console, console_of, render_page, viewer_of
from retry.console.web.formats import format_count
from retry.console.web.rights import Role, needs
from retry.delay_queue.entry_keys import Lane
from retry.errors import RetryError
from retry.kafka import consumer_groups
from retry.kafka.interface import KafkaException
from retry.kafka.target_probe import TargetProbe
from retry.operations import blocked_lanes
from retry.operations.letter_filter.parse import parse

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


# Why letters that are due were not sent: a pause, a target that is closed, or maybe a limit or a circuit breaker.
#
# What is used of limits is in the workers' memory, so all that can be said of those here is that there is one; `/health/ready`
# of a worker says whether it is that. Which breakers are not closed workers write down.

_LOOKED_AT_MAX = 500
_OVERDUE = parse("state:waiting due:<-1s")


class OverdueLane(NamedTuple):
    """Letters of one team, from one topic, for one target, that are overdue.

    Attributes:
      since_ms: when the oldest of them was due.
      why: what keeps them; None where nothing is known to.
    """

    team: str | None
    topic: str
    target: str
    since_ms: int
    why: str | None

    def is_in(self, scope: Scope) -> bool:
        return scope is None or self.team in scope


def overdue_lanes(console: Console) -> LookedUp[tuple[OverdueLane, ...]]:
    """Looks at the 500 letters that are overdue for longest."""

    def find_lanes(_before: tuple[OverdueLane, ...]) -> tuple[OverdueLane, ...]:
        oldest: dict[tuple[str | None, str, str], LetterRow] = {}
        for row in console.replica.list_letters(None, _OVERDUE, None, _LOOKED_AT_MAX).rows:
            oldest.setdefault((row.team, row.topic or "", row.target), row)
        return _describe_overdue(console, oldest) if oldest else ()

    return LookedUp("overdue letters", find_lanes, ())


def _describe_overdue(console: Console, oldest: dict[tuple[str | None, str, str], LetterRow]) -> tuple[OverdueLane, ...]:
    cluster, registry = console.cluster(), console.registry()
    controls = {key: value for shard in console.replica.controls() for key, value in shard.items()}
    probe = TargetProbe(cluster.admin, writes=False)
    breakers, by_policies = console.replica.open_breakers(), blocked_lanes.by_policies(registry, cluster.names, probe, controls)
    of_letters = blocked_lanes.or_maybe_limited(by_policies, registry, breakers)
    of_named = blocked_lanes.or_maybe_limited(blocked_lanes.by_controls(probe, controls), registry, breakers)
    return tuple(
        OverdueLane(team, topic, target, row.due_at_ms or 0,
                    (of_letters if row.kind == "letter" else of_named)(Lane(team or "", topic, target)))
        for (team, topic, target), row in oldest.items()
    )  # fmt: skip


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


def silent_workers(console: Console) -> LookedUp[Workers]:
    """Watch how many members the consumer group of the shards has."""

    def count_workers(before: Workers) -> Workers:
        cluster = console.cluster()
        running = consumer_groups.count_members(cluster.admin, cluster.names.table_group)
        return Workers(running, (before.silent_since_ms or console.clock_ms()) if running == 0 else None)

    return LookedUp("workers", count_workers, Workers(None))


def silences(said: Sequence[WorkerState], group: Workers) -> list[Silence]:
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


PART = "now"


def build_routes(console: Console) -> list[Route]:
    seen = _LookedUp(silent_workers(console), overdue_lanes(console))

    @needs(Role.VIEWER)
    def render_home_page(request: Request) -> Response:
        console, scope = console_of(request), viewer_of(request).scope()
        return render_page(request, "now.html", live=(PART, ""), **_build_page(console, scope, seen))

    console.keep_fresh(PART, "now_live.html", lambda sight, _argument: _build_page(console, sight.scope, seen))
    return [Route("/", render_home_page)]


class _LookedUp(NamedTuple):
    workers: LookedUp[Workers]
    overdue: LookedUp[tuple[OverdueLane, ...]]


def _build_page(console: Console, scope: Scope, seen: _LookedUp) -> dict[str, Any]:
    now, group = console.replica.load_now(scope), seen.workers.read_latest()
    overdue = [lane for lane in seen.overdue.read_latest() if lane.is_in(scope)] if now.overdue else []
    counts = zip(now.failed_by_hour, now.retried_by_hour, strict=True)
    return {
        "due": [(bar.from_ms, (bar.count,)) for bar in now.due],
        "by_hour": list(zip(now.hours_from_ms, counts, strict=True)),
        "now": now, "sentence": sentence(now), "silences": silences(now.workers, group), "running": group.running,
        "overdue": overdue, "near_retention_q": _near_retention_q(now.near_retention_age_ms or 0),
    }  # fmt: skip


def _near_retention_q(age_ms: int) -> str:
    """Who failed so long ago has failed first even earlier: no letter is left out."""
    return f"(state:parked or state:discarded) age:>{duration_text(age_ms)}"


def sentence(now: Snapshot) -> str:
    """Say in one sentence how much waits, is parked, is new and is held."""
    if not (now.waiting or now.parked):
        return "Nothing waits."
    parts = [f"{format_count(now.waiting)} {_wait(now.waiting)}"] if now.waiting else ["nothing waits"]
    if now.parked:
        parts.append(f"{format_count(now.parked)} {'is' if now.parked == 1 else 'are'} parked")
    if now.new_groups:
        parts.append(f"{now.new_groups} {'group is' if now.new_groups == 1 else 'groups are'} new")
    parts += [_format_held(each) for each in now.held[:3]]
    if len(now.held) > 3:
        parts.append(f"{len(now.held) - 3} more things are held")
    text = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    return f"{text[0].upper()}{text[1:]}."


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"


def _format_held(held: Held) -> str:
    if held.what == "action":
        return f"an action ({held.scope}) is held"
    return f"{held.name} is paused" if held.name else "everything is paused"
