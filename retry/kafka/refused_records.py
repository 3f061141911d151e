"""Finds which records brokers refuse: transactions that are thrown away are tried, until what is left of them is taken.

Brokers name a record that is too large, and a topic that is gone. Of a record that is refused for what it is they mostly name the
whole batch in which it came (librdkafka 2.16: where one record of a batch is at fault, all of it is named; where several are,
each of these): then half of the batch is tried, and half of that. The transaction coordinator names nobody: where one topic may
not be written to, it refuses the whole transaction. Then half of its topics are tried, and half of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from retry.clock import Deadline
from retry.delay_queue.envelopes import Entry
from retry.errors import CommitInDoubt, ProducerFenced, ProducerSpent, TransactionFailed
from retry.kafka.record_limits import OF_CONTENT, BatchSizeLimits, RefusedFor, find_cause, measure_batch

if TYPE_CHECKING:
    from retry.kafka.transactional_producer import KafkaTransactionalProducer

# The one place that says what each error of a transactional producer means.

_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
# Of producers, and of whatever follows a refused record until the transaction is undone: no topic and no record is at fault.
NO_RECORD_AT_FAULT = (
    KafkaError._STATE, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.UNKNOWN_PRODUCER_ID,
    KafkaError.INVALID_PRODUCER_ID_MAPPING, *_FENCED,
)  # fmt: skip


def translate_error(error: KafkaException) -> TransactionFailed:
    """Return a Kafka error as one of this service. An error that is not known to be harmless counts as a commit in doubt."""
    reason: KafkaError = error.args[0]
    if reason.code() in _FENCED:
        return ProducerFenced(str(reason))
    if reason.code() == KafkaError.INVALID_TXN_STATE:
        return ProducerSpent(str(reason))
    return CommitInDoubt(str(reason))


Refused = dict[int, KafkaError]


class RehearsedRecord(NamedTuple):
    position: int
    entry: Entry
    partition: int


class Anchor(NamedTuple):
    """A delete that each transaction begins with; it is thrown away with it."""

    topic: str
    partition: int
    key: bytes


class Suspects(NamedTuple):
    """Two or more records that were refused together; at least one of them is to blame."""

    positions: frozenset[int]
    error: KafkaError


class RehearsalResult(NamedTuple):
    """How one transaction went that was thrown away.

    Attributes:
      taken: whether everything was taken.
      refused: by position, what was refused by name.
      transaction_error: why all of it was refused, where nothing was named.
      suspects: what was refused together.
    """

    taken: bool
    refused: Refused
    transaction_error: KafkaError | None = None
    suspects: Sequence[Suspects] = ()


Attempt = Callable[[list[RehearsedRecord]], RehearsalResult]


def find_refusals(records: list[RehearsedRecord], attempt: Attempt, limits: BatchSizeLimits, deadline: Deadline) -> Refused:
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
        refused |= _no_younger(left, {n: error for n, error in refused.items() if find_cause(error) is RefusedFor.TIME})
        closed = {entries[n].destination for n, error in named.items() if find_cause(error) is None}
        left = [each for each in left if each.position not in refused and each.entry.destination not in closed]
    return refused


def _is_too_large(error: KafkaError) -> bool:
    return find_cause(error) is RefusedFor.SIZE


def _no_smaller(records: list[RehearsedRecord], refused: Refused) -> Refused:
    """Records that are no smaller than one that their topic refused for its size; none of them need be tried."""
    no_smaller, first_error = Refused(), dict[str, KafkaError]()
    for n, e, _ in sorted(records, key=lambda record: (measure_batch(record.entry), record.position not in refused)):
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


# Publishes records in transactions that are thrown away, to learn which of them brokers refuse; see `refused_records`.

_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_ARRIVE_S = 8.0


class Rehearsal:
    """Transactions of one producer that never commit.

    The anchor is a record that is surely taken, or None. Where the coordinator has taken nothing before it refuses, it finds no
    transaction to be undone, and the client gives up for good (librdkafka 2.16).
    """

    def __init__(self, producer: KafkaTransactionalProducer, limits: BatchSizeLimits, now_ms: int, anchor: Anchor | None) -> None:
        self._producer, self._limits, self._now_ms, self._anchor = producer, limits, now_ms, anchor

    def attempt(self, records: list[RehearsedRecord], deadline: Deadline) -> RehearsalResult:
        """Try records in a transaction that never commits; return which is refused first: then the rest is not sent."""
        answers, self._client = _Answers(), self._producer.renew_client()
        self._producer.begin()
        if self._anchor is not None:
            topic, partition, key = self._anchor
            self._producer.write(topic, partition, [{"key": key, "value": None}])
            self._producer.await_arrival(_ARRIVE_S)
        failed = self._publish(records, answers)
        while len(self._client) and not answers.refused and not deadline.has_passed():
            self._producer.drain()
        failed = failed or answers.purged or bool(answers.refused) or len(self._client) > 0
        reason = self._producer.find_failure() if failed and not answers.refused else None
        transaction_error = None if reason is None or reason.code() in NO_RECORD_AT_FAULT else reason
        self._producer.abort()
        return RehearsalResult(not failed, answers.list_named(), transaction_error, answers.list_suspects())

    def _publish(self, records: list[RehearsedRecord], answers: _Answers) -> bool:
        """Queue them up to the first that is not taken; whether the transaction had failed before that one."""
        produce: Any = self._client.produce
        limited = self._limits.begin_batch()
        for n, e, partition in records:
            stamp = self._now_ms if e.timestamp_ms is None else min(e.timestamp_ms, self._now_ms)
            if limited and self._limits.queue_entry(e):
                self._producer.await_arrival(_ARRIVE_S)
            try:
                produce(
                    e.destination, e.value, e.key, partition=partition, on_delivery=answers.make_callback(n), timestamp=stamp,
                    headers=e.headers,
                )  # fmt: skip
            except KafkaException as error:
                # After a refusal the client takes nothing more, whatever it is.
                if error.args[0].code() == KafkaError._STATE:
                    return True
                answers.refused[n] = error.args[0]
                break
            except BufferError:
                break
        return False


class _Answers:
    def __init__(self) -> None:
        self.refused: dict[int, KafkaError] = {}
        self.purged = False
        # Refused for what records are, by the partition in which they came; of some partitions each of these is to blame.
        self._together: dict[tuple[str, int], list[int]] = {}
        self._told_apart: set[tuple[str, int]] = set()

    def make_callback(self, n: int) -> Callable[[KafkaError | None, Any], None]:
        def note_answer(error: KafkaError | None, message: Any) -> None:
            if error is not None and error.code() in _PURGED:
                self.purged = True
            elif error is not None:
                self._note_error(n, error, (message.topic(), message.partition()))

        return note_answer

    def _note_error(self, n: int, error: KafkaError, place: tuple[str, int]) -> None:
        if error.code() == KafkaError._INVALID_DIFFERENT_RECORD:
            self._told_apart.add(place)
            return
        self.refused[n] = error
        if error.code() in OF_CONTENT:
            self._together.setdefault(place, []).append(n)

    def list_named(self) -> dict[int, KafkaError]:
        suspected = {n for each in self.list_suspects() for n in each.positions}
        return {n: error for n, error in self.refused.items() if error.code() not in NO_RECORD_AT_FAULT and n not in suspected}

    def list_suspects(self) -> list[Suspects]:
        """List the records that were refused together, where the client does not tell which of them is to blame."""
        return [
            Suspects(frozenset(positions), self.refused[positions[0]])
            for place, positions in self._together.items()
            if len(positions) > 1 and place not in self._told_apart
        ]
