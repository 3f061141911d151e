"""Calls: due entries that are HTTP calls. They are made between sweeps; the shard's next transaction says what came of them.

The effects of one call, in their order, and what a crash after each costs:

1. take a due entry of the table and call its host                          it is called again: at least once, with the same id
2. begin a transaction                                                      the same
3. write a null for its key; where it failed, the same entry under its next
   due time, or to the parking topic; and what came of it                   the same
4. commit                                                                   nothing
5. drop it in the table                                                     nothing: the fold finds the same

Calls of all shards are made by one thread. There are so many at a time, and so many to one host, fewer the
fewer are free: a host that hangs holds up its own calls only. One that is under way is not begun again by this process,
whatever its shard goes through.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import xxhash

from backoff import Park, Policy, PolicyInvalid, RetryAt
from backoff.parse import DEFAULT
from backoff.parse import policy as parsed
from retry import clock
from retry import entry as entries
from retry.entry import Entry, Named
from retry.gate import Gate
from retry.gather import Lane
from retry.kafka.log import Writer
from retry.kafka.topics import Names
from retry.reasons import Reason
from retry.sinks.webhook.answer import Answer, Verdict
from retry.sinks.webhook.client import Request
from retry.sinks.webhook.hosts import Hosts
from retry.sweep import Changelog
from retry.table.base import Table
from retry.telemetry.calls import BODY_BYTES, Called, to_json

log = logging.getLogger(__name__)

_ALL_BYTES = 64 << 20
_ANY_PARTITION = -1
_END_S, _POLL_S = 5.0, 0.02
_BUSY = "as many calls are under way as may be"
_NO_RETRY = replace(DEFAULT, max_attempts=0)

Call = Callable[[Request], Awaitable[Answer]]


class Answered(NamedTuple):
    """A call that has ended and is not written down yet."""

    entry: Named
    answer: Answer
    ended_at_ms: int


class Limits(NamedTuple):
    """How many calls may be under way, and how long each may take."""

    total: int
    per_host: int
    timeout_ms: int


class Calls:
    """The calls of one process; asked by sweeps of several threads.

    Args:
      call: makes one; on the loop of a thread of its own.
      tell: is given what came of calls, once that is committed.
    """

    def __init__(self, call: Call, limits: Limits, names: Names, tell: Callable[[list[Called]], None]) -> None:
        self._call, self._limits, self.names, self.tell = call, limits, names, tell
        self._lock = threading.Lock()
        self._hosts = Hosts()
        self._under_way: dict[int, dict[bytes, str]] = {}
        self._of_host: Counter[str] = Counter()
        self._answered: dict[int, dict[bytes, Answered]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving = False

    def why_not(self, host: str, now_ms: int) -> str | None:
        """Why no call to a host may begin now; None where one may."""
        with self._lock:
            if (why := self._hosts.why_not(host, now_ms)) is not None:
                return why
            return None if self._room(host) else _BUSY

    def room(self, host: str) -> int:
        """How many calls to a host may begin now, breakers aside."""
        with self._lock:
            return self._room(host)

    def _room(self, host: str) -> int:
        if self._hosts.half_open(host):
            return 1 - min(1, self._of_host[host])
        free = self._limits.total - self._of_host.total()
        return min(free, min(self._limits.per_host, max(1, free // 2)) - self._of_host[host])

    def known(self, partition: int) -> set[bytes]:
        """Keys of a shard that are under way, or whose answer is not written down yet."""
        with self._lock:
            return {*self._under_way.get(partition, ()), *self._answered.get(partition, ())}

    def begin(self, partition: int, key: bytes, entry: Named) -> bool:
        """Begin a call; False where there is no more room."""
        host, now_ms = entry.destination, clock.wall_ms()
        with self._lock:
            if self._leaving or self._hosts.why_not(host, now_ms) is not None or self._room(host) < 1:
                return False
            self._hosts.began(host)
            self._under_way.setdefault(partition, {})[key] = host
            self._of_host[host] += 1
            loop = self._running()
        asyncio.run_coroutine_threadsafe(self._made(partition, key, entry), loop)
        return True

    async def _made(self, partition: int, key: bytes, entry: Named) -> None:
        try:
            answer = await self._call(_request(entry, self._limits.timeout_ms))
        except Exception:
            log.exception("a call failed in a way that nobody thought of; it counts as an attempt")
            answer = Answer(None, "internal")
        now_ms = clock.wall_ms()
        with self._lock:
            host = self._under_way[partition].pop(key)
            self._of_host[host] -= 1
            if not self._of_host[host]:
                del self._of_host[host]
            if answer.blames_host:
                self._hosts.failed(host, now_ms, answer.retry_after_ms)
            else:
                self._hosts.answered(host)
            self._answered.setdefault(partition, {})[key] = Answered(entry, answer, now_ms)

    def answered(self, partition: int, rows_max: int) -> dict[bytes, Answered]:
        """Calls of a shard that have ended; they stay until they are written down."""
        with self._lock:
            found = self._answered.get(partition, {})
            return dict(found) if len(found) <= rows_max else dict(list(found.items())[:rows_max])

    def written(self, partition: int, keys: Mapping[bytes, Any]) -> None:
        """What became of these is in the changelog, or of no interest any more."""
        with self._lock:
            for key in keys:
                self._answered[partition].pop(key, None)

    def under_way(self) -> int:
        """How many are."""
        with self._lock:
            return self._of_host.total()

    def breakers(self) -> Counter[str]:
        """How many hosts have a breaker that is `open` or `half-open`."""
        with self._lock:
            return Counter(self._hosts.states(clock.wall_ms()).values())

    def leave(self, within_s: float) -> bool:
        """Begin no more, and wait so long for those that are under way; whether there were any."""
        with self._lock:
            self._leaving = True
            any_calls = self._of_host.total() > 0 or any(self._answered.values())
        deadline = clock.Deadline(within_s)
        while self.under_way() and not deadline.passed():
            clock.pause(_POLL_S)
        return any_calls

    def close(self) -> None:
        """End what is under way; it is called again by whoever has its shard then."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(_ended(), loop).result(_END_S)
            loop.call_soon_threadsafe(loop.stop)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="calls", daemon=True).start()
        return self._loop


async def _ended() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def step(calls: Calls, table: Table, writer: Writer, changelog: Changelog, gate: Gate, now_ms: int, rows_max: int) -> int:
    """Write down what came of calls, and begin those that are due; the steps are those of the module's docstring.

    Returns:
      how many were written down.

    Raises:
      TransactionFailed: nothing was written down; it is tried again.
      TableUnreadable, EntryUnreadable: as `retry.sweep.sweep`.
    """
    if table.superseded(1):
        # A null for what replaces must not stand before one for what it replaced.
        return 0
    found = calls.answered(changelog.partition, rows_max)
    done = {key: answered for key, answered in found.items() if table.get(key) is not None}
    if done:
        told = _write_down(done, table, writer, changelog, calls.names, now_ms)
        calls.tell(told)
    calls.written(changelog.partition, found)
    _begin_due(calls, table, changelog, gate, now_ms)
    return len(done)


def _write_down(
    done: Mapping[bytes, Answered], table: Table, writer: Writer, changelog: Changelog, names: Names, now_ms: int
) -> list[Called]:
    told, again, parked = [], [], []
    for key, answered in done.items():
        called, following = _judged(key, answered)
        told.append(called)
        if called.next_ms is not None:
            again.append((entries.postponed(key, called.next_ms), entries.encode(following)))
        elif called.reason is not None:
            parked.append(_parked(called, answered.entry, names.parked))
    writer.begin()
    writer.publish(parked, now_ms)
    writer.write(changelog.topic, changelog.partition, [{"key": key, "value": envelope} for key, envelope in again])
    writer.write(changelog.topic, changelog.partition, [{"key": key, "value": None} for key in done])
    writer.write(names.calls, _ANY_PARTITION, [{"key": called.id.encode(), "value": to_json(called)} for called in told])
    writer.commit()
    table.drop(list(done), again)
    return told


def _judged(key: bytes, answered: Answered) -> tuple[Called, Named]:
    """What came of a call, and the entry as it is put again."""
    entry, answer, at_ms = answered
    call = entry.call or entries.Call("")
    failed_at_ms = entry.failed_at_ms or at_ms
    next_ms, reason, decision = None, None, "delivered"
    if answer.verdict is Verdict.GONE:
        reason, decision = "gone", "parked"
    elif answer.verdict is Verdict.FAILED:
        decided = _policy(call.policy).decide(
            attempt=call.attempt, first_failed_at_ms=failed_at_ms, failed_at_ms=at_ms, now_ms=at_ms,
            draw=(xxhash.xxh3_64_intdigest(f"{call.id}/{call.attempt}".encode()) >> 11) / (1 << 53),
        )  # fmt: skip
        if isinstance(decided, Park):
            reason, decision = decided.reason, "parked"
        else:
            next_ms, decision = _not_before(decided, answer, at_ms), "retry"
    called = Called(
        call.id, entry.team, entry.destination, (entry.key or b"").hex(), call.attempt, at_ms, answer.took_ms,
        entries.due_at_ms(key), decision, answer.status, answer.error, reason, next_ms,
        answer.body[:BODY_BYTES].decode("utf-8", "replace"),
    )  # fmt: skip
    following = msgspec.structs.replace(call, attempt=call.attempt + 1)
    return called, msgspec.structs.replace(entry, failed_at_ms=failed_at_ms, call=following)


def _not_before(decided: RetryAt, answer: Answer, at_ms: int) -> int:
    # Of one name the latest due time counts, so the next one is always later.
    return max(decided.due_at_ms, at_ms + (answer.retry_after_ms or 0), at_ms + 1)


@lru_cache(10_000)
def _policy(text: str) -> Policy:
    if not text:
        return _NO_RETRY
    try:
        return parsed(msgspec.json.decode(text, type=dict))
    except (PolicyInvalid, msgspec.MsgspecError) as error:
        log.warning("a timer's policy is unknown to this version, and the usual one is taken: %s", error)
        return DEFAULT


def _parked(called: Called, entry: Named, topic: str) -> Entry:
    told = {"webhook-id": called.id, "retry-parked-reason": called.reason, "retry-attempt": called.attempt,
            "webhook-url": entry.call.url if entry.call else "", "webhook-error": called.error}  # fmt: skip
    headers = [*entry.headers, *((name, str(value).encode()) for name, value in told.items())]
    return Entry(topic, called.id.encode(), entry.value, headers, None, entry.team)


def _begin_due(calls: Calls, table: Table, changelog: Changelog, gate: Gate, now_ms: int) -> None:
    known: set[bytes] | None = None
    for lane in table.due_lanes(now_ms):
        if lane[0] != entries.NAMED or (whose := _whose(table, gate, lane)) is None or not whose.calls:
            continue
        if (why := calls.why_not(whose.destination, now_ms)) is not None:
            if why is not _BUSY:
                gate.hold(whose, Reason.BREAKER, why, now_ms)
            continue
        if known is None:
            known = calls.known(changelog.partition)
        _begin_lane(calls, table, changelog.partition, gate, (lane, whose), known, now_ms)


def _begin_lane(
    calls: Calls, table: Table, partition: int, gate: Gate, of: tuple[bytes, Lane], known: set[bytes], now_ms: int
) -> None:
    lane, whose = of
    passed = sum(key.startswith(lane) for key in known)
    allowed = gate.take(whose, calls.room(whose.destination), now_ms, table.controls)
    begun = 0
    for key, envelope in table.due(now_ms, passed + allowed, _ALL_BYTES, lane) if allowed else []:
        if key in known:
            continue
        if not calls.begin(partition, key, entries.decode_named(envelope)):
            break
        begun += 1
    if begun < allowed:
        gate.give_back(whose, allowed - begun)


def _whose(table: Table, gate: Gate, lane: bytes) -> Lane | None:
    known = gate.known.get(lane)
    if known is None:
        for key, envelope in table.page(lane, 1):
            if entries.lane_of(key) == lane:
                entry = entries.decode_named(envelope)
                known = gate.known[lane] = Lane(entry.team, entries.source(key).topic, entry.destination)
    return known


def _request(entry: Named, timeout_ms: int) -> Request:
    call = entry.call or entries.Call("")
    headers = {name: (value or b"").decode("latin-1") for name, value in entry.headers}
    timeout_s = min(call.timeout_ms, timeout_ms) / 1_000
    return Request(call.id, call.method, call.url, headers, entry.value or b"", timeout_s)
