"""The entry source for scheduled messages: messages of schedules topics → changelog rows.

A schedule is a key of a topic: the newest record counts, whatever came before and in whichever partition; see
`retry.intake.entry_source`. So even one that is no schedule replaces what waited, and a null cancels it. When it goes, two
records go with it in the same transaction: a copy to the history topic, and a tombstone at the same key of its own partition.
That tombstone is read back like all else; its header says that it is ours, and it ends nothing, for by then somebody may have
scheduled the key anew.

What is no schedule goes to the parking topic, with the reason, whatever comes under its key later: it cancels what waits for the
key, and waits itself under a name that nothing else has. Only what is ended by a tombstone waits under its key, since a tombstone
must not come after what is newer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from retry.dead_letters.retry_headers import PARKED_REASON
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import HEADERS_MAX, Also, Named
from retry.intake.batch import BatchResult
from retry.intake.entry_source import CANCELS_REMEMBERED_MS, QueueLimits
from retry.kafka.topics import matches
from retry.record import Header, Headers
from retry.scheduling.messages import schedule_request as names
from retry.scheduling.messages.schedule_request import Cancel, Invalid, OwnTombstone, Put, RefusedBecause, Rules, read_request

TEAM = "schedules"
# What becomes of messages, as it is counted.
PLANNED, CANCELLED, DONE, INVALID = "planned", "cancelled", "done", "invalid"
_REFERENCE_KEY_BYTES_MAX = 1_024
# Of a changelog key, less its topic.
_KEY_BYTES = 64


class SchedulesSource:
    """Turns messages of schedules topics into entries; `parked` is the topic for what is no schedule."""

    def __init__(self, topics: Sequence[str], rules: Rules, history: str, parked: str, place: QueueLimits) -> None:
        self.topics, self._rules, self._history, self._parked = topics, rules, history, parked
        self._shards, self._bytes_max, self._versions, self._codec = place

    def reads_topic(self, topic: str) -> bool:
        return matches(topic, self.topics)

    def permits_target(self, team: str, destination: str) -> bool:
        return team == TEAM and self._rules.permits_topic(destination)

    def prepare(self, messages: Sequence[Any], now_ms: int, into: BatchResult) -> None:
        for message in messages:
            request = read_request(message, now_ms, self._rules)
            if isinstance(request, Put):
                self._put_schedule(message, request, now_ms, into)
            elif isinstance(request, Invalid):
                self._park(message, request, now_ms, into)
            elif isinstance(request, Cancel):
                into.decided[TEAM, CANCELLED] += 1
                self._cancel(message, now_ms, into)
            elif isinstance(request, OwnTombstone):
                into.decided[TEAM, DONE] += 1

    def _put_schedule(self, message: Any, put: Put, now_ms: int, into: BatchResult) -> None:
        entry = Named(
            put.target, put.target_key, message.value(), headers=put.headers, timestamp_ms=None, team=TEAM, failed_at_ms=None,
            also=(Also(self._history, None, put.target_key, None, True, put.history), _tombstone(message)),
        )  # fmt: skip
        name = _hash_message_key(message)
        key = self._build_named_key(message, name, put.due_at_ms, put.target, now_ms)
        envelope = self._codec.encode(key, entry)
        if not self._is_taken_by_topics(message, envelope, len(put.headers) + len(put.history)):
            self._park(message, Invalid(RefusedBecause.TOO_LARGE, False), now_ms, into)
            return
        into.decided[TEAM, PLANNED] += 1
        self._write(name, key, envelope, into)

    def _cancel(self, message: Any, now_ms: int, into: BatchResult) -> None:
        name, version = _hash_message_key(message), self._versions.next_version(message, now_ms, of_cancel=True)
        remembered_until_ms = now_ms + CANCELS_REMEMBERED_MS
        self._write(name, *envelopes.build_cancel(name, version, _stem(message), message.offset(), remembered_until_ms), into)

    def _is_taken_by_topics(self, message: Any, envelope: bytes, headers: int) -> bool:
        return headers <= HEADERS_MAX and len(envelope) + _KEY_BYTES + len(message.topic()) <= self._bytes_max

    def _park(self, message: Any, invalid: Invalid, now_ms: int, into: BatchResult) -> None:
        into.decided[TEAM, INVALID] += 1
        own: Headers = [(names.SOURCE, _source(message)), (PARKED_REASON, invalid.reason.value.encode())]
        kept = [] if invalid.reason is RefusedBecause.UNREADABLE_HEADERS else message.headers() or []
        parked = Named(
            self._parked, message.key(), message.value(), headers=kept + own, timestamp_ms=None, team=TEAM, failed_at_ms=None,
            also=(_tombstone(message),) if invalid.ends else (),
        )  # fmt: skip
        unnamed = f"{TEAM} parked", message.topic(), _source(message)
        name = _hash_message_key(message) if invalid.ends else entry_keys.hash_name(*unnamed)
        entry_key = self._build_named_key(message, name, now_ms, self._parked, now_ms)
        envelope = self._codec.encode(entry_key, parked)
        if not self._is_taken_by_topics(message, envelope, len(parked.headers)):
            # By reference: the headers say where the whole record lies.
            key = message.key() if len(message.key() or b"") <= _REFERENCE_KEY_BYTES_MAX else None
            envelope = self._codec.encode(entry_key, msgspec.structs.replace(parked, key=key, value=None, headers=own))
        if message.key() is not None and not invalid.ends and invalid.reason is not RefusedBecause.NO_KEY:
            self._cancel(message, now_ms, into)
        self._write(name, entry_key, envelope, into)

    def _build_named_key(self, message: Any, name: bytes, due_at_ms: int, destination: str, now_ms: int) -> bytes:
        version, lane = (
            self._versions.next_version(message, now_ms),
            entry_keys.build_named_lane(TEAM, message.topic(), destination),
        )
        return entry_keys.build_named_key(due_at_ms, name, version, _stem(message), message.offset(), lane)

    def _write(self, name: bytes, key: bytes, envelope: bytes, into: BatchResult) -> None:
        into.entries[entry_keys.find_shard(name, self._shards)].append({"key": key, "value": envelope})


def _hash_message_key(message: Any) -> bytes:
    return entry_keys.hash_name(TEAM, message.topic(), message.key())


def _stem(message: Any) -> bytes:
    return entry_keys.build_key_stem(message.topic(), message.partition())


def _source(message: Any) -> bytes:
    return b"%b/%d/%d" % (message.topic().encode(), message.partition(), message.offset())


def _tombstone(message: Any) -> Also:
    done: Header = (names.DONE, b"%d" % message.offset())
    return Also(message.topic(), message.partition(), message.key(), None, False, [done])
