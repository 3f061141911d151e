"""Recurring tasks that wait for their next run, as definitions have them; read from the changelog by any process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest
from typing import Any, NamedTuple

import msgspec

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry, Named
from retry.errors import SchemaUnavailable, TaskInvalid
from retry.kafka import client_config, topics
from retry.kafka.interface import Message
from retry.kafka.schema_registry import Schemas
from retry.kafka.topic_ends import newest_records
from retry.policies.tasks import TEAM
from retry.record import Headers
from retry.scheduling.tasks import definition
from retry.scheduling.tasks.formats import Reader
from retry.settings import Settings

# Of each partition of the output topic.
_SEARCHED_MAX = 2_000
_RUNS_MAX = 5


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
        """Pick the recurring tasks from waiting entries, in the same order."""
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
        return entry_keys.shard_of(entry_keys.hash_name(TEAM, task.defined_at.topic, key), shards)

    def _format_task_name(self, key: bytes) -> str | None:
        try:
            return "/".join(definition.parse_key_names(self._reader.decode_key(key)))
        except (TaskInvalid, SchemaUnavailable):
            return None


def count_shards(settings: Settings) -> int:
    name = topics.build_topic_names(settings.app_id).changelog
    return topics.describe(client_config.admin(settings), [name])[name].partitions


def last_runs(settings: Settings, task: Task) -> list[SentRun]:
    """List the last runs that were sent, the newest first; only the newest records of the output topic are searched."""
    records = newest_records(settings, task.entry.destination, lambda _partitions: _SEARCHED_MAX)
    runs = (sent_run(message, headers) for message, headers in records if message.key() == task.entry.key)
    return nlargest(_RUNS_MAX, filter(None, runs), key=lambda run: run.due_ms)


def sent_run(message: Message, headers: Headers) -> SentRun | None:
    """Read a run that was sent from the headers of its record; None where the record is no run."""
    by_name = dict(headers)
    number, due_ms = (by_name.get(name) or b"" for name in (envelopes.RUN, envelopes.DUE_MS))
    if not all(len(digits) < 20 and digits.isdigit() for digits in (number, due_ms)):
        return None
    return SentRun(int(number), int(due_ms), message.topic() or "", message.partition() or 0, message.offset() or 0)
