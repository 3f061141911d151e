"""A shard's turn of calls: what came of those that have ended is written down, and those that are due are begun.

The effects of one call, in their order, and what a crash after each costs:

1. take a due entry of the table and call its host                          it is called again: at least once, with the same id
2. begin a transaction                                                      the same
3. write a null for its key; where it failed, the same entry under its next
   due time, or to the parking topic; and what came of it                   the same
4. commit                                                                   nothing
5. drop it in the table                                                     nothing: the fold finds the same
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import msgspec
import xxhash

from backoff import Park, Policy, PolicyInvalid, RetryAt
from backoff.parse import DEFAULT
from backoff.parse import policy as parsed
from retry.delay_queue import entry as entries
from retry.delivery.webhooks.in_flight import BUSY, Answered, Calls
from retry.delay_queue.entry import Entry, Named
from retry.delivery.admission import Gate
from retry.delay_queue.lane import Lane
from retry.delivery.due_batch import whose_lane
from retry.kafka.interface import Writer
from retry.kafka.topics import Names
from retry.telemetry.health import Reason
from retry.delivery.webhooks.response import Answer, Verdict
from retry.delivery.sweep import Changelog
from retry.delay_queue.table.interface import Table
from retry.telemetry.call_records import BODY_BYTES, Called, to_json

log = logging.getLogger(__name__)

_ALL_BYTES = 64 << 20
_ANY_PARTITION = -1
_NO_RETRY = replace(DEFAULT, max_attempts=0)


def step(calls: Calls, table: Table, writer: Writer, changelog: Changelog, gate: Gate, now_ms: int, rows_max: int) -> int:
    """Write down what came of calls, and begin those that are due; the steps are those of the module's docstring.

    Returns:
      how many were written down.

    Raises:
      TransactionFailed: nothing was written down; it is tried again.
      TableUnreadable, EntryUnreadable: as `retry.delivery.sweep.sweep`.
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
            next_ms, decision = _not_before(decided, answer, at_ms, entries.due_at_ms(key)), "retry"
    called = Called(
        call.id, entry.team, entry.destination, (entry.key or b"").hex(), call.attempt, at_ms, answer.took_ms,
        entries.due_at_ms(key), decision, answer.status, answer.error, reason, next_ms,
        answer.body[:BODY_BYTES].decode("utf-8", "replace"),
    )  # fmt: skip
    following = msgspec.structs.replace(call, attempt=call.attempt + 1)
    return called, msgspec.structs.replace(entry, failed_at_ms=failed_at_ms, call=following)


def _not_before(decided: RetryAt, answer: Answer, at_ms: int, due_at_ms: int) -> int:
    # Under the due time that it has its key would be the one that is ended, whatever a clock that was set back says.
    return max(decided.due_at_ms, at_ms + (answer.retry_after_ms or 0), due_at_ms + 1)


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
        if lane[0] != entries.NAMED or (whose := whose_lane(table, gate, lane)) is None or not whose.calls:
            continue
        if (why := calls.why_not(whose.destination, now_ms)) is not None:
            if why is not BUSY:
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
