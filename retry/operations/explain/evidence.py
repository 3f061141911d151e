"""All that is known of one letter: in its topic, in the changelog, among the outcomes, and where it was sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from retry import clock
from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import Letter, read
from retry.delay_queue.entry_keys import NAMED, Lane
from retry.delay_queue.envelope_codec import make_codec
from retry.delay_queue.envelopes import Entry, Unopened
from retry.delay_queue.table.interface import Table
from retry.errors import TopicsInvalid
from retry.kafka import consumer_groups, offset_ranges, topics
from retry.kafka.target_probe import TargetProbe
from retry.operations import blocked_lanes, waiting_entries
from retry.operations.cluster import Cluster, LetterRange, read_first_records
from retry.operations.explain import search
from retry.operations.explain.search import SEARCH_S, SKEW_MS, DecisionRecord, Delivery, LetterLocation, read_own_headers
from retry.operations.json_lines import NO_TIMESTAMP
from retry.operations.listing import ReturnedRecords
from retry.operations.read_positions import find_read_offsets
from retry.operations.waiting_entries import WaitingEntry
from retry.policies.registry import Registry
from retry.record import CREATE_TIME, Record
from retry.telemetry.outcomes import PARK, RETRY, RETURN
from retry.telemetry.worker_records import RefusedRecord

# One letter as a record: read from its topic, or made again from its entry.

_NOTHING = "There is no letter at this offset: a transaction ended there or was aborted, or it was compacted away."


def record_from_topic(cluster: Cluster, location: LetterLocation) -> tuple[Any | None, str | None]:
    """Read the letter, or say why there is none; raises `TopicsInvalid` where its topic, partition or offset is not there."""
    (readable,) = cluster.spans(LetterRange(location.topic, location.partition))
    end = offset_ranges.ends(cluster.admin, location.topic, [location.partition])[location.partition]
    if location.offset >= end:
        last = f"the last offset of {location.topic}/{location.partition} is {end - 1}" if end else "the partition is empty"
        raise TopicsInvalid([f"there is no letter {location} yet: {last}"], "look at the offset")
    if location.offset < readable.start:
        partition = f"{location.topic}/{location.partition}"
        return None, f"It is gone from its topic by retention: {partition} begins at offset {readable.start}."
    if location.offset >= readable.stop:
        return None, "No reader sees it yet: it is part of a transaction, or behind one, that is still open."
    span = readable._replace(start=location.offset, stop=location.offset + 1)
    record = next((record for batch in read_first_records(cluster.reader, [span]) for record in batch), None)
    return record, _NOTHING if record is None else None


def record_from_entry(location: LetterLocation, entry: Entry) -> Record:
    """Make the letter again that an entry was made from, without the history that it brought along."""
    theirs = [header for header in entry.headers if header[0] not in names.OURS]
    timestamp = NO_TIMESTAMP if entry.timestamp_ms is None else (CREATE_TIME, entry.timestamp_ms)
    return Record(location, entry.key, entry.value, theirs, timestamp)


# What a letter was before operators edited or patched it: copies among the discarded, which are shown and never returned.

class FormerVersion(NamedTuple):
    """A letter as it was: the place of its copy, and the action that changed it, in hexadecimal."""

    place: LetterLocation
    action: str


def list_former_versions(cluster: Cluster, wanted: LetterLocation, written_ms: int) -> list[FormerVersion]:
    """List the former versions of one letter, written at `written_ms`, as far as they are found within 10 s."""
    topic = cluster.names.discarded
    about = topics.describe(cluster.admin, [topic], optional=True).get(topic)
    if about is None:
        return []
    spans = offset_ranges.find_spans_since(cluster.admin, topic, range(about.partitions), max(0, written_ms - SKEW_MS))
    batches = offset_ranges.read_batches(cluster.reader, spans, clock.Deadline(SEARCH_S))
    source, found = str(wanted).encode(), list[FormerVersion]()
    for message in (message for batch in batches for message in batch):
        ours = read_own_headers(message)
        if ours.get(names.SOURCE) == source and ours.get(names.ACTION_BEFORE) == names.SUPERSEDED:
            place = LetterLocation(topic, message.partition() or 0, message.offset() or 0)
            found.append(FormerVersion(place, (ours.get(names.ACTION) or b"").decode("utf-8", "replace")))
    return found


# The record that a letter became in the end, also where operators sent it somewhere else or returned it from where it rested.

Delivered = tuple[DecisionRecord, Delivery | None]


class DeliverySearch(NamedTuple):
    """Looks for what became of one letter; `is_returned` tells whether the record at some place was returned from there."""

    cluster: Cluster
    location: LetterLocation
    letter: Letter | None
    is_returned: Callable[[LetterLocation], bool]

    def find(self, decision: DecisionRecord, registry: Registry | None) -> Delivered:
        """Find the final decision, and the record that the letter became; None where no record is found."""
        delivered = self._find_delivery(decision)
        if delivered is None or delivered.returned:
            # What operators have decided stands, or what was decided of an entry that waited.
            acted = search.find_last_act(self.cluster, self.location, decision.taken_ms or 0)
            if acted is not None:
                decision = search.read_outcome_decision(acted)._replace(taken_ms=decision.taken_ms)
                delivered = self._find_delivery(decision)
            elif delivered is not None:
                return decision._replace(decision=search.RETURNED), None
        if delivered is None and decision.decision in (RETRY, RETURN):
            plans = registry.route(self.location.topic).plans() if registry else ()
            parking = sorted({self.cluster.names.parked, *(plan.park_to for plan in plans if plan.park_to)})
            return self._parked_since(decision, parking) or (decision, None)
        return decision, delivered

    def _find_delivery(self, decision: DecisionRecord) -> Delivery | None:
        return search.find_sent_record(self.cluster, self.location, self.letter, decision, self.is_returned)

    def _parked_since(self, decision: DecisionRecord, parking: list[str]) -> Delivered | None:
        """Find a letter that was to be retried and was parked while it waited: cancelled, or decided anew."""
        for topic in parking:
            # It left before it was due.
            parked = decision._replace(decision=PARK, due_ms=None, target=topic)
            found = self._find_delivery(parked)
            if found is not None and found.reason is not None:
                return parked._replace(reason=found.reason), found
        return None


class LetterEvidence(NamedTuple):
    """All that is known of one letter.

    Attributes:
      missing: why the letter is not read from its topic; None where it is.
      record: the letter as it can be read, from its topic or from its entry; None where neither has it.
      position: where the intake group goes on reading its partition; None where it has not begun.
      blocked: why nothing of its lane may go.
      forbidden: why the user of this command may not write to its target; only looked up where nothing else blocks it.
      workers: members of the group that shares the shards; None where that is not known.
      decision: what was decided, as the outcome or the entry says.
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


def gather_evidence(cluster: Cluster, location: LetterLocation, registry: Registry | None) -> LetterEvidence:
    """Look everywhere. Beyond reading the changelog it takes at most 10 s for each of outcomes, target and discarded letters.

    Raises:
      TopicsInvalid: there is no such topic, partition or offset, or a topic cannot be read.
    """
    record, missing = record_from_topic(cluster, location)
    # Before the changelog is read: what was taken in by then is in it.
    position = find_read_offsets(cluster).reached.get((location.topic, location.partition))
    with waiting_entries.open_changelog_table(cluster.settings) as table:
        waiting = waiting_entries.find_entry(table, *location, make_codec(cluster.settings))
        blocked = _find_block(cluster, registry, table, waiting, location.topic) if waiting else None
        if record is None and waiting and not isinstance(waiting.entry, Unopened):
            record = record_from_entry(location, waiting.entry)
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
        former = list_former_versions(cluster, location, (letter.timestamp_ms or 0) if letter else 0)
    return LetterEvidence(
        location, missing=missing, record=record, letter=letter, position=position, waiting=waiting, blocked=blocked,
        forbidden=forbidden, workers=workers, decision=decision, delivery=delivery, former=former,
        refused=search.find_refused_letters(cluster) if waiting else {},
    )  # fmt: skip


def _find_block(cluster: Cluster, registry: Registry | None, table: Table, waiting: WaitingEntry, topic: str) -> str | None:
    probe = TargetProbe(cluster.admin, writes=False)
    if registry is None or waiting.key[0] == NAMED:
        why = blocked_lanes.build_control_check(probe, table.controls)
    else:
        why = blocked_lanes.build_policy_check(registry, cluster.names, probe, table.controls)
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
    of_entry = None if waiting is None or isinstance(waiting.entry, Unopened) else search.read_entry_decision(waiting.entry)
    outcome = search.find_outcome(cluster, location, letter)
    if outcome is None:
        return of_entry
    told = search.read_outcome_decision(outcome)
    # A letter that was parked, and waits to be retried since an operator returned it.
    returned = of_entry is not None and told.decision == "park" and of_entry.decision != "park"
    return of_entry if returned else told
