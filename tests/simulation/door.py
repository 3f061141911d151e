"""A door for the simulation: schedules that are replaced, cancelled and recur; what fires goes to a topic of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from retry.delay_queue import entry as entries
from retry.delay_queue.entry import Also, Named
from retry.delay_queue.recurrence import Plan
from retry.intake.settled import Settled
from tests.simulation.plan import SHARDS

TEAM, SCHEDULES, FIRED, HISTORY = "door", "schedules", "fired", "history"
SOURCE, ENDED = "schedule", "ended"
RUNS = 4
# More than are ever missed.
_ALL = 1_000


class Door:
    """See `retry.intake.entry_source.Door`. A message's key is the name; its value says when, and how often; without one it is a cancel."""

    topics: Sequence[str] = (SCHEDULES,)

    def reads(self, topic: str) -> bool:
        """See `Door.reads`."""
        return topic == SCHEDULES

    def permits(self, team: str, destination: str) -> bool:
        """See `Door.permits`."""
        return (team, destination) == (TEAM, FIRED)

    def settle(self, messages: Sequence[Any], now_ms: int, into: Settled) -> None:
        """See `Door.settle`."""
        for message in messages:
            if not ended(message):
                name = entries.name(TEAM, SCHEDULES, message.key())
                key, value = _row(name, message)
                into.entries[entries.shard_of(name, SHARDS)].append({"key": key, "value": value})


def ended(message: Any) -> bool:
    """Whether it is the tombstone that a fired schedule left behind, read back."""
    return any(name == ENDED for name, _ in message.headers() or [])


def _row(name: bytes, message: Any) -> tuple[bytes, bytes]:
    partition, offset, value = message.partition(), message.offset(), message.value()
    stem = entries.key_stem(SCHEDULES, partition)
    if value is None:
        return entries.cancel(name, offset, stem, offset)
    told = orjson.loads(value)
    plan = None
    if every_ms := told["every_ms"]:
        end_ms = told["due_ms"] + (RUNS - 1) * every_ms
        plan = Plan(0, told["due_ms"], every_ms=every_ms, end_ms=end_ms, misfire="all", catch_up_max=_ALL)
    tombstone = Also(SCHEDULES, partition, message.key(), None, headers=[(ENDED, b"")])
    also = (Also(HISTORY, None, message.key(), None, whole=True), *((tombstone,) if plan is None else ()))
    headers = [(SOURCE, source(message).encode())]
    named = Named(FIRED, message.key(), value, list(headers), None, TEAM, also=also, plan=plan)
    key = entries.named_key(told["due_ms"], name, offset, stem, offset, entries.named_lane(TEAM, SCHEDULES, FIRED))
    return key, entries.encode(named)


def source(message: Any) -> str:
    """Its coordinates."""
    return f"{message.topic()}/{message.partition()}/{message.offset()}"
