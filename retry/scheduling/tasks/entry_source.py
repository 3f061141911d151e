"""Definitions of recurring tasks → named entries: {customerId, taskName} is the name, the offset the version.

| record | what it comes to |
| --- | --- |
| a definition | an entry for the first run, with the plan for all others; in the place of what was there under its name |
| one whose runs are all over | a cancel |
| a null | a cancel |
| what cannot be read, or must not be | an entry for the parking topic, with the reason; what was there under its name stays |

An entry has the definition's own bytes, key and value, so runs come in the form that came in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from backoff.recurrence import first
from retry.delay_queue import entry as entries
from retry.intake.entry_source import Place
from retry.delay_queue.entry import Entry, Named
from retry.record import Headers
from retry.errors import SchemaUnavailable, TaskInvalid
from retry.delay_queue.recurrence import Plan, told
from retry.policies.tasks import TEAM, Tasks
from retry.intake.settled import Settled
from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import LIKELY_MS, Letter, read
from retry.scheduling.tasks import definition
from retry.scheduling.tasks.definition import Definition
from retry.scheduling.tasks.formats import Reader

_FAULT_CHARS_MAX = 500
_KEY_BYTES_MAX = 1_024
# For the entry's key: a topic's name and 50 bytes.
_ROOM = 512

Row = dict[str, Any]


class TasksDoor:
    """Settles messages of the topics of definitions; for one thread.

    Args:
      tasks: what the policy file says.
      reader: of keys and definitions.
      parked: the topic to park in where the policy file names none.
    """

    def __init__(self, tasks: Tasks, reader: Reader, parked: str, place: Place) -> None:
        self._tasks, self._reader, self._place = tasks, reader, place
        self._park_to = tasks.park_to or parked

    @property
    def topics(self) -> Sequence[str]:
        """See `retry.intake.entry_source.Door`."""
        return sorted(self._tasks.topics)

    def reads(self, topic: str) -> bool:
        """See `retry.intake.entry_source.Door`."""
        return topic in self._tasks.topics

    def permits(self, team: str, destination: str) -> bool:
        """See `retry.intake.entry_source.Door`."""
        return team == TEAM and destination in self._tasks.permitted()

    def settle(self, messages: Sequence[Any], now_ms: int, into: Settled) -> None:
        """See `retry.intake.entry_source.Door`."""
        for message in messages:
            record = read(message)
            try:
                shard, row, became = self._settled(record, now_ms)
            except TaskInvalid as fault:
                shard, row, became = self._parked(record, now_ms, fault.reason, str(fault))
            except SchemaUnavailable as fault:
                shard, row, became = self._parked(record, now_ms, "no_schema", str(fault))
            into.entries[shard].append(row)
            into.decided[TEAM, became] += 1

    def _settled(self, record: Letter, now_ms: int) -> tuple[int, Row, str]:
        """Shard and row, and what became of the record."""
        if not record.copyable():
            raise TaskInvalid("unreadable_headers", "the name of a header is not UTF-8")
        if record.key is None:
            raise TaskInvalid("bad_task", "it has no key")
        key = self._reader.key(record.key, self._tasks.format)
        name = entries.name(TEAM, record.topic, msgspec.json.encode(definition.names(key)))
        shard, stem = entries.shard_of(name, self._place.shards), entries.key_stem(record.topic, record.partition)
        if record.value is not None:
            found = definition.read(key, self._reader.definition(record.value, self._tasks.format))
            self._check(found)
            began_ms = _began_ms(record, now_ms)
            plan = self._plan(found, began_ms, name)
            if run := first(plan, began_ms):
                due_at_ms, plan = run[0], msgspec.structs.replace(plan, run=run[1])
                lane = entries.named_lane(TEAM, record.topic, found.output_topic)
                entry_key = entries.named_key(due_at_ms, name, record.offset, stem, record.offset, lane)
                return shard, {"key": entry_key, "value": self._envelope(record, found, plan, due_at_ms)}, "schedule"
        entry_key, envelope = entries.cancel(name, record.offset, stem, record.offset)
        return shard, {"key": entry_key, "value": envelope}, "cancel"

    def _check(self, found: Definition) -> None:
        if found.output_topic not in self._tasks.allowed:
            raise TaskInvalid("target_not_allowed", f"{found.output_topic} is not among tasks.allowed_targets of the policy file")
        if 0 < found.every_ms < self._tasks.shortest_ms:
            shortest = f"tasks.shortest of the policy file, {self._tasks.shortest_ms} ms"
            raise TaskInvalid("bad_task", f"a period of {found.every_ms} ms is shorter than {shortest}")

    def _plan(self, found: Definition, began_ms: int, name: bytes) -> Plan:
        ours = self._tasks
        return Plan(
            # A period that begins with its definition has its first run at its end; one with a start of its own has it there.
            run=1 if found.every_ms and found.start_ms is None else 0,
            start_ms=began_ms if found.start_ms is None else found.start_ms,
            every_ms=found.every_ms,
            cron=found.cron,
            zone=found.zone,
            end_ms=found.end_ms,
            jitter_ms=found.jitter_ms,
            seed=int.from_bytes(name[:8], "big"),
            late_ms=ours.late_ms if found.late_ms is None else found.late_ms,
            misfire=found.misfire or ours.misfire,
            catch_up_max=found.catch_up_max or ours.catch_up_max,
        )

    def _envelope(self, record: Letter, found: Definition, plan: Plan, due_at_ms: int) -> bytes:
        headers = told(record.kept, due_at_ms, plan.run)
        envelope = entries.encode(Named(found.output_topic, record.key, record.value, headers, None, TEAM, plan=plan))
        if len(envelope) > self._place.bytes_max - _ROOM:
            raise TaskInvalid("too_large", f"{len(envelope)} bytes do not fit the changelog")
        return envelope

    def _parked(self, record: Letter, now_ms: int, reason: str, fault: str) -> tuple[int, Row, str]:
        """The record as it is, or where it does not fit its coordinates alone."""
        ours: Headers = [
            (names.TASK_SOURCE, record.source),
            (names.PARKED_REASON, reason.encode()),
            (names.PARKED_FAULT, fault[:_FAULT_CHARS_MAX].encode(errors="replace")),
        ]
        kept = record.kept if record.copyable() else []
        whole = Entry(self._park_to, record.key, record.value, kept + ours, record.timestamp_ms, TEAM, now_ms)
        envelope = entries.encode(whole)
        if len(envelope) > self._place.bytes_max - _ROOM:
            key = record.key if len(record.key or b"") <= _KEY_BYTES_MAX else None
            envelope = entries.encode(Entry(self._park_to, key, None, ours, record.timestamp_ms, TEAM, now_ms))
        # A name that nothing else has: it is no letter, and nobody shall look for one.
        name = entries.name(f"{TEAM} parked", record.topic, record.source)
        stem, lane = entries.key_stem(record.topic, record.partition), entries.named_lane(TEAM, record.topic, self._park_to)
        entry_key = entries.named_key(now_ms, name, record.offset, stem, record.offset, lane)
        return entries.shard_of(name, self._place.shards), {"key": entry_key, "value": envelope}, "park"


def _began_ms(record: Letter, now_ms: int) -> int:
    """When the definition was written, as far as that can be: not in the future, and not before there was any Kafka."""
    stamp_ms = record.timestamp_ms
    return now_ms if stamp_ms is None or not LIKELY_MS <= stamp_ms <= now_ms else stamp_ms
