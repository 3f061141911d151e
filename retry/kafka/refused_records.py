"""Finds which records brokers refuse: transactions that are thrown away are tried, until what is left of them is taken.

Brokers name a record that is too large, and a topic that is gone. The transaction coordinator names nobody: where one topic may
not be written to, it refuses the whole transaction. Then half of its topics are tried, and half of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import KafkaError

from retry.clock import Deadline
from retry.delay_queue.envelopes import Entry
from retry.kafka.batch_size_limits import BatchSizeLimits
from retry.kafka.record_size_limits import batch_bytes

_TOO_LARGE = KafkaError.MSG_SIZE_TOO_LARGE

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


class RehearsalResult(NamedTuple):
    """How one transaction went that was thrown away.

    Attributes:
      taken: whether everything was.
      refused: by position, who was refused by name.
      transaction_error: why all of it was, where nobody was named.
    """

    taken: bool
    refused: Refused
    transaction_error: KafkaError | None = None


Attempt = Callable[[list[RehearsedRecord]], RehearsalResult]


def refusals(records: list[RehearsedRecord], attempt: Attempt, limits: BatchSizeLimits, deadline: Deadline) -> Refused:
    """By position, which records are refused and why. Of a topic that refuses whatever it is given, one is named."""
    refused: Refused = {}
    left = records
    while left and not deadline.passed():
        result = attempt(left)
        if result.taken:
            break
        named = _by_halves(left, result, attempt, deadline)
        entries = {record.position: record.entry for record in left}
        together = {n for n, error in named.items() if error.code() == _TOO_LARGE and not limits.alone(entries[n])}
        limits.refused(entries[n] for n in together)
        refused |= {n: error for n, error in named.items() if n not in together}
        if not limits.compressed:
            refused |= _no_smaller(left, {n: error for n, error in refused.items() if error.code() == _TOO_LARGE})
        closed = {entries[n].destination for n, error in named.items() if error.code() != _TOO_LARGE}
        left = [each for each in left if each.position not in refused and each.entry.destination not in closed]
    return refused


def _no_smaller(records: list[RehearsedRecord], refused: Refused) -> Refused:
    """Records that are no smaller than one that their topic refused for its size; none of them need be tried."""
    no_smaller, first_error = Refused(), dict[str, KafkaError]()
    for n, e, _ in sorted(records, key=lambda record: (batch_bytes(record.entry), record.position not in refused)):
        if error := first_error.get(e.destination) or refused.get(n):
            no_smaller[n] = first_error[e.destination] = error
    return no_smaller


def _by_halves(records: list[RehearsedRecord], result: RehearsalResult, attempt: Attempt, deadline: Deadline) -> Refused:
    """Who is refused of records that were tried together."""
    if result.transaction_error is None:
        return result.refused
    topics = sorted({record.entry.destination for record in records})
    if len(topics) == 1:
        return {records[0].position: result.transaction_error}
    refused: Refused = {}
    for half in (set(topics[: len(topics) // 2]), set(topics[len(topics) // 2 :])):
        part = [record for record in records if record.entry.destination in half]
        if not deadline.passed():
            refused |= _by_halves(part, attempt(part), attempt, deadline)
    return refused
