"""A shard's turn of calls: what came of those that have ended is written down, and those that are due are begun.

The effects of one call, in their order, and what a crash after each costs:

1. take a due entry of the table and call its host                          it is called again: at least once, with the same id
2. begin a transaction                                                      the same
3. write a null for its key; where it failed, the same entry under its next
   due time, or to the timers' parking topic; and what came of it                   the same
   What that topic refuses is put into the lane of it, to be parked by a sweep.
4. commit                                                                   nothing
5. drop it in the table                                                     nothing: the fold finds the same
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import msgspec
import xxhash

from backoff import Park, Policy, PolicyInvalid, RetryAt
from backoff.parse import DEFAULT, parse_policy
from retry.dead_letters import retry_headers
from retry.delay_queue import entry_keys
from retry.delay_queue.entry_keys import Lane
from retry.delay_queue.envelope_codec import PLAIN, EnvelopeCodec
from retry.delay_queue.envelopes import Call, Entry, Named
from retry.delay_queue.table.interface import Table
from retry.delivery.admission import Admission
from retry.delivery.due_batch import DueRow, find_lane
from retry.delivery.refusals import diagnose
from retry.delivery.sweep import ChangelogPartition
from retry.delivery.webhooks_in_flight import BUSY, LOOKUPS, Answered, WebhooksInFlight
from retry.errors import SealUnopened, TransactionAborted
from retry.http_client.client import Answer, Verdict
from retry.kafka.interface import TransactionalProducer
from retry.kafka.refused_records import Anchor
from retry.kafka.topics import TopicNames
from retry.telemetry.call_records import BODY_BYTES, Called, to_json
from retry.telemetry.health import Reason

log = logging.getLogger(__name__)

_ALL_BYTES = 64 << 20
_ANY_PARTITION = -1
_NO_RETRY = replace(DEFAULT, max_attempts=0)


class _Decision(NamedTuple):
    """The decision on an answer: in a word, why it is parked if it is, and when it is called again if it is."""

    word: str
    reason: str | None = None
    next_ms: int | None = None


def advance_calls(
    calls: WebhooksInFlight, table: Table, writer: TransactionalProducer, changelog: ChangelogPartition, admission: Admission,
    now_ms: int, rows_max: int, codec: EnvelopeCodec = PLAIN,
) -> list[DueRow]:  # fmt: skip
    """Write down what came of calls, begin those that are due, and return what is due and cannot be opened.

    Raises TransactionFailed: nothing was written down; TableUnreadable, EntryUnreadable as `retry.delivery.sweep.select`.
    """
    if table.list_superseded(1):
        # A null for what replaces must not stand before one for what it replaced.
        return []
    ended = calls.list_ended(changelog.partition, rows_max)
    waiting = {key: answered for key, answered in ended.items() if table.get(key) is not None}
    if waiting:
        calls.report(_write_down(waiting, table, writer, changelog, admission, calls.names, now_ms=now_ms, codec=codec))
    calls.note_written(changelog.partition, ended)
    return _begin_due(calls, table, changelog, admission, now_ms, codec)


def _write_down(
    answers: Mapping[bytes, Answered], table: Table, writer: TransactionalProducer, changelog: ChangelogPartition,
    admission: Admission, names: TopicNames, now_ms: int, codec: EnvelopeCodec,
) -> list[Called]:  # fmt: skip
    call_records, replacements, parked = [], [], list[tuple[bytes, Entry]]()
    for key, answered in answers.items():
        decision = _decide(key, answered)
        record = _call_record(key, answered, decision)
        call_records.append(record)
        if decision.next_ms is not None:
            next_key = entry_keys.find_untaken_key(entry_keys.make_key_due_at(key, decision.next_ms), table.is_leaving)
            replacements.append((next_key, codec.encode(next_key, _next_attempt(answered))))
        elif decision.reason is not None:
            parked.append((key, _make_parked(record, answered.entry, names.parked_timers)))

    def commit_answers() -> None:
        writer.begin()
        writer.publish([entry for _, entry in parked], now_ms)
        rows = [*replacements, *((key, None) for key in answers)]
        writer.write(*changelog, [{"key": key, "value": value} for key, value in rows])
        told = [{"key": record.id.encode(), "value": to_json(record)} for record in call_records]
        writer.write(names.calls, _ANY_PARTITION, told)
        writer.commit()

    try:
        commit_answers()
    except TransactionAborted:
        anchor = Anchor(*changelog, next(iter(answers)))
        _, refused = diagnose([entry for _, entry in parked], writer, admission, now_ms, anchor) if parked else (None, {})
        if not refused:
            raise
        # They wait to be parked by a sweep, which puts them aside, with their names.
        replacements += [_wait_to_be_parked(*parked[n], codec) for n in refused]
        parked = [row for n, row in enumerate(parked) if n not in refused]
        commit_answers()
    table.delete_rows(list(answers), replacements)
    return call_records


def _wait_to_be_parked(key: bytes, parked: Entry, codec: EnvelopeCodec) -> tuple[bytes, bytes]:
    lane = entry_keys.build_named_lane(parked.team, entry_keys.read_source(key).topic, parked.destination)
    key = entry_keys.make_key_due_at(entry_keys.move_into_lane(key, lane), entry_keys.due_at_ms(key) + 1)
    return key, codec.encode(key, parked)


def _call_of(entry: Named) -> Call:
    return entry.call or Call("")


def _decide(key: bytes, answered: Answered) -> _Decision:
    entry, answer, at_ms = answered
    if answer.verdict is Verdict.GONE:
        return _Decision("parked", reason="gone")
    if answer.verdict is Verdict.DELIVERED:
        return _Decision("delivered")
    call = _call_of(entry)
    decided = _policy(call.policy).decide(
        attempt=call.attempt, first_failed_at_ms=entry.failed_at_ms or at_ms, failed_at_ms=at_ms, now_ms=at_ms,
        draw=(xxhash.xxh3_64_intdigest(f"{call.id}/{call.attempt}".encode()) >> 11) / (1 << 53),
    )  # fmt: skip
    if isinstance(decided, Park):
        return _Decision("parked", reason=decided.reason)
    return _Decision("retry", next_ms=_not_before(decided, answer, at_ms, entry_keys.due_at_ms(key)))


def _call_record(key: bytes, answered: Answered, decision: _Decision) -> Called:
    entry, answer, at_ms = answered
    call = _call_of(entry)
    return Called(
        id=call.id, team=entry.team, host=entry.destination, mark=(entry.key or b"").hex(), attempt=call.attempt, at_ms=at_ms,
        took_ms=answer.took_ms, due_ms=entry_keys.due_at_ms(key), decision=decision.word, status=answer.status,
        error=answer.error, reason=decision.reason, next_ms=decision.next_ms,
        body=answer.body[:BODY_BYTES].decode("utf-8", "replace"),
    )  # fmt: skip


def _next_attempt(answered: Answered) -> Named:
    call = _call_of(answered.entry)
    failed_at_ms = answered.entry.failed_at_ms or answered.ended_at_ms
    following = msgspec.structs.replace(call, attempt=call.attempt + 1)
    return msgspec.structs.replace(answered.entry, failed_at_ms=failed_at_ms, call=following)


def _not_before(decided: RetryAt, answer: Answer, at_ms: int, due_at_ms: int) -> int:
    # Under the due time that it has its key would be the one that is ended, whatever a clock that was set back says.
    return max(decided.due_at_ms, at_ms + (answer.retry_after_ms or 0), due_at_ms + 1)


@lru_cache(10_000)
def _policy(text: str) -> Policy:
    if not text:
        return _NO_RETRY
    try:
        return parse_policy(msgspec.json.decode(text, type=dict))
    except (PolicyInvalid, msgspec.MsgspecError) as error:
        log.warning("a timer's policy is unknown to this version, and the usual one is taken: %s", error)
        return DEFAULT


def _make_parked(record: Called, entry: Named, topic: str) -> Entry:
    ours = retry_headers.make_webhook_headers(
        id_=record.id, reason=record.reason, attempt=record.attempt, url=_call_of(entry).url, error=record.error
    )
    return Entry(topic, record.id.encode(), entry.value, entry.headers + ours, None, entry.team)


def _begin_due(
    calls: WebhooksInFlight, table: Table, changelog: ChangelogPartition, admission: Admission, now_ms: int, codec: EnvelopeCodec
) -> list[DueRow]:
    """Begin what may begin, and return what is due and cannot be opened."""
    pending: set[bytes] | None = None
    unopened: list[DueRow] = []
    for prefix in table.find_due_lanes(now_ms):
        if prefix[0] != entry_keys.NAMED or prefix in entry_keys.UNDELIVERED:
            continue
        if (lane := find_lane(table, admission, prefix)) is None or not lane.calls:
            continue
        if (why := calls.explain_block(lane.team, lane.destination, now_ms)) is not None:
            if why is not BUSY:
                admission.block(lane, Reason.RATE_LIMIT if why is LOOKUPS else Reason.CIRCUIT_BREAKER, why, now_ms)
            continue
        if pending is None:
            pending = calls.pending(changelog.partition)
        unopened += _begin_lane(
            calls, table, changelog.partition, admission=admission, of=(prefix, lane), pending=pending, now_ms=now_ms, codec=codec
        )
    return unopened


def _begin_lane(
    calls: WebhooksInFlight, table: Table, partition: int, admission: Admission, of: tuple[bytes, Lane], pending: set[bytes],
    now_ms: int, codec: EnvelopeCodec,
) -> list[DueRow]:  # fmt: skip
    prefix, lane = of
    passed = sum(key.startswith(prefix) for key in pending)
    allowed = admission.acquire_permits(lane, calls.room(lane.team, lane.destination), now_ms, table.controls)
    due = table.find_due(now_ms, passed + allowed, _ALL_BYTES, prefix) if allowed else []
    free, unopened = list[tuple[bytes, Named]](), list[DueRow]()
    for key, envelope in due:
        if key in pending:
            continue
        try:
            free.append((key, codec.decode_named(key, envelope)))
        except SealUnopened:
            unopened.append((key, envelope))
    begun = calls.begin_calls(partition, free[:allowed])
    if begun < allowed:
        admission.give_back(lane, allowed - begun)
    return unopened
