"""Finds which records brokers refuse: transactions that are thrown away are tried, until what is left of them is taken.

Brokers name a record that is too large, and a topic that is gone. Of a record that is refused for what it is they mostly name the
whole batch in which it came (librdkafka 2.16: where one record of a batch is at fault, all of it is named; where several are,
each of these): then half of the batch is tried, and half of that. The transaction coordinator names nobody: where one topic may
not be written to, it refuses the whole transaction. Then half of its topics are tried, and half of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError

from retry.clock import Deadline
from retry.delay_queue.envelopes import Entry
from retry.kafka.batch_size_limits import BatchSizeLimits
from retry.kafka.record_limits import RefusedFor, batch_bytes, cause_of

Refused = dict[int, KafkaError]


class RehearsedRecord(NamedTuple):
    """A record of a rehearsal: where its caller has it, what it is, and to which partition it goes (-1: its key decides)."""

    position: int
    entry: Entry
    partition: int


class Anchor(NamedTuple):
    """A delete that each transaction begins with; it is thrown away with it."""

    topic: str
    partition: int
    key: bytes


class Suspects(NamedTuple):
    """Records that were refused together; at least one of them is to blame.

    Attributes:
      positions: of two records or more.
    """

    positions: frozenset[int]
    error: KafkaError


class RehearsalResult(NamedTuple):
    """How one transaction went that was thrown away.

    Attributes:
      taken: whether everything was.
      refused: by position, who was refused by name.
      transaction_error: why all of it was, where nobody was named.
      suspects: who was refused together.
    """

    taken: bool
    refused: Refused
    transaction_error: KafkaError | None = None
    suspects: Sequence[Suspects] = ()


Attempt = Callable[[list[RehearsedRecord]], RehearsalResult]


def refusals(records: list[RehearsedRecord], attempt: Attempt, limits: BatchSizeLimits, deadline: Deadline) -> Refused:
    """Find by position which records are refused and why; of a topic that refuses whatever it is given, one is named.

    Where the time is over before one record is singled out, all are named that may be to blame.
    """
    refused: Refused = {}
    left = records
    while left and not deadline.has_passed():
        result = attempt(left)
        if result.taken:
            break
        named = _by_halves(left, result, attempt, deadline)
        entries = {record.position: record.entry for record in left}
        together = {n for n, error in named.items() if _is_too_large(error) and not limits.alone(entries[n])}
        limits.note_refused(entries[n] for n in together)
        refused |= {n: error for n, error in named.items() if n not in together}
        if not limits.compressed:
            refused |= _no_smaller(left, {n: error for n, error in refused.items() if _is_too_large(error)})
        refused |= _no_younger(left, {n: error for n, error in refused.items() if cause_of(error) is RefusedFor.TIME})
        closed = {entries[n].destination for n, error in named.items() if cause_of(error) is None}
        left = [each for each in left if each.position not in refused and each.entry.destination not in closed]
    return refused


def _is_too_large(error: KafkaError) -> bool:
    return cause_of(error) is RefusedFor.SIZE


def _no_smaller(records: list[RehearsedRecord], refused: Refused) -> Refused:
    """Records that are no smaller than one that their topic refused for its size; none of them need be tried."""
    no_smaller, first_error = Refused(), dict[str, KafkaError]()
    for n, e, _ in sorted(records, key=lambda record: (batch_bytes(record.entry), record.position not in refused)):
        if error := first_error.get(e.destination) or refused.get(n):
            no_smaller[n] = first_error[e.destination] = error
    return no_smaller


def _no_younger(records: list[RehearsedRecord], refused: Refused) -> Refused:
    """Records that are no younger than one that its topic refused for its age; none of them need be tried."""
    youngest: dict[str, tuple[int, KafkaError]] = {}
    for n, e, _ in records:
        if n in refused and e.timestamp_ms is not None and e.timestamp_ms > youngest.get(e.destination, (-1, None))[0]:
            youngest[e.destination] = e.timestamp_ms, refused[n]
    stamped = ((n, e.timestamp_ms, youngest[e.destination]) for n, e, _ in records if e.destination in youngest)
    return {n: error for n, stamp_ms, (young_ms, error) in stamped if stamp_ms is not None and stamp_ms <= young_ms}


def _by_halves(records: list[RehearsedRecord], result: RehearsalResult, attempt: Attempt, deadline: Deadline) -> Refused:
    """Who is refused of records that were tried together."""
    if result.transaction_error is None:
        refused = result.refused
        for suspects in result.suspects:
            refused = refused | _single_out(records, suspects, attempt, deadline)
        return refused
    topics = sorted({record.entry.destination for record in records})
    if len(topics) == 1:
        return {records[0].position: result.transaction_error}
    refused = {}
    for half in (set(topics[: len(topics) // 2]), set(topics[len(topics) // 2 :])):
        part = [record for record in records if record.entry.destination in half]
        if not deadline.has_passed():
            refused |= _by_halves(part, attempt(part), attempt, deadline)
    return refused


def _single_out(records: list[RehearsedRecord], suspects: Suspects, attempt: Attempt, deadline: Deadline) -> Refused:
    """At least one of some suspects that is refused by itself; all that are left of them where the time is over."""
    left, error = [record for record in records if record.position in suspects.positions], suspects.error
    while len(left) > 1 and not deadline.has_passed():
        half = left[: len(left) // 2]
        result = attempt(half)
        if result.refused:
            return result.refused
        if result.transaction_error is not None:
            return {half[0].position: result.transaction_error}
        if result.suspects:
            positions, error = result.suspects[0]
            left = [record for record in half if record.position in positions]
        elif result.taken:
            left = left[len(half) :]
        # Otherwise no record was at fault, and the same is tried again.
    return {record.position: error for record in left}
