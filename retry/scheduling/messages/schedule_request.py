"""Reads what a message of a schedules topic asks for. No I/O, and no message makes it fail.

A schedule that is past due when it *arrives*, by its own timestamp, is another thing than one that was in time and is read late,
because the scheduler was away: that one is *missed*, and goes first. Which of them still go:

| | due at or after `since_s` | due before |
| --- | --- | --- |
| in time on arrival | goes, at once where it was missed | `too_old` |
| past due on arrival, by no more than `grace_s` or without a limit | goes at once | `too_old` |
| past due on arrival, by more | `past_due` | `past_due` |
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from retry.dead_letters.retry_headers import SCHEDULE_SOURCE
from retry.policies.topic_names import is_of_kafka
from retry.record import Header, Headers, read_headers

# Header names of scheduled messages, as the Go kafka-message-scheduler has them, and three of ours.

# All of these are the scheduler's: none of them passes through.
PREFIX = "scheduler-"

# What is asked for, and what a sent message has of its schedule.
EPOCH, TARGET_TOPIC, TARGET_KEY = "scheduler-epoch", "scheduler-target-topic", "scheduler-target-key"
TIMESTAMP, KEY, TOPIC = "scheduler-timestamp", "scheduler-key", "scheduler-topic"

# On our own tombstones: the offset of the schedule that they end. Read back, such a one says nothing of later schedules.
DONE = "scheduler-done"
# On the tombstones of `retry migrate`: the offset of the schedule that was moved. To a scheduler it cancels, as any null does.
MIGRATED = "scheduler-migrated"
# Of a message that was parked, where it lies: `retry-source` is of letters alone.
SOURCE = SCHEDULE_SOURCE


_EPOCH = re.compile(rb"[+-]?[0-9]{1,19}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
# 9999-12-31: what lies beyond was meant as milliseconds.
_EPOCH_S_MAX = 253_402_300_799


class RefusedBecause(Enum):
    NO_KEY = "no_key"
    UNREADABLE_HEADERS = "unreadable_headers"
    NO_EPOCH = "no_epoch"
    NEGATIVE_EPOCH = "negative_epoch"
    EPOCH_IN_MS = "epoch_in_ms"
    PAST_DUE = "past_due"
    TOO_OLD = "too_old"
    NO_TARGET = "no_target"
    BAD_TARGET = "bad_target"
    TARGET_NOT_ALLOWED = "target_not_allowed"
    INTERNAL_TARGET = "internal_target"
    TOO_LARGE = "too_large"


# What the Go scheduler ends with a tombstone, too; everything else stays in its topic as it was written.
_ENDED = frozenset({RefusedBecause.NEGATIVE_EPOCH, RefusedBecause.PAST_DUE})


class Rules(NamedTuple):
    """The scheduler's settings that decide, beside the message itself, whether a schedule is valid.

    Attributes:
      grace_s: by how much a schedule may be past due when it arrives; None for any time.
      since_s: what was due before is too old to be sent when it is read for the first time.
      own: the service's own topics, which are no targets; no more than Kafka's.
    """

    allowed: Callable[[str], bool]
    grace_s: int | None = None
    since_s: int = 0
    own: frozenset[str] = frozenset()

    def permits_topic(self, topic: str) -> bool:
        return not self.is_internal(topic) and self.allowed(topic)

    def is_internal(self, topic: str) -> bool:
        """Whether a topic is one of Kafka's own or of the service's."""
        return is_of_kafka(topic) or topic in self.own


class Put(NamedTuple):
    """Send this at that time, in place of what waits for the key; `history` are headers that only that topic's copy has."""

    due_at_ms: int
    target: str
    target_key: bytes | None
    headers: Headers
    history: Headers


class Cancel(NamedTuple):
    """Nothing that waits for the key is to be sent."""


class Invalid(NamedTuple):
    """No schedule; whatever waits for the key was replaced by it all the same. `ends` says whether it is to have a tombstone."""

    reason: RefusedBecause
    ends: bool


class OwnTombstone(NamedTuple):
    """A tombstone that this service wrote, read back: it says nothing new."""


ScheduleRequest = Put | Cancel | Invalid | OwnTombstone
CANCEL, OWN_TOMBSTONE = Cancel(), OwnTombstone()


def read_request(message: Any, now_ms: int, rules: Rules) -> ScheduleRequest:
    """Read what a message, as confluent_kafka has it, asks for at the time when it is read."""
    key = message.key()
    named = bool(key and key.strip())
    headers = read_headers(message)
    if headers is None:
        return CANCEL if named and message.value() is None else _invalid(RefusedBecause.UNREADABLE_HEADERS)
    if not named:
        return _invalid(RefusedBecause.NO_KEY)
    if message.value() is None:
        return OWN_TOMBSTONE if any(name == DONE for name, _ in headers) else CANCEL
    first: dict[str, bytes | None] = {}
    kept: Headers = []
    for header in headers:
        if header[0].startswith(PREFIX):
            first.setdefault(*header)
        else:
            kept.append(header)
    epoch_s = _epoch_s(first.get(EPOCH))
    if isinstance(epoch_s, RefusedBecause):
        return _invalid(epoch_s)
    target = _parse_target(first.get(TARGET_TOPIC), rules)
    if isinstance(target, RefusedBecause):
        return _invalid(target)
    stamp_ms = max(0, message.timestamp()[1])
    arrived_s = min(stamp_ms or now_ms, now_ms) // 1_000
    if (late := _too_late(epoch_s, arrived_s, rules)) is not None:
        return _invalid(late)
    sent = [*kept, *schedule_headers(stamp_ms, key, message.topic())]
    request = [(name, first[name]) for name in (EPOCH, TARGET_TOPIC, TARGET_KEY) if name in first]
    return Put(epoch_s * 1_000, target, first.get(TARGET_KEY), sent, request)


def schedule_headers(stamp_ms: int, key: bytes, topic: str) -> tuple[Header, ...]:
    return (TIMESTAMP, b"%d" % (stamp_ms // 1_000)), (KEY, key), (TOPIC, topic.encode())


def _epoch_s(raw: bytes | None) -> int | RefusedBecause:
    if not raw or not _EPOCH.fullmatch(raw):
        return RefusedBecause.NO_EPOCH
    epoch_s = int(raw)
    if epoch_s < 0:
        return RefusedBecause.NEGATIVE_EPOCH
    return epoch_s if epoch_s <= _EPOCH_S_MAX else RefusedBecause.EPOCH_IN_MS


def _parse_target(raw: bytes | None, rules: Rules) -> str | RefusedBecause:
    if not raw:
        return RefusedBecause.NO_TARGET
    target = raw.decode("ascii", "replace")
    if not _TOPIC.fullmatch(target) or target in (".", ".."):
        return RefusedBecause.BAD_TARGET
    if rules.is_internal(target):
        return RefusedBecause.INTERNAL_TARGET
    return target if rules.allowed(target) else RefusedBecause.TARGET_NOT_ALLOWED


def _too_late(epoch_s: int, arrived_s: int, rules: Rules) -> RefusedBecause | None:
    if rules.grace_s is not None and arrived_s - epoch_s > rules.grace_s:
        return RefusedBecause.PAST_DUE
    return RefusedBecause.TOO_OLD if epoch_s < rules.since_s else None


def _invalid(reason: RefusedBecause) -> Invalid:
    return Invalid(reason, reason in _ENDED)
