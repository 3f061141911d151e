"""The door for scheduled messages: messages of schedules topics → changelog rows.

A schedule is a key of a partition, as compaction has it: the newest record counts, whatever came before. So even one that is
no schedule replaces what waited, and a null cancels it. When it goes, two records go with it in the same transaction: a copy to
the history topic, and a tombstone at the same key of the same partition. That tombstone is read back like all else; its header
says that it is ours, and it ends nothing, for by then somebody may have scheduled the key anew.

What is no schedule goes to the parking topic, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retry.delay_queue import entry as entries
from retry.intake.entry_source import Place
from retry.scheduling.messages import headers as names
from retry.scheduling.messages.schedule_request import Cancel, Invalid, Ours, Put, Reason, Rules, asked
from retry.kafka.topics import matches
from retry.delay_queue.entry import Also, Named
from retry.record import Header, Headers
from retry.intake.settled import Settled
from retry.dead_letters.retry_headers import PARKED_REASON

DOOR = "schedules"
# What becomes of messages, as it is counted.
PLANNED, CANCELLED, DONE, INVALID = "planned", "cancelled", "done", "invalid"
_REFERENCE_KEY_BYTES_MAX = 1_024
# Of a changelog key, less its topic.
_KEY_BYTES = 64


class Schedules:
    """Settles messages of schedules topics.

    Args:
      topics: names, and patterns that begin with `^`.
      history: where a copy of everything that is sent goes.
      parked: where goes what is no schedule.
    """

    def __init__(self, topics: Sequence[str], rules: Rules, history: str, parked: str, place: Place) -> None:
        self.topics, self._rules, self._history, self._parked = topics, rules, history, parked
        self._shards, self._bytes_max = place

    def reads(self, topic: str) -> bool:
        """Whether it is a schedules topic."""
        return matches(topic, self.topics)

    def permits(self, team: str, destination: str) -> bool:
        """Whether schedules may go there now."""
        return team == DOOR and self._rules.allowed(destination)

    def settle(self, messages: Sequence[Any], now_ms: int, into: Settled) -> None:
        """See `retry.intake.entry_source.Door`; in their order."""
        for message in messages:
            found = asked(message, now_ms, self._rules)
            if isinstance(found, Put):
                self._put(message, found, now_ms, into)
            elif isinstance(found, Invalid):
                self._park(message, found, now_ms, into)
            elif isinstance(found, Cancel):
                into.decided[DOOR, CANCELLED] += 1
                name = _name(message)
                key, envelope = entries.cancel(name, message.offset(), _stem(message), message.offset())
                self._write(name, key, envelope, into)
            elif isinstance(found, Ours):
                into.decided[DOOR, DONE] += 1

    def _put(self, message: Any, put: Put, now_ms: int, into: Settled) -> None:
        also = Also(self._history, None, put.target_key, None, True, put.history), _tombstone(message)
        envelope = entries.encode(
            Named(put.target, put.target_key, message.value(), put.headers, None, DOOR, None, also)
        )
        if not self._fits(message, envelope):
            self._park(message, Invalid(Reason.TOO_LARGE, False), now_ms, into)
            return
        into.decided[DOOR, PLANNED] += 1
        self._add(message, put.due_at_ms, put.target, envelope, into)

    def _fits(self, message: Any, envelope: bytes) -> bool:
        return len(envelope) + _KEY_BYTES + len(message.topic()) <= self._bytes_max

    def _park(self, message: Any, invalid: Invalid, now_ms: int, into: Settled) -> None:
        into.decided[DOOR, INVALID] += 1
        ours: Headers = [(names.SOURCE, _source(message)), (PARKED_REASON, invalid.reason.value.encode())]
        also = (_tombstone(message),) if invalid.ends else ()
        kept = [] if invalid.reason is Reason.UNREADABLE_HEADERS else message.headers() or []
        parked = Named(self._parked, message.key(), message.value(), kept + ours, None, DOOR, None, also)
        envelope = entries.encode(parked)
        if not self._fits(message, envelope):
            # By reference: where the whole of it lies is in the headers.
            key = message.key() if len(message.key() or b"") <= _REFERENCE_KEY_BYTES_MAX else None
            envelope = entries.encode(Named(self._parked, key, None, ours, None, DOOR, None, also))
        self._add(message, now_ms, self._parked, envelope, into)

    def _add(self, message: Any, due_at_ms: int, destination: str, envelope: bytes, into: Settled) -> None:
        topic, offset, stem = message.topic(), message.offset(), _stem(message)
        lane, name = entries.named_lane(DOOR, topic, destination), _name(message)
        self._write(name, entries.named_key(due_at_ms, name, offset, stem, offset, lane), envelope, into)

    def _write(self, name: bytes, key: bytes, envelope: bytes, into: Settled) -> None:
        into.entries[entries.shard_of(name, self._shards)].append({"key": key, "value": envelope})


def _name(message: Any) -> bytes:
    if message.key() is None:
        # A name that nothing else has: it replaces nothing.
        return entries.name(f"{DOOR} without a key", message.topic(), _source(message))
    return entries.name(DOOR, message.topic(), message.partition().to_bytes(4, "big") + message.key())


def _stem(message: Any) -> bytes:
    return entries.key_stem(message.topic(), message.partition())


def _source(message: Any) -> bytes:
    return b"%b/%d/%d" % (message.topic().encode(), message.partition(), message.offset())


def _tombstone(message: Any) -> Also:
    done: Header = (names.DONE, b"%d" % message.offset())
    return Also(message.topic(), message.partition(), message.key(), None, False, [done])
