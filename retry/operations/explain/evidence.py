"""All that is known of one letter: in its topic, in the changelog, among the outcomes, and where it was sent."""

from __future__ import annotations

from typing import Any, NamedTuple

from retry.delay_queue import control_records
from retry.operations.explain import search
from retry.operations import waiting_entries
from retry.operations.cluster import Cluster, Part
from retry.operations.json_lines import Record
from retry.operations.explain.search import Decided, Place, Sent
from retry.operations.waiting_entries import Waiting
from retry.delay_queue.entry import NAMED, Entry
from retry.errors import TopicsInvalid
from retry.delivery.admission import Gate
from retry.delay_queue.lane import Lane
from retry.kafka import consumer_groups, offset_ranges
from retry.kafka.target_probe import Targets
from retry.policies.registry import Registry
from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import Letter, read
from retry.delay_queue.table.interface import Table

_NOTHING = "There is no letter at this offset: a transaction ended there or was undone, or it was compacted away."


class Known(NamedTuple):
    """What is known of a letter.

    Attributes:
      missing: why the letter is not read from its topic; None where it is.
      record: the letter as it can be read, from its topic or from its entry; None where neither has it.
      letter: the same, understood.
      position: where the intake group goes on reading its partition; None where it has not begun.
      waiting: its entry.
      held: why nothing of its lane may go.
      workers: members of the group that shares the shards.
      decided: as the outcome or the entry says.
      sent: the record that it became.
    """

    place: Place
    missing: str | None
    record: Any | None
    letter: Letter | None
    position: int | None
    waiting: Waiting | None
    held: str | None
    workers: int
    decided: Decided | None
    sent: Sent | None


def known(cluster: Cluster, wanted: Place, registry: Registry | None) -> Known:
    """Look everywhere. Takes seconds, and no longer than 10 s for each of outcomes and target beyond reading the changelog.

    Args:
      registry: of the policy file, where there is one.

    Raises:
      TopicsInvalid: there is no such topic, partition or offset, or a topic cannot be read.
    """
    record, missing = _record(cluster, wanted)
    # Asked before the changelog is read: what was taken in by then is in it.
    position = consumer_groups.position(cluster.admin, cluster.names.intake_group, wanted.topic, wanted.partition)
    with waiting_entries.folded(cluster.settings) as table:
        found = waiting_entries.of_source(table, *wanted)
        held = _held(cluster, registry, table, found, wanted.topic) if found else None
    if record is None and found:
        record = _from_entry(wanted, found.entry)
    letter = None if record is None else read(record, registry.route(wanted.topic).aliases if registry else None)
    decided = None
    # Of what came in by a door there are no outcomes.
    named = found is not None and found.key[0] == NAMED
    if not named and (found or (position is not None and position > wanted.offset)):
        outcome = search.outcome(cluster, wanted, letter)
        decided = search.of_outcome(outcome) if outcome else search.of_entry(found.entry) if found else None
    sent = search.sent(cluster, wanted, letter, decided) if decided and not found else None
    workers = consumer_groups.members(cluster.admin, cluster.names.table_group)
    return Known(wanted, missing, record, letter, position, found, held, workers, decided, sent)


def _record(cluster: Cluster, wanted: Place) -> tuple[Any | None, str | None]:
    """The letter, or why there is none to be read."""
    (whole,) = cluster.spans(Part(wanted.topic, wanted.partition))
    end = offset_ranges.end(cluster.admin, wanted.topic, wanted.partition)
    if wanted.offset >= end:
        last = f"the last offset of {wanted.topic}/{wanted.partition} is {end - 1}" if end else "the partition is empty"
        raise TopicsInvalid([f"there is no letter {wanted} yet: {last}"], "look at the offset")
    if wanted.offset < whole.start:
        return None, f"It is gone from its topic by retention: {wanted.topic}/{wanted.partition} begins at offset {whole.start}."
    if wanted.offset >= whole.stop:
        return None, "No reader sees it yet: it is part of a transaction, or behind one, that is still open."
    span = whole._replace(start=wanted.offset, stop=wanted.offset + 1)
    found = next((m for batch in offset_ranges.batches(cluster.reader, [span]) for m in batch), None)
    return found, None if found else _NOTHING


def _from_entry(wanted: Place, entry: Entry) -> Record:
    """The letter that an entry was made from, as far as it is a copy of it: without the history that it brought along."""
    theirs = [header for header in entry.headers if header[0] not in names.OURS]
    return Record(wanted, entry.key, entry.value, theirs, entry.timestamp_ms)


def _held(cluster: Cluster, registry: Registry | None, table: Table, found: Waiting, topic: str) -> str | None:
    lane = Lane(found.entry.team, topic, found.entry.destination)
    if registry is None or found.key[0] == NAMED:
        return control_records.paused(table.controls, *lane)
    gate = Gate(registry, cluster.names.parked, Targets(cluster.admin).closed, lambda: 1.0)
    return gate.why_not(lane, table.controls)
