"""A message of a schedules topic → what it asks for. Pure and total: there is no message that it refuses.

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
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from retry.scheduling.messages import headers as names
from retry.record import Header, Headers

_EPOCH = re.compile(rb"[+-]?[0-9]{1,19}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
# 9999-12-31: what lies beyond was meant as milliseconds.
_EPOCH_S_MAX = 253_402_300_799


class Reason(Enum):
    """Why a message is no schedule."""

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
    TOO_LARGE = "too_large"


# What the Go scheduler ends with a tombstone, too; everything else stays in its topic as it was written.
_ENDED = frozenset({Reason.NEGATIVE_EPOCH, Reason.PAST_DUE})


class Rules(NamedTuple):
    """What decides beside the message.

    Attributes:
      allowed: whether a topic may be a target.
      grace_s: by how much a schedule may be past due when it arrives; None for any time.
      since_s: what was due before is too old to be sent when it is read for the first time.
    """

    allowed: Callable[[str], bool]
    grace_s: int | None = None
    since_s: int = 0


class Put(NamedTuple):
    """Send this at that time, in place of whatever else waits for the key.

    Attributes:
      headers: of the record that will be sent.
      history: headers that only its copy for the history topic has besides: what was asked for.
    """

    due_at_ms: int
    target: str
    target_key: bytes | None
    headers: Headers
    history: Headers


class Cancel(NamedTuple):
    """Nothing that waits for the key is to be sent."""


class Invalid(NamedTuple):
    """No schedule; whatever waits for the key was replaced by it all the same.

    Attributes:
      ends: whether it is to have a tombstone.
    """

    reason: Reason
    ends: bool


class Ours(NamedTuple):
    """A tombstone that this service wrote, read back: it says nothing new."""


Asked = Put | Cancel | Invalid | Ours
CANCEL, OURS = Cancel(), Ours()


def asked(message: Any, now_ms: int, rules: Rules) -> Asked:
    """What a message asks for.

    Args:
      message: as confluent_kafka has it.
      now_ms: when it is read.
    """
    key = message.key()
    if not key or not key.strip():
        return _invalid(Reason.NO_KEY)
    try:
        headers: Headers = message.headers() or []
    except SystemError:
        # A name that is no UTF-8: the client can neither tell it nor write it again.
        return CANCEL if message.value() is None else _invalid(Reason.UNREADABLE_HEADERS)
    if message.value() is None:
        return OURS if any(name == names.DONE for name, _ in headers) else CANCEL
    first: dict[str, bytes | None] = {}
    kept: Headers = []
    for header in headers:
        if header[0].startswith(names.PREFIX):
            first.setdefault(*header)
        else:
            kept.append(header)
    epoch_s = _epoch_s(first.get(names.EPOCH))
    if isinstance(epoch_s, Reason):
        return _invalid(epoch_s)
    target = _target(first.get(names.TARGET_TOPIC), rules)
    if isinstance(target, Reason):
        return _invalid(target)
    stamp_ms = max(0, message.timestamp()[1])
    arrived_s = min(stamp_ms or now_ms, now_ms) // 1_000
    if (late := _too_late(epoch_s, arrived_s, rules)) is not None:
        return _invalid(late)
    sent = [*kept, *written(stamp_ms, key, message.topic())]
    request = [(name, first[name]) for name in (names.EPOCH, names.TARGET_TOPIC, names.TARGET_KEY) if name in first]
    return Put(epoch_s * 1_000, target, first.get(names.TARGET_KEY), sent, request)


def written(stamp_ms: int, key: bytes, topic: str) -> tuple[Header, ...]:
    """The headers that a sent message has of its schedule."""
    return (names.TIMESTAMP, b"%d" % (stamp_ms // 1_000)), (names.KEY, key), (names.TOPIC, topic.encode())


def _epoch_s(raw: bytes | None) -> int | Reason:
    if not raw or not _EPOCH.fullmatch(raw):
        return Reason.NO_EPOCH
    epoch_s = int(raw)
    if epoch_s < 0:
        return Reason.NEGATIVE_EPOCH
    return epoch_s if epoch_s <= _EPOCH_S_MAX else Reason.EPOCH_IN_MS


def _target(raw: bytes | None, rules: Rules) -> str | Reason:
    if not raw:
        return Reason.NO_TARGET
    target = raw.decode("ascii", "replace")
    if not _TOPIC.fullmatch(target) or target in (".", ".."):
        return Reason.BAD_TARGET
    return target if rules.allowed(target) else Reason.TARGET_NOT_ALLOWED


def _too_late(epoch_s: int, arrived_s: int, rules: Rules) -> Reason | None:
    if rules.grace_s is not None and arrived_s - epoch_s > rules.grace_s:
        return Reason.PAST_DUE
    return Reason.TOO_OLD if epoch_s < rules.since_s else None


def _invalid(reason: Reason) -> Invalid:
    return Invalid(reason, reason in _ENDED)


