"""What an operator asks of one task: to pause it, to resume it, or to make the runs of a time that is past."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from backoff.recurrence import PAUSED_MS, find_first_run
from retry.clock import iso
from retry.delay_queue.envelopes import DUE_MS, RUN, Entry, Recurrence
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


def pause_task(settings: Settings, definitions: Definitions, task: Task) -> NewDefinition:
    """Make the definition with which a task is paused, with a start that keeps the rhythm and the numbers of its runs.

    Raises ActionRefused where it is paused already, its definition cannot be read, or a newer one is not taken in yet; and
    TaskInvalid, SchemaUnavailable where that one cannot be written.
    """
    if is_paused(task):
        raise ActionRefused(f"{task.name} is paused already; nothing was done")
    own = {_PAUSED: "true"}
    if task.plan.every_ms:
        own[_START] = iso(task.plan.start_ms)
    return _replace_definition(settings, definitions, task, own)


def resume_task(settings: Settings, definitions: Definitions, task: Task) -> NewDefinition:
    """Make the definition with which a paused task goes on: runs that were due meanwhile are not made. Raises as `pause_task`."""
    if not is_paused(task):
        raise ActionRefused(f"{task.name} is not paused; nothing was done")
    return _replace_definition(settings, definitions, task, {})


def is_paused(task: Task) -> bool:
    return task.defined_at.due_at_ms == PAUSED_MS


def plan_backfill(task: Task, from_ms: int, to_ms: int) -> list[Entry]:
    """List the runs that a task has between two times, both included, whether they were made before or not; without its jitter.

    A run has `task-backfill` and `task-due-ms`, and no number. Raises ActionRefused where there are none, or too many.
    """
    entry, runs = task.entry, list[Entry]()
    for due_ms in _list_times(task.plan, from_ms, to_ms):
        if len(runs) == RUNS_MAX:
            raise ActionRefused(f"{task.name} has more than {RUNS_MAX:,} runs between the two times; ask for a shorter time")
        headers = [*_own_headers(entry), (BACKFILL, b"true"), (DUE_MS, b"%d" % due_ms)]
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


def _replace_definition(settings: Settings, definitions: Definitions, task: Task, own: dict[str, str]) -> NewDefinition:
    _demand_newest(settings, task)
    value = definitions.read(task)
    if value is None:
        raise ActionRefused(f"the definition of {task.name} cannot be read, as where its schema cannot be had; nothing was done")
    config: dict[str, Any] = value["config"]
    former = {name: text for name, text in (config.get("configurations") or {}).items() if name != _PAUSED}
    # A start that the definition has by itself stays.
    changed = {**value, "config": {**config, "configurations": {**own, **former}}}
    where = task.defined_at
    written = definitions.encode(task, changed)
    return NewDefinition(Entry(where.topic, task.entry.key, written, _own_headers(task.entry), None, TEAM), where.partition)


def _demand_newest(settings: Settings, task: Task) -> None:
    where = task.defined_at
    for message, _ in newest_records(settings, where.topic, lambda _partitions: _SEARCHED_MAX):
        is_later = message.partition() == where.partition and (message.offset() or 0) > where.offset
        if is_later and message.key() == task.entry.key:
            newer = f"{where.topic}/{where.partition}/{message.offset()}"
            raise ActionRefused(f"{newer} is a newer definition of {task.name}, not taken in yet; ask again when a worker has")


def _own_headers(entry: Entry) -> Headers:
    return [header for header in entry.headers if header[0] not in (RUN, DUE_MS)]
