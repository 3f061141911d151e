"""What an operator asks of one task: to pause it, to resume it, or to make the runs of a time that is past."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from backoff.recurrence import find_first_run
from retry.clock import iso
from retry.delay_queue.envelopes import DUE_MS, Entry, Recurrence, drop_run_headers
from retry.errors import ActionRefused
from retry.kafka.topic_ends import newest_records
from retry.policies.tasks import TEAM
from retry.record import Headers
from retry.scheduling.tasks.waiting_tasks import Definitions, Task
from retry.settings import Settings

BACKFILL = "task-backfill"
RUNS_MAX = 10_000
_PAUSED, _START = "schedule.paused", "schedule.start"
# Of each partition of the topic of definitions.
_SEARCHED_MAX = 2_000


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
    for message, headers in newest_records(settings, where.topic, lambda _partitions: _SEARCHED_MAX):
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
