"""The audit: who did what to which letters.

Workers write a record for each slice of an action, with the effect. One of an order (hold, resume, cancel) is written with the
order, in the same form and with -1 for the shard. What people do in the console that is no action (they are shown payloads, they
pause what is sent) the console writes before it takes effect, like that and without the id of an action, under the key `console`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from retry.delay_queue.action_records import CLOCKS_MS
from retry.delivery.act_records import DONE
from retry.errors import TopicsInvalid
from retry.format_versions import Number, make_json_decoder
from retry.kafka import client_config, offset_ranges, topics
from retry.kafka.interface import AdminClient
from retry.operations.explain.search import is_location
from retry.settings import Settings
from retry.telemetry.unreadable_records import UNREADABLE

PERSON_KEY, NO_SHARD = b"console", -1


class AuditLetter(msgspec.Struct, frozen=True):
    """One letter, and what became of it.

    Attributes:
      result: `done`, or why nothing was done.
      letter: `topic/partition/offset` of the dead letter; empty where that is not known.
      due_ms: when the letter was due; None where it rested.
      parked: `topic/partition/offset` of the record that rested; None where the letter waited.
      target, new_due_ms, new_target: where the letter was to go; when it is due since the action, and where it goes.
      before, after: of an edit or a patch, digests of what came with the letter; see `retry.delivery.act_records`.
    """

    result: str
    letter: str = ""
    due_ms: Number | None = None
    parked: str | None = None
    target: str | None = None
    new_due_ms: Number | None = None
    new_target: str | None = None
    before: str | None = None
    after: str | None = None


class AuditRecord(msgspec.Struct, frozen=True):
    """One record of the audit: an action's letters of one transaction; with `shard` -1 an order, or an act in the console."""

    action: str
    kind: str
    by: str
    at_ms: Number
    shard: Number
    letters: list[AuditLetter]
    reason: str = ""
    # Empty where it was not written down whose letters these are.
    teams: list[str] = []


decode_audit = make_json_decoder(AuditRecord, "record of the audit")


class Audit(NamedTuple):
    """The audit topic, as commands read it."""

    settings: Settings
    admin: AdminClient

    def read_records(self, since_ms: int, action: str = "") -> Iterator[AuditRecord]:
        """Read the records since `since_ms`, of all actions or of one; raises `TopicsInvalid` where they cannot be read."""
        topic = topics.build_topic_names(self.settings.app_id).audit
        about = topics.describe(self.admin, [topic]).get(topic)
        if about is None:
            raise TopicsInvalid([f"{topic} is missing"], "retry topics create")
        spans = offset_ranges.find_spans_since(self.admin, topic, range(about.partitions), since_ms - CLOCKS_MS)
        for messages in offset_ranges.read_batches(client_config.build_reader_config(self.settings), spans):
            for message in messages:
                if action and (message.key() or b"") != action.encode():
                    continue
                try:
                    found = decode_audit(message.value() or b"")
                except ValueError as error:
                    UNREADABLE.pass_over(topic, message.partition(), message.offset(), error)
                    continue
                if found.at_ms >= since_ms:
                    yield found


def encode_person_act(
    kind: str, by: str, reason: str, at_ms: int, letters: Sequence[str], teams: Iterable[str], action: str = ""
) -> bytes:
    """Encode the audit record of what a person does in the console, or orders of an action, whose id is in hexadecimal.

    The `letters` are names, as `retry letters` prints them.
    """
    record = AuditRecord(
        action, kind, by, at_ms=at_ms, shard=NO_SHARD, letters=[_parse_letter_name(name) for name in letters], reason=reason,
        teams=sorted(teams),
    )  # fmt: skip
    return msgspec.json.encode({"v": 1, **msgspec.to_builtins(record)})


def _parse_letter_name(name: str) -> AuditLetter:
    if is_location(name):
        return AuditLetter(DONE, parked=name)
    due_ms, _, letter = name.partition("/")
    return AuditLetter(DONE, letter, int(due_ms))

