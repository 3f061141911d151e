"""Recurring tasks that wait for their next run, and what an operator asks of one: to pause it, to resume it, or to run it.

What waits is read from the changelog by any process. A task can be asked to make the runs of a time that is past.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest
from typing import Any, NamedTuple

import msgspec

from backoff.recurrence import find_first_run
from retry.clock import iso
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import DUE_MS, Entry, Named, Recurrence, drop_run_headers
from retry.errors import ActionRefused, SchemaUnavailable, TaskInvalid
from retry.kafka import client_config, topics
from retry.kafka.interface import Message
from retry.kafka.schema_registry import Schemas
from retry.kafka.topic_ends import read_newest_records
from retry.policies.tasks import TEAM
from retry.record import Headers
from retry.scheduling.tasks import definition
from retry.scheduling.tasks.formats import Reader
from retry.settings import Settings

# Of each partition of the output topic.
_RUNS_SEARCHED_MAX = 2_000
_LAST_RUNS_MAX = 5


class Task(NamedTuple):
    """A task and its next run; `name` is `customer/task`, None where the schema of its key is not to be had.

    Attributes:
      defined_at: topic, partition and offset of the definition, and when the next run is due.
    """

    name: str | None
    defined_at: entry_keys.Source
    entry: Named
    plan: envelopes.Recurrence


class SentRun(NamedTuple):
    number: int
    due_ms: int
    topic: str
    partition: int
    offset: int


class Definitions:
    """Reads keys and definitions, whatever form they came in; raises SettingsInvalid: the registry's client cannot be used."""

    def __init__(self, settings: Settings) -> None:
        self._reader = Reader(Schemas(settings.registry))

    def tasks(self, waiting: Iterable[tuple[entry_keys.Source, Entry]]) -> Iterator[Task]:
        """Yield the recurring tasks among waiting entries, in the same order."""
        for where, entry in waiting:
            if isinstance(entry, Named) and entry.team == TEAM and entry.plan is not None:
                yield Task(self._format_task_name(entry.key or b""), where, entry, entry.plan)

    def read(self, task: Task) -> dict[str, Any] | None:
        """Read the definition of a task; None where its schema is not to be had."""
        return self.decode(task.entry.value or b"")

    def decode(self, value: bytes) -> dict[str, Any] | None:
        """Decode the value of a definition; None where it is none, or its schema is not to be had."""
        try:
            return self._reader.definition(value)
        except (TaskInvalid, SchemaUnavailable):
            return None

    def encode(self, former: bytes, definition: dict[str, Any]) -> bytes:
        """Encode a definition in the form and by the schema of a former one; raises TaskInvalid, SchemaUnavailable."""
        return self._reader.encode_definition(former, definition)

    def shard(self, task: Task, shards: int) -> int:
        """Find the partition of the changelog in which the entry waits."""
        key = msgspec.json.encode(definition.parse_key_names(self._reader.decode_key(task.entry.key or b"")))
        return entry_keys.find_shard(entry_keys.hash_name(TEAM, task.defined_at.topic, key), shards)

    def _format_task_name(self, key: bytes) -> str | None:
        try:
            return "/".join(definition.parse_key_names(self._reader.decode_key(key)))
        except (TaskInvalid, SchemaUnavailable):
            return None


def count_shards(settings: Settings) -> int:
    name = topics.build_topic_names(settings.app_id).changelog
    return topics.describe(client_config.connect_admin(settings), [name])[name].partitions


def list_last_runs(settings: Settings, task: Task) -> list[SentRun]:
    """List the last runs that were sent, the newest first; only the newest records of the output topic are searched."""
    records = read_newest_records(settings, task.entry.destination, lambda _partitions: _RUNS_SEARCHED_MAX)
    runs = (read_sent_run(message, headers) for message, headers in records if message.key() == task.entry.key)
    return nlargest(_LAST_RUNS_MAX, filter(None, runs), key=lambda run: run.due_ms)


def read_sent_run(message: Message, headers: Headers) -> SentRun | None:
    """Read a run that was sent from the headers of its record; None where the record is no run."""
    by_name = dict(headers)
    number, due_ms = (by_name.get(name) or b"" for name in (envelopes.RUN, envelopes.DUE_MS))
    if not all(len(digits) < 20 and digits.isdigit() for digits in (number, due_ms)):
        return None
    return SentRun(int(number), int(due_ms), message.topic() or "", message.partition() or 0, message.offset() or 0)


BACKFILL = "task-backfill"
RUNS_MAX = 10_000
_PAUSED, _START = "schedule.paused", "schedule.start"
# Of each partition of the topic of definitions.
_DEFINITIONS_SEARCHED_MAX = 2_000


class NewDefinition(NamedTuple):
    """A record that takes the place of a task's definition: the same key and headers, in the same partition."""

    entry: Entry
    partition: int


class _Current(NamedTuple):
    """The newest definition of a task, taken in or not; a period for which it says no start begins at `start_ms`."""

    value: bytes
    fields: dict[str, Any]
    headers: Headers
    start_ms: int

    @property
    def configurations(self) -> dict[str, str]:
        return dict(self.fields["config"].get("configurations") or {})

    @property
    def is_paused(self) -> bool:
        return self.configurations.get(_PAUSED) == "true"


def pause_task(settings: Settings, definitions: Definitions, task: Task) -> NewDefinition:
    """Make the definition with which a task is paused, with a start that keeps the rhythm and the numbers of its runs.

    Raises ActionRefused where it is paused already, was deleted, or its definition cannot be read; TaskInvalid or
    SchemaUnavailable where that cannot be written again.
    """
    current = _find_current(settings, definitions, task)
    if current.is_paused:
        raise ActionRefused(f"{task.name} is paused already; nothing was done")
    frequency = current.fields.get("frequency")
    started = {_START: iso(current.start_ms)} if frequency and "cron" not in frequency else {}
    # A start that the definition has by itself stays.
    return _replace_definition(definitions, task, current, {**started, **current.configurations, _PAUSED: "true"})


def resume_task(settings: Settings, definitions: Definitions, task: Task) -> NewDefinition:
    """Make the definition with which a paused task goes on: runs that were due meanwhile are not made. Raises as `pause_task`."""
    current = _find_current(settings, definitions, task)
    if not current.is_paused:
        raise ActionRefused(f"{task.name} is not paused; nothing was done")
    left = {name: text for name, text in current.configurations.items() if name != _PAUSED}
    return _replace_definition(definitions, task, current, left)


def plan_backfill(task: Task, from_ms: int, to_ms: int) -> list[Entry]:
    """List the runs that a task has between two times, both included, whether they were made before or not; without its jitter.

    A run has `task-backfill` and `task-due-ms`, and no number. Raises ActionRefused where there are none, or too many.
    """
    entry, runs = task.entry, list[Entry]()
    for due_ms in _list_times(task.plan, from_ms, to_ms):
        if len(runs) == RUNS_MAX:
            raise ActionRefused(f"{task.name} has more than {RUNS_MAX:,} runs between the two times; ask for a shorter time")
        headers = [*drop_run_headers(entry.headers), (BACKFILL, b"true"), (DUE_MS, b"%d" % due_ms)]
        runs.append(Entry(entry.destination, entry.key, entry.value, headers, None, TEAM))
    if not runs:
        raise ActionRefused(f"{task.name} has no run from {iso(from_ms)} to {iso(to_ms)}; nothing was done")
    return runs


def _list_times(plan: Recurrence, from_ms: int, to_ms: int) -> Iterator[int]:
    if not plan.every_ms and not plan.cron:
        raise ActionRefused("this task runs once, so there are no other runs to make")
    # Its rhythm goes on into the time before its start.
    start_ms = 0 if plan.cron else plan.start_ms
    endless = msgspec.structs.replace(plan, run=-(1 << 62), jitter_ms=0, start_ms=start_ms, end_ms=to_ms)
    while run := find_first_run(endless, from_ms):
        yield run[0]
        from_ms = run[0] + 1


def _find_current(settings: Settings, definitions: Definitions, task: Task) -> _Current:
    where = task.defined_at
    current = _read_definition(definitions, task.entry.value, drop_run_headers(task.entry.headers), task.plan.start_ms)
    # What no worker has taken in yet counts, too: an operator may resume what was paused a moment ago.
    for message, headers in read_newest_records(settings, where.topic, lambda _partitions: _DEFINITIONS_SEARCHED_MAX):
        is_later = message.partition() == where.partition and (message.offset() or 0) > where.offset
        if not is_later or message.key() != task.entry.key:
            continue
        if message.value() is None:
            deleted = f"{where.topic}/{where.partition}/{message.offset()}"
            raise ActionRefused(f"{task.name} was deleted by {deleted}; nothing was done")
        # One that cannot be used is parked, and the one before it stays in force.
        current = _read_definition(definitions, message.value(), headers, message.timestamp()[1]) or current
    if current is None:
        raise ActionRefused(f"the definition of {task.name} cannot be read, as where its schema cannot be had; nothing was done")
    return current


def _read_definition(definitions: Definitions, value: bytes | None, headers: Headers, start_ms: int) -> _Current | None:
    fields = definitions.decode(value or b"")
    return _Current(value or b"", fields, headers, start_ms) if fields and isinstance(fields.get("config"), dict) else None


def _replace_definition(
    definitions: Definitions, task: Task, current: _Current, configurations: dict[str, str]
) -> NewDefinition:
    fields = {**current.fields, "config": {**current.fields["config"], "configurations": configurations}}
    where, written = task.defined_at, definitions.encode(current.value, fields)
    return NewDefinition(Entry(where.topic, task.entry.key, written, current.headers, None, TEAM), where.partition)
