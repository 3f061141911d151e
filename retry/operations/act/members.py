"""The letters of an action, and what became of each: from the audit, from slices that are not worked off, from what waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from retry.delay_queue import action_records, entry_keys, returned_offsets
from retry.delay_queue.action_records import CLOCKS_MS
from retry.delivery.act import GONE
from retry.operations import waiting_entries
from retry.operations.act.audit import Audit, AuditLetter
from retry.operations.act.overview import ActionOverview
from retry.operations.control_requests import ShardNumbers
from retry.settings import Settings

# Not done under the key that the action names, and waiting under another one now.
MOVED, NOT_YET = "moved", "not_yet"


class MemberResult(NamedTuple):
    """One letter of an action.

    Attributes:
      at_ms: when the result was written; None where there is none yet.
      told: what the audit says of it; `moved` and `not_yet` are results that it does not know.
    """

    at_ms: int | None
    shard: int
    told: AuditLetter


def list_member_results(settings: Settings, shards: ShardNumbers, about: ActionOverview) -> Iterator[MemberResult]:
    """Every letter of an action, those with a result first.

    Raises:
      TopicsInvalid: a topic is missing or cannot be read.
    """
    audit, since_ms, action_id = Audit(settings, shards.admin), about.action.asked_at_ms - CLOCKS_MS, about.id.hex()
    records = lambda: audit.read_records(since_ms, action_id)  # noqa: E731
    # Read twice, so that only letters that are gone are held in memory.
    gone = {told.letter for record in records() for told in record.letters if told.result == GONE} if about.tally.gone else set()
    elsewhere = _find_waiting(settings, gone) if gone else {}
    for record in records():
        for told in record.letters:
            now = elsewhere.get(told.letter) if told.result == GONE else None
            yield MemberResult(record.at_ms, record.shard, told if now is None else now)
    if about.left:
        yield from _not_yet(shards, about)


def _find_waiting(settings: Settings, letters: set[str]) -> dict[str, AuditLetter]:
    """Find which of these letters (`topic/partition/offset`) wait under another key now, by letter."""
    found = {}
    for _, table in waiting_entries.load_shard_tables(settings):
        for where, entry in waiting_entries.entries(table):
            name = f"{where.topic}/{where.partition}/{where.offset}"
            if name in letters:
                found[name] = AuditLetter(
                    MOVED, name, where.due_at_ms, new_due_ms=where.due_at_ms, new_target=entry.destination
                )
    return found


def _not_yet(shards: ShardNumbers, about: ActionOverview) -> Iterator[MemberResult]:
    for shard, slices in enumerate(shards.list_records(action_records.slices_of(about.id))):
        for value in slices.values():
            for member in action_records.decode_slice(value).members:
                if returned_offsets.is_place(member.key):
                    told = AuditLetter(NOT_YET, parked=returned_offsets.describe_place(member.key, about.action.parking))
                else:
                    due_at_ms, topic, partition, offset = entry_keys.source(member.key)
                    told = AuditLetter(NOT_YET, f"{topic}/{partition}/{offset}", due_at_ms)
                yield MemberResult(None, shard, told)
