"""All that is known of one letter: in its topic, in the changelog, among the outcomes, and where it was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import Letter, read
from retry.delay_queue.entry_keys import NAMED
from retry.delay_queue.envelope_codec import make_codec
from retry.delay_queue.envelopes import Unopened
from retry.delay_queue.lane import Lane
from retry.delay_queue.table.interface import Table
from retry.kafka import consumer_groups
from retry.kafka.target_probe import TargetProbe
from retry.operations import blocked_lanes, waiting_entries
from retry.operations.cluster import Cluster
from retry.operations.explain import letter_record, search
from retry.operations.explain.deliveries import DeliverySearch
from retry.operations.explain.former_versions import FormerVersion, former_versions
from retry.operations.explain.search import DecisionRecord, Delivery, LetterLocation
from retry.operations.letters.returned_records import ReturnedRecords
from retry.operations.read_positions import find_read_offsets
from retry.operations.waiting_entries import WaitingEntry
from retry.policies.registry import Registry
from retry.telemetry.worker_records import RefusedRecord


class LetterEvidence(NamedTuple):
    """All that is known of one letter.

    Attributes:
      missing: why the letter is not read from its topic; None where it is.
      record: the letter as it can be read, from its topic or from its entry; None where neither has it.
      letter: `record`, parsed as a dead letter.
      position: where the intake group goes on reading its partition; None where it has not begun.
      waiting: its entry; None where it does not wait.
      blocked: why nothing of its lane may go.
      forbidden: why the user of this command may not write to its target; only looked up where nothing else blocks it.
      workers: members of the group that shares the shards; None where that is not known.
      decision: what was decided, as the outcome or the entry says.
      delivery: the record that the letter became.
      former: copies of the letter from before operators changed it.
      refused: letters that workers say are refused by their topics, one by one; only looked up where the letter waits.
    """

    location: LetterLocation
    missing: str | None
    record: Any | None
    letter: Letter | None
    position: int | None
    waiting: WaitingEntry | None
    blocked: str | None
    forbidden: str | None
    workers: int | None
    decision: DecisionRecord | None
    delivery: Delivery | None
    former: Sequence[FormerVersion] = ()
    refused: Mapping[str, RefusedRecord] = {}


def evidence_of(cluster: Cluster, location: LetterLocation, registry: Registry | None) -> LetterEvidence:
    """Look everywhere. Takes seconds, and no longer than 10 s for each of outcomes, target and discarded letters beyond reading
    the changelog.

    Args:
      registry: of the policy file, where there is one.

    Raises:
      TopicsInvalid: there is no such topic, partition or offset, or a topic cannot be read.
    """
    record, missing = letter_record.from_topic(cluster, location)
    # Before the changelog is read: what was taken in by then is in it.
    position = find_read_offsets(cluster).reached.get((location.topic, location.partition))
    with waiting_entries.open_changelog_table(cluster.settings) as table:
        waiting = waiting_entries.of_source(table, *location, make_codec(cluster.settings))
        blocked = _find_block(cluster, registry, table, waiting, location.topic) if waiting else None
        if record is None and waiting and not isinstance(waiting.entry, Unopened):
            record = letter_record.from_entry(location, waiting.entry)
        letter = None if record is None else read(record, registry.route(location.topic).aliases if registry else None)
        taken_in = waiting is not None or (position is not None and position > location.offset)
        decision = _decision(cluster, location, letter, waiting) if taken_in else None
        delivery = None
        if decision and not waiting:
            wanted = DeliverySearch(cluster, location, letter, ReturnedRecords(cluster, table.get).is_record_returned)
            decision, delivery = wanted.find(decision, registry)
    forbidden = _forbidden(cluster, waiting.entry.destination) if waiting and not blocked else None
    workers = consumer_groups.count_members(cluster.admin, cluster.names.table_group)
    former = []
    if names.ACTION in dict(waiting.entry.headers) if waiting else delivery and delivery.action:
        former = former_versions(cluster, location, (letter.timestamp_ms or 0) if letter else 0)
    return LetterEvidence(
        location, missing=missing, record=record, letter=letter, position=position, waiting=waiting, blocked=blocked,
        forbidden=forbidden, workers=workers, decision=decision, delivery=delivery, former=former,
        refused=search.find_refused_letters(cluster) if waiting else {},
    )  # fmt: skip


def _find_block(cluster: Cluster, registry: Registry | None, table: Table, waiting: WaitingEntry, topic: str) -> str | None:
    probe = TargetProbe(cluster.admin, writes=False)
    if registry is None or waiting.key[0] == NAMED:
        why = blocked_lanes.by_controls(probe, table.controls)
    else:
        why = blocked_lanes.by_policies(registry, cluster.names, probe, table.controls)
    return why(Lane(waiting.entry.team, topic, waiting.entry.destination))


def _forbidden(cluster: Cluster, destination: str) -> str | None:
    is_webhook = "://" in destination
    return None if is_webhook else TargetProbe(cluster.admin).find_closed({destination}).get(destination)


def _decision(
    cluster: Cluster, location: LetterLocation, letter: Letter | None, waiting: WaitingEntry | None
) -> DecisionRecord | None:
    """Return the decision at intake, by the outcome or else by the entry; None where neither tells."""
    if waiting is not None and waiting.key[0] == NAMED:
        return None  # Of what came in by another entry source there are no outcomes.
    of_entry = None if waiting is None or isinstance(waiting.entry, Unopened) else search.of_entry(waiting.entry)
    outcome = search.outcome(cluster, location, letter)
    if outcome is None:
        return of_entry
    told = search.of_outcome(outcome)
    # A letter that was parked, and waits to be retried since an operator returned it.
    returned = of_entry is not None and told.decision == "park" and of_entry.decision != "park"
    return of_entry if returned else told
