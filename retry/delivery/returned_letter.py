"""A letter that rests in a parking topic, or among the discarded, made an entry again. Pure: no clock, no broker.

It keeps its coordinates, lineage and count. Team, target and order are those that the policy file gives its dead-letter topic
now. It is sent once for the return: its attempt lies beyond `max_attempts`, so that it parks at once where it fails again,
whatever its consumer does with headers.
"""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import Letter, parse_integer, parse_moment, read
from retry.delay_queue import action_records, entry_keys
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.envelope_codec import EnvelopeCodec
from retry.delay_queue.envelopes import Entry
from retry.delivery import letter_changes
from retry.delivery.letter_changes import CHANGED, TOO_LARGE, ActedLetter, Refusal
from retry.delivery.redecide import Redecider
from retry.intake import attempts
from retry.intake.attempts.attempt_counter import LetterHistory
from retry.intake.build_entry import DecidedLetter
from retry.policies.registry import Registry
from retry.policies.route import RetryPlan, Route
from retry.record import CREATE_TIME, Record, RecordLocation, read_headers

# A record that lies where letters rest: which letter it is, where this service put it there.
#
# Others may write to a team's parking topic, so what a record says there of itself is believed only as far as its topic lets
# it: a topic in which a team parks has letters of that team and of no other. What lies in the service's own topics, to which
# nobody else may write, is believed. A record that is not ours is shown, and can be discarded, and nothing is made of what it
# says.
#
# A reference says only where the whole letter lies. It is followed where the outcomes tell that this letter was parked so; see
# `retry.worker.parked_letters`.

# What becomes of a record that this service did not put there.
NOT_OURS = "not_ours"
# Of schedules, definitions of tasks, and timers that were parked: `retry-source` is of letters alone.
_NO_LETTERS = frozenset({names.TASK_SOURCE, names.WEBHOOK_URL, names.SCHEDULE_SOURCE})
_PLACE = re.compile(rb"([A-Za-z0-9._-]{1,249})/([0-9]{1,10})/([0-9]{1,19})")
_PARTITIONS_MAX, _OFFSETS_MAX = 1 << 31, 1 << 63


def find_letter_source(record: Any, registry: Registry) -> RecordLocation | None:
    """Read the coordinates of the dead letter from a resting record; None where this service cannot have put the record there."""
    ours = read_service_headers(record)
    match = _PLACE.fullmatch(ours.get(names.SOURCE) or b"")
    if match is None or not ours.get(names.ID):
        return None
    topic, partition, offset = match[1].decode(), int(match[2]), int(match[3])
    is_place = partition < _PARTITIONS_MAX and offset < _OFFSETS_MAX
    return (topic, partition, offset) if is_place and registry.permits_parking(topic, record.topic()) else None


def read_service_headers(record: Any) -> Mapping[str, bytes | None]:
    """Read the headers by which the service describes its letters; empty where the headers cannot be read."""
    return {name: value for name, value in read_headers(record) or [] if name in names.OURS}


def is_no_letter(record: Any) -> bool:
    """Whether a schedule, a definition of a task, or a timer was parked."""
    return any(name in _NO_LETTERS for name, _ in read_headers(record) or ())


def is_reference(record: Any) -> bool:
    """Whether it says only where the whole letter lies: one that was parked whole has headers that came with it, or a value."""
    headers = read_headers(record)
    return record.value() is None and headers is not None and all(name in names.OURS for name, _ in headers)


_DIGITS_MAX = 10


def record_digest(record: Any, codec: EnvelopeCodec) -> bytes:
    return codec.digests(_content(record))[0].encode()


def _content(record: Any) -> bytes:
    return msgspec.msgpack.encode((record.key(), record.value(), [tuple(each) for each in record.headers() or ()]))


class LetterReturns:
    def __init__(self, redecider: Redecider, discarded: str, shards: int) -> None:
        self._redecider, self._discarded, self._shards = redecider, discarded, shards
        self._registry, self._builder = redecider.registry, redecider.entry_builder
        self.codec = self._builder.codec

    def find_refusal(self, record: Any) -> Refusal | None:
        before = read_service_headers(record).get(names.ACTION_BEFORE) or b""
        if before in (names.SUPERSEDED, names.ERASED):
            return Refusal(before.decode())
        if is_no_letter(record):
            return Refusal("not_a_letter")
        return None if self._source(record) is not None else Refusal(NOT_OURS)

    def _source(self, record: Any) -> RecordLocation | None:
        return find_letter_source(record, self._registry)

    def find_edit_refusal(self, record: Any, digest: bytes) -> Refusal | None:
        if is_reference(record):
            return Refusal("reference")
        return None if digest.decode("latin-1") in self.codec.digests(_content(record)) else Refusal(CHANGED)

    def erase_letter(self, state: ActionState, record: Any, whole: Any, due_at_ms: int) -> ActedLetter | None:
        """Make the entry that replaces an erased letter; None where the record is no letter of its own, and is only marked.

        It waits in the shard that its key gives, or its coordinates; `retry verify` goes by where a letter was put last.
        """
        where = self._source(record)
        if where is None or self.find_refusal(record) is not None:
            return None
        topic, partition, offset = where
        team = self._registry.route(topic).team
        rested = Entry(self._discarded, None, None, [*read_service_headers(record).items()], _read_timestamp(record), team)
        marked = letter_changes.set_due_header(rested, due_at_ms, (names.ACTION, state.id.hex().encode()))
        entry = letter_changes.redact_entry(marked, self._discarded)
        lane = entry_keys.lane(team, topic, self._discarded)
        key = entry_keys.build_key(due_at_ms, entry_keys.build_key_stem(topic, partition), offset, lane)
        shard, envelope = self._shard(where, whole.key()), self.codec.encode(key, entry)
        return ActedLetter(key, envelope, entry, shard=shard)

    def return_letter(
        self, state: ActionState, record: Any, whole: Any, due_at_ms: int, now_ms: int, edited: bytes = b""
    ) -> ActedLetter | Refusal:
        """Build the entry that returns one parked or discarded letter; return a `Refusal` where the letter cannot be returned.

        Nothing speaks against its `record`, as it was parked (`find_refusal`). `whole` is the dead letter itself, of which the
        record may be a reference. `edited` is, of an edit, the envelope of what it makes of the letter.
        """
        where, ours = self._source(record), read_service_headers(record)
        if where is None:
            raise AssertionError("asked before")
        route, made = self._registry.route(where[0]), parse_integer(ours.get(names.ATTEMPT), _DIGITS_MAX) or 0
        letter = _restore_letter(where, route, record, whole)
        if isinstance(letter, Refusal):
            return letter
        first_ms = parse_moment(ours.get(names.FIRST_FAILED_MS)) or letter.stamped_ms or now_ms
        headers, null = letter.original_headers, letter.value is None
        plan = route.plan(letter.failure, attempt=made + 1, age_ms=max(0, now_ms - first_ms), headers=headers, null_value=null)
        target = self._choose_target(state, route, plan, letter)
        if isinstance(target, Refusal):
            return target
        if null and plan.null_cancels:
            return Refusal("null_value")
        # Of all rules, since it may fail in another way then.
        made = max(made, *(each.policy.max_attempts for each in route.plans()))
        # Whoever may write to the parking topic may have made up the id; it is the team's own from here on.
        number = attempts.parse_retry_id(ours[names.ID] or b"")
        trace = LetterHistory(attempts.format_retry_id(number, route.team), number, 0, made, first_ms, False)
        is_discarded = state.action.kind == action_records.DISCARD
        if is_discarded:
            # It waits for nobody, and needs no time in which that can be undone: from there it can be returned, too.
            plan = dataclasses.replace(plan, ordered=False)
        failed_ms = letter.failed_at_ms(now_ms)
        decided = DecidedLetter(
            letter, trace, route, plan=plan, attempt=made + 1, reason=None, target=target, due_at_ms=due_at_ms,
            failed_at_ms=failed_ms, first_failed_at_ms=first_ms, decided_at_ms=now_ms,
        )  # fmt: skip
        packed = self._builder.pack(decided)
        if packed.reason is not None:
            return Refusal(packed.reason)
        if all(name != names.SOURCE for name, _ in packed.entry.headers):
            # It fits only without: nobody could tell then which letter was sent.
            return Refusal(TOO_LARGE)
        marked = msgspec.structs.replace(packed.entry, headers=names.set_in(packed.entry.headers, (names.ACTION, state.mark)))
        entry = letter_changes.change_content(state.action, packed.key, marked, edited, self.codec)
        if isinstance(entry, Refusal):
            return entry
        envelope, kept = self.codec.encode(packed.key, entry), self._keep_edited(state, record, entry)
        if not letter_changes.is_taken_by_topics(self._builder, envelope, entry, kept):
            return Refusal(TOO_LARGE)
        sent = None if is_discarded else letter_changes.pack_send(packed.key, entry, trace, first_ms)
        return ActedLetter(packed.key, envelope, entry, sent, kept, shard=self._shard(where, letter.key))

    def _keep_edited(self, state: ActionState, record: Any, entry: Entry) -> Entry | None:
        """Copy the record as it rested, for an edit to keep; else None. What is patched stays where it rested, too."""
        if state.action.kind != action_records.EDIT:
            return None
        rested = Entry("", record.key(), record.value(), list(record.headers() or []), _read_timestamp(record), entry.team)
        return letter_changes.keep_superseded(state, rested, self._discarded)

    def _shard(self, where: RecordLocation, key: bytes | None) -> int:
        """Compute the shard of a letter that returns as intake may: by its record key, or without one by its coordinates."""
        topic, partition, offset = where
        return zlib.crc32(f"{topic}/{partition}/{offset}".encode() if key is None else key) % self._shards

    def _choose_target(self, state: ActionState, route: Route, plan: RetryPlan, letter: Letter) -> str | Refusal:
        """Return the topic that the letter goes to, or why it goes nowhere."""
        kind = state.action.kind
        if kind == action_records.DISCARD:
            return self._discarded
        if kind == action_records.REDIRECT:
            target = state.action.target or ""
            return target if self._redecider.may_go_to(letter.topic, target) else Refusal("not_allowed")
        if kind not in (action_records.RETRY, action_records.PATCH, action_records.EDIT):
            return Refusal("parked")
        to = plan.resolve_target(letter.failure, letter.topic)
        return Refusal("no_target") if to is None or (plan.template is not None and not route.completes(to)) else to


def _restore_letter(where: RecordLocation, route: Route, record: Any, whole: Any) -> Letter | Refusal:
    """The letter that rests; never one without the value that it had."""
    if whole is not record and not _may_be_of(record, whole):
        return Refusal("source_gone")
    if read_headers(whole) is None:
        return Refusal("unreadable_headers")
    letter = read(_dead_letter(where, whole), route.aliases)
    return Refusal("pointer") if letter.is_pointer() else letter


def _read_timestamp(record: Any) -> int | None:
    at_ms = record.timestamp()[1]
    return at_ms if at_ms > 0 else None


def _may_be_of(record: Any, whole: Any) -> bool:
    """Whether a record can be the dead letter of which the other is a reference: a topic that was made anew has others."""
    key, parked_ms = record.key(), record.timestamp()[1]
    is_later = 0 < parked_ms < whole.timestamp()[1] - action_records.CLOCKS_MS
    return not is_later and (key is None or key == whole.key())


def _dead_letter(where: RecordLocation, whole: Any) -> Record:
    headers = [header for header in whole.headers() or [] if header[0] not in names.OURS]
    kind, at_ms = whole.timestamp()
    return Record(where, whole.key(), whole.value(), headers, (kind or CREATE_TIME, at_ms))
