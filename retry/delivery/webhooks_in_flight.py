"""HTTP calls in flight: so many at a time, so many to a host, all made by one loop; what came of them is kept until written down.

The fewer are free, the fewer one host and one team may have: a host that hangs holds up its own calls only, and so does a team
whose hosts hang or whose names do not resolve. One that is in flight is not begun again by this process, whatever its shard goes
through; see `retry.delivery.webhook_calls`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from retry import clock
from retry.delay_queue import envelopes
from retry.delay_queue.envelopes import Named
from retry.delivery.circuit_breakers import HostCircuitBreakers
from retry.errors import LookupsBusy
from retry.http_client.client import Answer, HttpRequest
from retry.http_client.ssrf_guard import name_in
from retry.kafka.topics import TopicNames
from retry.telemetry.call_records import Called

log = logging.getLogger(__name__)

_END_S, _POLL_S = 5.0, 0.02
BUSY = "as many calls are under way as may be"
LOOKUPS = "as many lookups of host names are under way for its team as may be; do its names resolve?"

Crowded = Callable[[str, str], bool]
SendRequest = Callable[[HttpRequest], Awaitable[Answer]]


class Answered(NamedTuple):
    """A call that has ended and is not written down yet."""

    entry: Named
    answer: Answer
    ended_at_ms: int


class Limits(NamedTuple):
    total: int
    per_host: int
    timeout_ms: int


class WebhooksInFlight:
    """The calls of one process; asked by sweeps of several threads.

    Args:
      call, end: makes one, and lets go of what it keeps; on the loop of a thread of its own.
      crowded: whether a host's name cannot be looked up for a team just now.
      report: is given what came of calls, once that is committed.
    """

    def __init__(
        self, call: SendRequest, limits: Limits, names: TopicNames, report: Callable[[list[Called]], None], crowded: Crowded,
        end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:  # fmt: skip
        self._call, self._end, self._limits, self.names, self.report = call, end, limits, names, report
        self._crowded, self._lock = crowded, threading.Lock()
        self._hosts = HostCircuitBreakers()
        self._in_flight: dict[int, set[bytes]] = {}
        self._of_host: Counter[str] = Counter()
        self._of_team: Counter[str] = Counter()
        self._answered: dict[int, dict[bytes, Answered]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving = False

    def explain_block(self, team: str, host: str, now_ms: int) -> str | None:
        """Explain why no call of a team to a host may begin now; None where a call may begin."""
        with self._lock:
            if (why := self._hosts.explain_block(host, now_ms)) is not None:
                return why
            if self._room(team, host) < 1:
                return BUSY
        return LOOKUPS if self._crowded(team, name_in(host)) else None

    def room(self, team: str, host: str) -> int:
        """Return how many calls of a team to a host may begin now, apart from circuit breakers."""
        with self._lock:
            return self._room(team, host)

    def _room(self, team: str, host: str) -> int:
        if self._hosts.is_half_open(host):
            return 1 - min(1, self._of_host[host])
        not_of_others = self._limits.total - self._of_host.total() + self._of_team[team]
        # The last quarter is for teams that have none yet.
        free = min(not_of_others, max(1, not_of_others * 3 // 4)) - self._of_team[team]
        return min(free, min(self._limits.per_host, max(1, free // 2)) - self._of_host[host])

    def pending(self, partition: int) -> set[bytes]:
        with self._lock:
            return {*self._in_flight.get(partition, ()), *self._answered.get(partition, ())}

    def begin_calls(self, partition: int, entries: Sequence[tuple[bytes, Named]]) -> int:
        """Begin calls of one team to one host, as long as there is room; how many were begun."""
        begun, now_ms = 0, clock.wall_ms()
        with self._lock:
            for key, entry in entries:
                host, team = entry.destination, entry.team
                if self._leaving or self._hosts.explain_block(host, now_ms) is not None or self._room(team, host) < 1:
                    break
                self._hosts.note_call_begun(host)
                self._in_flight.setdefault(partition, set()).add(key)
                self._of_host[host] += 1
                self._of_team[team] += 1
                begun += 1
            if begun:
                # One for all: to wake the loop costs as much as a call's request.
                self._running_loop().call_soon_threadsafe(self._start, partition, entries[:begun])
        return begun

    def _start(self, partition: int, entries: Iterable[tuple[bytes, Named]]) -> None:
        for key, entry in entries:
            task = asyncio.ensure_future(self._run(partition, key, entry))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, partition: int, key: bytes, entry: Named) -> None:
        answer: Answer | None = None
        try:
            answer = await self._call(_request(entry, self._limits.timeout_ms))
        except LookupsBusy as error:
            log.debug("%s waits: %s", entry.destination, error, extra=_name_call(entry))
        except Exception:
            log.exception("a call failed in a way that nobody thought of; it counts as an attempt", extra=_name_call(entry))
            answer = Answer(None, "internal")
        with self._lock:
            self._in_flight[partition].discard(key)
            _decrement(self._of_host, entry.destination)
            _decrement(self._of_team, entry.team)
            self._note_answer(partition, key, entry, answer)

    def _note_answer(self, partition: int, key: bytes, entry: Named, answer: Answer | None) -> None:
        host, now_ms = entry.destination, clock.wall_ms()
        if answer is None:
            self._hosts.return_probe(host)
            return
        if answer.blames_host:
            self._hosts.note_failure(host, now_ms, answer.retry_after_ms)
        else:
            self._hosts.note_answer(host)
        self._answered.setdefault(partition, {})[key] = Answered(entry, answer, now_ms)

    def list_ended(self, partition: int, rows_max: int) -> dict[bytes, Answered]:
        """List calls of a shard that have ended; they stay until they are written down."""
        with self._lock:
            ended = self._answered.get(partition, {})
            return dict(ended) if len(ended) <= rows_max else dict(list(ended.items())[:rows_max])

    def note_written(self, partition: int, keys: Iterable[bytes]) -> None:
        """Forget the answers of these calls: they are in the changelog, or of no interest any more."""
        with self._lock:
            for key in keys:
                self._answered[partition].pop(key, None)

    def count(self) -> int:
        with self._lock:
            return self._of_host.total()

    def breakers(self) -> Counter[str]:
        """Count the hosts whose circuit breaker is `open` or `half-open`, separately for each state."""
        with self._lock:
            return Counter(self._hosts.describe_hosts(clock.wall_ms()).values())

    def drain_calls(self, within_s: float) -> bool:
        """Begin no more, and wait so long for those that are under way; whether there were any."""
        with self._lock:
            self._leaving = True
            any_calls = self._of_host.total() > 0 or any(self._answered.values())
        deadline = clock.Deadline(within_s)
        while self.count() and not deadline.has_passed():
            clock.pause(_POLL_S)
        return any_calls

    def close(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._cancel(), loop).result(_END_S)
            loop.call_soon_threadsafe(loop.stop)

    async def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._end is not None:
            await self._end()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="calls", daemon=True).start()
        return self._loop


def _name_call(entry: Named) -> dict[str, str]:
    """Name team, host and timer of a call, for a line of the log."""
    return {"team": entry.team, "target": entry.destination, "timer": (entry.call or envelopes.Call("")).id}


def _request(entry: Named, timeout_ms: int) -> HttpRequest:
    call = entry.call or envelopes.Call("")
    headers = {name: (value or b"").decode("latin-1") for name, value in entry.headers}
    timeout_s = min(call.timeout_ms, timeout_ms) / 1_000
    return HttpRequest(call.id, call.method, call.url, headers, entry.value or b"", timeout_s, entry.team)


def _decrement(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]
