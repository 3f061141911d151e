"""The audit: who did what to which letters, as workers wrote it with the effect, a record for each slice of an action."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from retry.delay_queue.action_records import CLOCKS_MS
from retry.errors import TopicsInvalid
from retry.kafka import client_config, offset_ranges, topics
from retry.kafka.interface import AdminClient
from retry.settings import Settings


class AuditLetter(msgspec.Struct, frozen=True):
    """One letter, and what became of it.

    Attributes:
      result: `done`, or why nothing was done.
      letter: `topic/partition/offset` of the dead letter; empty where that is not known.
      due_ms: when it was due; None where it rested.
      parked: the same of the record that rested; None where it waited.
      target, new_due_ms, new_target: where it was to go; when it is due since then, and where it goes.
    """

    result: str
    letter: str = ""
    due_ms: int | None = None
    parked: str | None = None
    target: str | None = None
    new_due_ms: int | None = None
    new_target: str | None = None


class AuditRecord(msgspec.Struct, frozen=True):
    """What one transaction did for an action."""

    action: str
    kind: str
    by: str
    at_ms: int
    shard: int
    letters: list[AuditLetter]
    reason: str = ""


class Audit(NamedTuple):
    """The topic, as far as commands read it."""

    settings: Settings
    admin: AdminClient

    def records(self, since_ms: int, action: str = "") -> Iterator[AuditRecord]:
        """Those that were written from `since_ms` on, of one action or of all.

        Raises:
          TopicsInvalid: there is no such topic, it cannot be read, or somebody else writes there.
        """
        topic = topics.names(self.settings.app_id).audit
        about = topics.describe(self.admin, [topic]).get(topic)
        if about is None:
            raise TopicsInvalid([f"{topic} is missing"], "retry topics create")
        spans = offset_ranges.since(self.admin, topic, range(about.partitions), since_ms - CLOCKS_MS)
        for messages in offset_ranges.batches(client_config.reader_config(self.settings), spans):
            for message in messages:
                if action and (message.key() or b"") != action.encode():
                    continue
                found = _read(message.value() or b"", f"{topic}/{message.partition()}/{message.offset()}")
                if found.at_ms >= since_ms:
                    yield found


def _read(value: bytes, where: str) -> AuditRecord:
    try:
        return msgspec.json.decode(value, type=AuditRecord)
    except msgspec.MsgspecError as error:
        raise TopicsInvalid([f"{where} cannot be read: {error}"], "find out who else writes there") from error
