"""What `retry explain` says of a letter, from what the replica and the letter's record tell: no topic is searched for it."""

from __future__ import annotations

from retry.console.replica.rows import LetterRow
from retry.console.web.app import Console
from retry.dead_letters import retry_headers
from retry.dead_letters.dead_letter import read
from retry.delay_queue import entry_keys
from retry.delay_queue.lane import Lane
from retry.errors import RetryError
from retry.kafka import consumer_groups
from retry.kafka.interface import KafkaException
from retry.kafka.target_probe import TargetProbe
from retry.operations import blocked_lanes
from retry.operations.cluster import Cluster
from retry.operations.explain import letter_record, search
from retry.operations.explain.evidence import LetterEvidence
from retry.operations.explain.explanation import explain_evidence
from retry.operations.explain.search import DecisionRecord, Delivery, LetterLocation
from retry.operations.letter_filter.glob import glob
from retry.operations.letter_filter.syntax import Term, all_of
from retry.operations.letters.found_letter import FoundLetter
from retry.operations.waiting_entries import WaitingEntry
from retry.policies.registry import Registry
from retry.record import Record
from retry.telemetry.outcomes import DISCARD

_AHEAD_MAX = 100


def sentences(console: Console, row: LetterRow, found: FoundLetter) -> dict[str, list[str]]:
    """Explain a letter in sentences, by section; empty if it is of no dead-letter topic, or the brokers do not answer."""
    location = _location(row)
    if row.kind != "letter" or location is None:
        return {}
    try:
        return _sentences(console, row, found, location)
    except (RetryError, KafkaException, TimeoutError):
        return {}


def _sentences(console: Console, row: LetterRow, found: FoundLetter, location: LetterLocation) -> dict[str, list[str]]:
    cluster, registry, now_ms = console.cluster(), console.registry(), console.clock_ms()
    entry = found.entry
    record = letter_record.from_entry(location, entry) if entry else _as_it_came(location, found)
    letter = read(record, registry.route(location.topic).aliases)
    waiting = None if entry is None else WaitingEntry(_build_waiting_key(row, location), entry, _head(console, row))
    forecast = next(cluster.inspector(registry).decide_letters([record], now_ms)) if letter.copyable() else None
    evidence = LetterEvidence(
        location, missing=None, record=record, letter=letter, position=location.offset + 1, waiting=waiting,
        blocked=_find_block(console, cluster, registry, row), forbidden=None,
        workers=consumer_groups.count_members(cluster.admin, cluster.names.table_group), decision=_decision(row, found),
        delivery=_delivery(row, found),
    )  # fmt: skip
    return explain_evidence(evidence, registry, forecast, now_ms).sentences


def _location(row: LetterRow) -> LetterLocation | None:
    if row.topic is None or row.partition is None or row.offset is None:
        return None
    return LetterLocation(row.topic, row.partition, row.offset)


def _as_it_came(location: LetterLocation, found: FoundLetter) -> Record:
    theirs = [header for header in found.headers if header[0] not in retry_headers.OURS]
    return Record(location, found.key, found.value, theirs, found.record.timestamp())


def _build_waiting_key(row: LetterRow, location: LetterLocation) -> bytes:
    lane = entry_keys.lane(row.team or "", location.topic, row.target)
    stem = entry_keys.key_stem(location.topic, location.partition)
    return entry_keys.build_key(row.due_at_ms or 0, stem, location.offset, lane)


def _head(console: Console, row: LetterRow) -> bytes | None:
    """The key of the letter that it waits behind."""
    if not row.behind or row.key is None:
        return None
    same = (("topic", row.topic or ""), ("key", row.key.decode("utf-8", "replace")), ("state", "waiting"))
    meant = all_of([Term(field, "", glob([text])) for field, text in same])
    for ahead in console.replica.list_letters(None, meant, None, _AHEAD_MAX).rows:
        location = _location(ahead)
        if not ahead.behind and ahead.team == row.team and location is not None:
            return _build_waiting_key(ahead, location)
    return None


def _find_block(console: Console, cluster: Cluster, registry: Registry, row: LetterRow) -> str | None:
    if row.state != "waiting":
        return None
    controls = {key: value for shard in console.replica.controls() for key, value in shard.items()}
    why = blocked_lanes.by_policies(registry, cluster.names, TargetProbe(cluster.admin, writes=False), controls)
    return why(Lane(row.team or "", row.topic or "", row.target))


def _decision(row: LetterRow, found: FoundLetter) -> DecisionRecord:
    if found.entry is not None:
        return search.of_entry(found.entry)._replace(failed_ms=row.failed_ms)
    what = DISCARD if row.state == "discarded" else "park"
    return DecisionRecord(
        row.lineage or "", row.team or "", row.policy or "", attempt=(row.attempt or 0) + 1, first_failed_ms=row.first_failed_ms,
        failed_ms=row.failed_ms, taken_ms=None, decision=what, reason=row.reason, due_ms=None, target=row.target,
    )  # fmt: skip


def _delivery(row: LetterRow, found: FoundLetter) -> Delivery | None:
    return Delivery(found.place, None, row.reason, row.action, row.attempt) if found.entry is None else None
