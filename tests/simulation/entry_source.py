"""An entry source for the simulation: schedules that are replaced, cancelled and recur; what fires goes to a topic of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelope_codec import EnvelopeCodec
from retry.delay_queue.envelopes import Also, Named, Recurrence
from retry.intake.batch import BatchResult
from retry.intake.entry_source import RecordVersions
from tests.simulation.plan import SHARDS

TEAM, SCHEDULES, FIRED, HISTORY = "door", "schedules", "fired", "history"
SOURCE, ENDED = "schedule", "ended"
RUNS = 4
_REMEMBERED_MS = 3_000
# More than are ever missed.
_ALL = 1_000


class SimulatedSource:
    """The entry source of the simulation; see `retry.intake.entry_source.EntrySource`.

    A message's key is the name; its value says when, and how often; without one it is a cancel.
    """

    def __init__(self, codec: EnvelopeCodec, versions: RecordVersions) -> None:
        self._codec, self._versions = codec, versions

    topics: Sequence[str] = (SCHEDULES,)

    def reads_topic(self, topic: str) -> bool:
        return topic == SCHEDULES

    def permits_target(self, team: str, destination: str) -> bool:
        return (team, destination) == (TEAM, FIRED)

    def prepare(self, messages: Sequence[Any], now_ms: int, into: BatchResult) -> None:
        for message in messages:
            if not is_ended(message):
                name = entry_keys.hash_name(TEAM, SCHEDULES, message.key())
                version = self._versions.next_version(message, now_ms, of_cancel=message.value() is None)
                key, value = _row(name, version, message, now_ms, self._codec)
                into.entries[entry_keys.find_shard(name, SHARDS)].append({"key": key, "value": value})


def is_ended(message: Any) -> bool:
    """Whether it is the tombstone that a fired schedule left behind, read back."""
    return any(name == ENDED for name, _ in message.headers() or [])


def _row(name: bytes, version: int, message: Any, now_ms: int, codec: EnvelopeCodec) -> tuple[bytes, bytes]:
    partition, offset, value = message.partition(), message.offset(), message.value()
    stem = entry_keys.build_key_stem(SCHEDULES, partition)
    if value is None:
        return envelopes.build_cancel(name, version, stem, offset, now_ms + offset % 2 * _REMEMBERED_MS)
    told = orjson.loads(value)
    plan = None
    if every_ms := told["every_ms"]:
        end_ms = told["due_ms"] + (RUNS - 1) * every_ms
        plan = Recurrence(0, told["due_ms"], every_ms=every_ms, end_ms=end_ms, misfire="all", catch_up_max=_ALL)
    tombstone = Also(SCHEDULES, partition, message.key(), None, headers=[(ENDED, b"")])
    also = (Also(HISTORY, None, message.key(), None, copies_entry=True), *((tombstone,) if plan is None else ()))
    headers = [(SOURCE, source(message).encode())]
    named = Named(FIRED, message.key(), value, list(headers), None, TEAM, also=also, plan=plan)
    key = entry_keys.build_named_key(
        told["due_ms"], name, version, stem, offset, entry_keys.build_named_lane(TEAM, SCHEDULES, FIRED)
    )
    return key, codec.encode(key, named)


def source(message: Any) -> str:
    """Return the coordinates of a message as text."""
    return f"{message.topic()}/{message.partition()}/{message.offset()}"
