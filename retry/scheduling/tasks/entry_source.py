"""Definitions of recurring tasks → named entries: {customerId, taskName} is the name; of two definitions the later counts.

| record | what it comes to |
| --- | --- |
| a definition | an entry for the first run, with the plan for all others; in the place of what was there under its name |
| one that is paused | an entry that is never due, in the place of what was there under its name |
| one whose runs are all over | a cancel |
| a null | a cancel |
| what cannot be read, or must not be | an entry for the parking topic, with the reason; what was there under its name stays |

An entry has the definition's own bytes, key and value, so runs come in the form that came in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from backoff.recurrence import PAUSED_MS, find_first_run
from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import LIKELY_MS, Letter, read
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import HEADERS_MAX, Entry, Named, Recurrence, make_run_headers
from retry.errors import SchemaUnavailable, TaskInvalid
from retry.intake.batch import BatchResult
from retry.intake.entry_source import CANCELS_REMEMBERED_MS, QueueLimits
from retry.policies.tasks import TEAM, Tasks
from retry.record import Headers
from retry.scheduling.tasks import definition
from retry.scheduling.tasks.formats import Reader

_FAULT_CHARS_MAX = 500
_KEY_BYTES_MAX = 1_024
# For the entry's key: a topic's name and 50 bytes.
_ROOM = 512

ProducerRow = dict[str, Any]


class TasksSource:
    """An `EntrySource` that turns definitions into entries, for one thread; `parked` is for where the policy file names none."""

    def __init__(self, tasks: Tasks, reader: Reader, parked: str, place: QueueLimits) -> None:
        self._tasks, self._reader, self._place = tasks, reader, place
        self._park_to = tasks.park_to or parked

    @property
    def topics(self) -> Sequence[str]:
        return sorted(self._tasks.topics)

    def reads_topic(self, topic: str) -> bool:
        return topic in self._tasks.topics

    def permits_target(self, team: str, destination: str) -> bool:
        return team == TEAM and destination in self._tasks.list_permitted()

    def prepare(self, messages: Sequence[Any], now_ms: int, into: BatchResult) -> None:
        for message in messages:
            record = read(message)
            try:
                shard, row, became = self._entry(message, record, now_ms)
            except (TaskInvalid, SchemaUnavailable) as fault:
                reason = fault.reason if isinstance(fault, TaskInvalid) else "no_schema"
                shard, row, became = self._park_record(record, now_ms, reason, str(fault))
            into.entries[shard].append(row)
            into.decided[TEAM, became] += 1

    def _entry(self, message: Any, record: Letter, now_ms: int) -> tuple[int, ProducerRow, str]:
        """Make shard and row of a definition, and say what became of it."""
        if not record.copyable():
            raise TaskInvalid("unreadable_headers", f"a header's name is not UTF-8, or there are more than {HEADERS_MAX:,}")
        if record.key is None:
            raise TaskInvalid("bad_task", "it has no key")
        key = self._reader.decode_key(record.key, self._tasks.format)
        name = entry_keys.hash_name(TEAM, record.topic, msgspec.json.encode(definition.parse_key_names(key)))
        shard, stem = entry_keys.find_shard(name, self._place.shards), entry_keys.build_key_stem(record.topic, record.partition)
        if record.value is not None:
            task = definition.read(key, self._reader.definition(record.value, self._tasks.format))
            self._check(task)
            began_ms = _began_ms(record, now_ms)
            plan = self._plan(task, began_ms, name)
            if run := find_first_run(plan, began_ms):
                due_at_ms, plan = run[0], msgspec.structs.replace(plan, run=run[1])
                if task.is_paused:
                    # Whoever sends this one by hand gets one run, and none after it.
                    due_at_ms, plan = PAUSED_MS, msgspec.structs.replace(plan, end_ms=began_ms)
                lane = entry_keys.build_named_lane(TEAM, record.topic, task.output_topic)
                version = self._place.versions.next_version(message, now_ms)
                entry_key = entry_keys.build_named_key(due_at_ms, name, version, stem, record.offset, lane)
                return shard, {"key": entry_key, "value": self._envelope(entry_key, record, task, plan, due_at_ms)}, "schedule"
        version = self._place.versions.next_version(message, now_ms, of_cancel=True)
        entry_key, envelope = envelopes.build_cancel(name, version, stem, record.offset, now_ms + CANCELS_REMEMBERED_MS)
        return shard, {"key": entry_key, "value": envelope}, "cancel"

    def _check(self, task: definition.Definition) -> None:
        if task.output_topic not in self._tasks.allowed:
            raise TaskInvalid("target_not_allowed", f"{task.output_topic} is not among tasks.allowed_targets of the policy file")
        if 0 < task.every_ms < self._tasks.shortest_ms:
            shortest = f"tasks.shortest of the policy file, {self._tasks.shortest_ms} ms"
            raise TaskInvalid("bad_task", f"a period of {task.every_ms} ms is shorter than {shortest}")

    def _plan(self, task: definition.Definition, began_ms: int, name: bytes) -> Recurrence:
        defaults = self._tasks
        return Recurrence(
            # A period that begins with its definition has its first run at its end; one with a start of its own has it there.
            run=1 if task.every_ms and task.start_ms is None else 0,
            start_ms=began_ms if task.start_ms is None else task.start_ms, end_ms=task.end_ms, every_ms=task.every_ms,
            cron=task.cron, zone=task.zone, jitter_ms=task.jitter_ms, seed=int.from_bytes(name[:8], "big"),
            late_ms=defaults.late_ms if task.late_ms is None else task.late_ms, misfire=task.misfire or defaults.misfire,
            catch_up_max=task.catch_up_max or defaults.catch_up_max,
        )  # fmt: skip

    def _envelope(self, entry_key: bytes, record: Letter, task: definition.Definition, plan: Recurrence, due_at_ms: int) -> bytes:
        headers = make_run_headers(record.original_headers, due_at_ms, plan.run)
        entry = Named(task.output_topic, record.key, record.value, headers, None, TEAM, plan=plan)
        envelope = self._place.codec.encode(entry_key, entry)
        if len(envelope) > self._place.bytes_max - _ROOM:
            raise TaskInvalid("too_large", f"{len(envelope)} bytes do not fit the changelog")
        if len(headers) > HEADERS_MAX:
            raise TaskInvalid("too_large", f"its runs would have {len(headers):,} headers, more than {HEADERS_MAX:,}")
        return envelope

    def _park_record(self, record: Letter, now_ms: int, reason: str, fault: str) -> tuple[int, ProducerRow, str]:
        """The record as it is, or where it does not fit its coordinates alone."""
        why = fault[:_FAULT_CHARS_MAX].encode(errors="replace")
        own: Headers = [(names.TASK_SOURCE, record.source), (names.PARKED_REASON, reason.encode()), (names.PARKED_FAULT, why)]
        kept = record.original_headers if record.copyable() else []
        # A name that nothing else has: it is no letter, and nobody shall look for one.
        name = entry_keys.hash_name(f"{TEAM} parked", record.topic, record.source)
        stem, lane = (
            entry_keys.build_key_stem(record.topic, record.partition),
            entry_keys.build_named_lane(TEAM, record.topic, self._park_to),
        )
        entry_key = entry_keys.build_named_key(now_ms, name, record.offset, stem, record.offset, lane)
        parked = Entry(self._park_to, record.key, record.value, kept + own, record.timestamp_ms, TEAM, now_ms)
        envelope = self._place.codec.encode(entry_key, parked)
        if len(envelope) > self._place.bytes_max - _ROOM or len(parked.headers) > HEADERS_MAX:
            key = record.key if len(record.key or b"") <= _KEY_BYTES_MAX else None
            reference = Entry(self._park_to, key, None, own, record.timestamp_ms, TEAM, now_ms)
            envelope = self._place.codec.encode(entry_key, reference)
        return entry_keys.find_shard(name, self._place.shards), {"key": entry_key, "value": envelope}, "park"


def _began_ms(record: Letter, now_ms: int) -> int:
    """Find when the definition was written, as far as that can be: not in the future, and not before there was any Kafka."""
    stamp_ms = record.timestamp_ms
    return now_ms if stamp_ms is None or not LIKELY_MS <= stamp_ms <= now_ms else stamp_ms
