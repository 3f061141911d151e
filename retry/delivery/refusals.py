"""Who is to blame for an aborted transaction: targets that refuse whatever they are given, and single entries.

One record can be too large while its topic takes others; any other refusal counts for its whole target. Where the topic of what
goes beside a delivery refuses, it counts for every entry that has something for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from retry.delay_queue.envelopes import Entry, Named
from retry.delivery.due_batch import Admitting
from retry.delivery.transaction_batch import with_side_records
from retry.kafka.interface import KafkaError
from retry.kafka.refused_records import Anchor

_TOO_LARGE = KafkaError.MSG_SIZE_TOO_LARGE


class Rehearsing(Protocol):
    """Publishes records in transactions that are thrown away; see `retry.kafka.refused_records`."""

    def rehearse(
        self, entries: Iterable[Entry], now_ms: int, partitions: Sequence[int] | None = None, anchor: Anchor | None = None
    ) -> dict[int, KafkaError]: ...


class Refusals(NamedTuple):
    """Targets that take nothing, and by position entries of other targets that are not taken; and why."""

    targets: dict[str, str]
    entries: dict[int, str]


def diagnose(entries: list[Entry], writer: Rehearsing, gate: Admitting, now_ms: int, anchor: Anchor | None) -> Refusals:
    """Which targets and which entries are refused; both empty where nobody is.

    What the cluster says of the targets, and of what their topics take, comes first: it takes milliseconds, a rehearsal seconds.
    """
    if targets := gate.look({e.destination for e in entries}):
        return Refusals(targets, {})
    if oversized := too_large(entries, gate.size_limits.look):
        return Refusals({}, oversized)
    records, partitions = with_side_records(entries)
    errors = writer.rehearse(records, now_ms, partitions, anchor)
    for n, error in errors.items():
        if error.code() == _TOO_LARGE:
            gate.size_limits.refused(records[n])
    beside = len(records) - len(entries)
    of_entries = {n - beside: error for n, error in errors.items() if n >= beside}
    targets = {entries[n].destination: error.str() for n, error in of_entries.items() if error.code() != _TOO_LARGE}
    refused = {n: error.str() for n, error in of_entries.items()}
    refused |= _refused_beside(entries, {n: error for n, error in errors.items() if n < beside})
    return Refusals(targets, {n: why for n, why in refused.items() if entries[n].destination not in targets})


def too_large(entries: list[Entry], larger: Callable[[list[Entry]], dict[int, str]]) -> dict[int, str]:
    """Entries that are too large for their topics, or have something beside them that is: by position, and why.

    Args:
      larger: says the same of records.
    """
    records, _ = with_side_records(entries)
    of = [n for n, e in enumerate(entries) if isinstance(e, Named) for _ in e.also]
    return {at - len(of) if at >= len(of) else of[at]: why for at, why in larger(records).items()}


def _refused_beside(entries: list[Entry], errors: dict[int, KafkaError]) -> dict[int, str]:
    """Entries of which something that goes beside them was refused, by position."""
    beside = [(n, also.topic) for n, e in enumerate(entries) if isinstance(e, Named) for also in e.also]
    topics = {beside[at][1]: error.str() for at, error in errors.items() if error.code() != _TOO_LARGE}
    single = {beside[at][0]: error.str() for at, error in errors.items()}
    return {n: topics[topic] for n, topic in beside if topic in topics} | single
