"""Who is to blame for an aborted transaction: targets that refuse whatever they are given, and single entries.

A record can be refused for what it is, while the topic takes others; any other refusal counts for its whole target. Where the
topic of what goes beside a delivery refuses, it counts for every entry that has something for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from retry.delay_queue.envelopes import Entry, Named
from retry.delivery.admission import Admission
from retry.delivery.transaction_batch import list_published
from retry.kafka.interface import KafkaError, TransactionalProducer
from retry.kafka.record_limits import RecordRefusal, RefusedFor, find_cause
from retry.kafka.refused_records import Anchor

# Says of records, by position, which are refused and why.
FindRefused = Callable[[list[Entry], int], Mapping[int, RecordRefusal]]


class Refusals(NamedTuple):
    """Targets that take nothing, and by position entries of other targets that are not taken; and why."""

    targets: dict[str, str]
    entries: dict[int, RecordRefusal]


def diagnose(
    entries: list[Entry], writer: TransactionalProducer, admission: Admission, now_ms: int, anchor: Anchor | None,
    compressing: Callable[[], TransactionalProducer] | None = None,
) -> Refusals:  # fmt: skip
    """Find out which targets and which entries are refused; both empty where nobody is.

    What the cluster says comes first: it takes milliseconds, a rehearsal seconds. `compressing` opens a producer for what a topic
    takes only compressed, which is not refused then.
    """
    if targets := admission.probe_targets({e.destination for e in entries}):
        return Refusals(targets, {})
    limits, may_compress = admission.record_limits, compressing is not None
    if refused := find_refused_entries(entries, partial(limits.probe_records, may_compress=may_compress), now_ms):
        return Refusals({}, refused)
    records, partitions = list_published(entries)
    compressed = compressing is not None and limits.needs_compression(records)
    rehearsing = compressing() if compressing is not None and compressed else writer
    errors = rehearsing.rehearse_entries(records, now_ms, partitions, anchor)
    causes = {n: _cause(error, records[n], now_ms) for n, error in errors.items()}
    for n, cause in causes.items():
        if cause is not None:
            limits.learn_refusal(records[n], cause, now_ms, compressed=compressed)
    if may_compress and not compressed and limits.needs_compression(records):
        # Brokers did not tell what their topics take; what is refused compressed, too, is found at the next try.
        unsendable = limits.find_refused(records, now_ms, may_compress=True)
        errors = {n: error for n, error in errors.items() if causes[n] is not RefusedFor.SIZE or n in unsendable}
        causes = {n: causes[n] for n in errors}
    beside = _owners_of_side_records(entries)
    at = len(beside)
    targets = {records[n].destination: error.str() for n, error in errors.items() if n >= at and causes[n] is None}
    refused = _refused_beside(beside, records, {n: (causes[n], error.str()) for n, error in errors.items() if n < at})
    refused |= {n - at: RecordRefusal(cause, errors[n].str()) for n, cause in causes.items() if n >= at and cause is not None}
    return Refusals(targets, {n: why for n, why in refused.items() if entries[n].destination not in targets})


def find_refused_entries(entries: list[Entry], find_refused: FindRefused, now_ms: int) -> dict[int, RecordRefusal]:
    """Find entries that their topics refuse, or whose side records are refused; return why, by the entry's position."""
    records, _ = list_published(entries)
    beside = _owners_of_side_records(entries)
    found = find_refused(records, now_ms)
    refused = {beside[at]: why for at, why in found.items() if at < len(beside)}
    return refused | {at - len(beside): why for at, why in found.items() if at >= len(beside)}


def _cause(error: KafkaError, record: Entry, now_ms: int) -> RefusedFor | None:
    cause = find_cause(error)
    # Whoever refuses the time of now refuses everything: its clock, or this one, is wrong.
    has_own_time = record.timestamp_ms is not None and record.timestamp_ms < now_ms
    return None if cause is RefusedFor.TIME and not has_own_time else cause


def _owners_of_side_records(entries: list[Entry]) -> list[int]:
    """Positions of the entries that side records go with, one for each record in the order in which they are published."""
    return [n for n, e in enumerate(entries) if isinstance(e, Named) for _ in e.also]


def _refused_beside(
    beside: list[int], records: list[Entry], errors: Mapping[int, tuple[RefusedFor | None, str]]
) -> dict[int, RecordRefusal]:
    """Entries of which something that goes beside them was refused, by position."""
    closed = {records[at].destination: why for at, (cause, why) in errors.items() if cause is None}
    of_topics = {n: closed[topic] for at, n in enumerate(beside) if (topic := records[at].destination) in closed}
    refused = {n: RecordRefusal(RefusedFor.SIDE_TOPIC, why) for n, why in of_topics.items()}
    return refused | {beside[at]: RecordRefusal(cause, why) for at, (cause, why) in errors.items() if cause is not None}
