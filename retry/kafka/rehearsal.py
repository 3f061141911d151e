"""Publishes records in transactions that are thrown away, to learn which of them brokers refuse; see `refused_records`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from retry.clock import Deadline
from retry.kafka.batch_size_limits import BatchSizeLimits
from retry.kafka.record_limits import OF_CONTENT
from retry.kafka.refused_records import Anchor, RehearsalResult, RehearsedRecord, Suspects
from retry.kafka.transaction_errors import NO_RECORD_AT_FAULT

_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_ARRIVE_S = 8.0


class _Transactions(Protocol):
    """The methods of `retry.kafka.transactional_producer.KafkaTransactionalProducer` that a rehearsal uses."""

    def renew_client(self) -> Producer: ...
    def begin(self) -> None: ...
    def write(self, topic: str, partition: int, rows: list[dict[str, Any]]) -> None: ...
    def await_arrival(self, within_s: float) -> bool: ...
    def drain(self) -> None: ...
    def find_failure(self) -> KafkaError | None: ...
    def abort(self) -> None: ...


class Rehearsal:
    """Transactions of one producer that never commit.

    Args:
      anchor: a record that is surely taken, or None. Where the coordinator has taken nothing before it refuses, it finds
        no transaction to be undone, and the client gives up for good (librdkafka 2.16).

    Attributes:
      was_refused: whether the last attempt was.
    """

    was_refused = False

    def __init__(
        self, producer: _Transactions, limits: BatchSizeLimits, now_ms: int, anchor: Anchor | None
    ) -> None:
        self._producer, self._limits, self._now_ms, self._anchor = producer, limits, now_ms, anchor

    def attempt(self, records: list[RehearsedRecord], deadline: Deadline) -> RehearsalResult:
        """Who is refused first, which keeps the rest from being sent."""
        # The transaction before it was undone.
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
        self.was_refused = failed
        return RehearsalResult(not failed, answers.list_named(), transaction_error, answers.list_suspects())

    def _publish(self, records: list[RehearsedRecord], answers: _Answers) -> bool:
        """Queue them up to the first that is not taken; whether the transaction had failed before that one."""
        produce: Any = self._client.produce
        limited = self._limits.has_limits()
        for n, e, partition in records:
            stamp = self._now_ms if e.timestamp_ms is None else min(e.timestamp_ms, self._now_ms)
            if limited and self._limits.full(e):
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
    """The answers to the records of one transaction: which were refused, and whether any was purged with the whole of it."""

    def __init__(self) -> None:
        self.refused: dict[int, KafkaError] = {}
        self.purged = False
        # Refused for what records are, by the partition in which they came; of some partitions each of these is to blame.
        self._together: dict[tuple[str, int], list[int]] = {}
        self._told_apart: set[tuple[str, int]] = set()

    def make_callback(self, n: int) -> Callable[[KafkaError | None, Any], None]:
        """Make the delivery callback that notes the answer to the record at position `n`."""

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
        """Who was refused by name."""
        suspected = {n for each in self.list_suspects() for n in each.positions}
        return {n: error for n, error in self.refused.items() if error.code() not in NO_RECORD_AT_FAULT and n not in suspected}

    def list_suspects(self) -> list[Suspects]:
        """Who was refused together, where the client does not tell who is to blame."""
        return [
            Suspects(frozenset(positions), self.refused[positions[0]])
            for place, positions in self._together.items()
            if len(positions) > 1 and place not in self._told_apart
        ]
