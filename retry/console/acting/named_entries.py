"""Schedules, tasks and timers that wait: found by their names, and cancelled through the way by which each came in."""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

from starlette.exceptions import HTTPException

from retry.console.acting.team_rights import demand_each
from retry.console.web.app import Console
from retry.console.web.rights import Role, Viewer
from retry.delay_queue import entry_keys
from retry.delay_queue.entry_keys import Source, source_from_text
from retry.delay_queue.envelopes import Named
from retry.errors import ActionRefused
from retry.kafka import client_config, topics
from retry.kafka.record_producer import Records
from retry.policies.tasks import TEAM as TASKS
from retry.scheduling.messages.entry_source import TEAM as SCHEDULES
from retry.scheduling.messages.headers import DONE
from retry.scheduling.timers import entry_source as timers

KINDS = ("schedule", "task", "timer")
_WITHIN_S = 15.0


class CancelRecord(NamedTuple):
    """The record that cancels a named entry: on the topic where it came in, or on the changelog for a timer."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None


def cancelling(where: Source, entry: Named, changelog: str, shards: int, now_ms: int) -> CancelRecord | None:
    """The record that cancels an entry; None of one that cannot be, as what only waits to be parked.

    Schedules and tasks are cancelled by a null under their key, in the very partition in which they lie: whoever follows their
    topic sees it, too. Timers have no topic: what ends them goes to the changelog, as `retry api` writes it.
    """
    if entry.call is not None:
        key, value = timers.cancel_row(entry.call.id, now_ms)
        return CancelRecord(changelog, entry_keys.shard_of(timers.hash_timer_id(entry.call.id), shards), key, value)
    if entry.team == SCHEDULES:
        mine = (each for each in entry.also if each.value is None and any(name == DONE for name, _ in each.headers))
        done = next(mine, None)
        if done is None or done.partition is None or done.key is None:
            return None
        return CancelRecord(done.topic, done.partition, done.key, None)
    if entry.team == TASKS and entry.plan is not None and entry.key is not None:
        return CancelRecord(where.topic, where.partition, entry.key, None)
    return None


def cancel(console: Console, viewer: Viewer, name: str, reason: str) -> None:
    """Cancel the entry of this name: `due/topic/partition/offset`.

    Raises:
      ActionRefused: it cannot be cancelled.
      HTTPException: 404, it waits no more; 403.
      RecordUnwritten: it is not known whether it was cancelled; cancelling it again does no harm.
    """
    found = console.replica.payloads.find_letter(viewer.scope(), name)
    if found is None or not isinstance(found.entry, Named):
        raise HTTPException(HTTPStatus.NOT_FOUND, "no such schedule, task or timer waits: it was sent, called or cancelled")
    demand_each(viewer, Role.OPERATOR, [found.team or ""])
    changelog = topics.build_topic_names(console.settings.app_id).changelog
    shards = topics.describe(console.cluster().admin, [changelog])[changelog].partitions
    record = cancelling(source_from_text(name), found.entry, changelog, shards, console.clock_ms())
    if record is None:
        raise ActionRefused("this one cannot be cancelled here: it only waits to be parked")
    console.audit.write("cancel", viewer.name, reason, [name], [found.team or ""])
    records = Records(client_config.records_config(console.settings))
    try:
        records.write(record.topic, record.partition, record.key, record.value).result(_WITHIN_S)
    finally:
        records.close()
