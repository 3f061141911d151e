"""One transactional producer, and the one place that says what each of its errors means.

librdkafka speaks the first version of the transaction protocol, in which a delayed end of one transaction can hit the
next. So after a commit of unknown outcome nothing more is begun on that producer: it is closed, and a new one with the
same `transactional.id` makes the broker decide.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from itertools import repeat
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from retry.clock import Deadline, pause
from retry.delay_queue.entry import Entry
from retry.errors import CommitInDoubt, ProducerFenced, TransactionAborted, TransactionFailed
from retry.kafka.client_config import Config
from retry.kafka.batch_size_limits import Portions

log = logging.getLogger(__name__)

_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_TOO_LARGE = KafkaError.MSG_SIZE_TOO_LARGE
# Said of whatever follows a refused record, until the transaction is undone.
_NOT_ITS_FAULT = (KafkaError._STATE, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
_FULL_QUEUE_S = 0.05
_ARRIVE_S = 8.0
_REHEARSE_S = 8.0
_COMMIT_S = 15.0
# More than a transaction lives; see `retry.kafka.client_config.SESSION_TIMEOUT_MS`.
_OFFSETS_S = 8.0
_LEFT_BEHIND_S = 2.0
_ABORT_S = 10.0
_ANY = repeat(-1)
_OPEN_S = 8.0


class Transactions:
    """Transactions of one `transactional.id`, one after another, by one thread at a time."""

    def __init__(self, config: Config) -> None:
        self._producer, self._portions = Producer(config), Portions()

    def open(self) -> None:
        """Fence every earlier producer with this id and end the transaction that it left open.

        Raises:
          TransactionFailed: the broker could not be asked within 8 seconds.
        """
        self._insist(self._producer.init_transactions, Deadline(_OPEN_S))

    def begin(self) -> None:
        """Begin a transaction; whatever is written next is seen whole or not at all."""
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise _named(error) from error

    def write(self, topic: str, partition: int, rows: list[dict[str, Any]]) -> None:
        """Queue records without headers: dicts with `key` and `value`, where None is a null.

        Args:
          partition: of all of them; -1 lets their keys decide.

        Raises:
          TransactionFailed: the transaction was undone, or the producer is of no more use.
        """
        while rows and self._queued(topic, partition, rows) < len(rows):
            refused = {row["_error"] for row in rows if row.get("_error") is not None}
            if fault := next((error for error in refused if error.code() != KafkaError._QUEUE_FULL), None):
                self._undo(KafkaException(fault))
            rows = [row for row in rows if row.pop("_error", None) is not None]
            self._poll()

    def _queued(self, topic: str, partition: int, rows: list[dict[str, Any]]) -> int:
        try:
            return self._producer.produce_batch(topic, rows, partition)
        except KafkaException as error:
            self._undo(error)
            raise

    def publish(self, entries: Iterable[Entry], now_ms: int, partitions: Sequence[int] | None = None) -> None:
        """Queue entries for their destinations; their keys decide the partitions.

        Args:
          now_ms: timestamps are no later than this, since brokers refuse those from the future.
          partitions: of each entry, where keys are not to decide about all; -1 where they are.
        """
        produce: Any = self._producer.produce
        limited = self._portions.limited()
        for e, partition in zip(entries, _ANY if partitions is None else partitions, strict=False):
            stamp = e.timestamp_ms
            if stamp is None or stamp > now_ms:
                stamp = now_ms
            if limited and self._portions.full(e):
                self._arrive()
            try:
                produce(e.destination, e.value, e.key, partition, None, None, stamp, e.headers)
            except BufferError:
                self._publish_slowly(e, stamp, partition)
            except KafkaException as error:
                self._undo(error)

    def _publish_slowly(self, e: Entry, stamp: int, partition: int) -> None:
        produce: Any = self._producer.produce
        while True:
            self._poll()
            try:
                produce(e.destination, e.value, e.key, partition, None, None, stamp, e.headers)
            except BufferError:
                continue
            return

    def rehearse(
        self, entries: Iterable[Entry], now_ms: int, partitions: Sequence[int] | None = None
    ) -> dict[int, KafkaError]:
        """Publish in transactions that are thrown away, and say by position which entries were refused and why.

        A refused entry is left out and the rest tried again, until nothing is refused or 8 seconds are over. Of a topic that
        refuses whatever it is given, one entry is named.
        """
        batch, refused, deadline = list(entries), dict[int, KafkaError](), Deadline(_REHEARSE_S)
        left = list(range(len(batch)))
        while left and not deadline.passed():
            told = self._rehearsed([(n, batch[n], partitions[n] if partitions else -1) for n in left], now_ms, deadline)
            if told is None:
                break
            together = {n for n, error in told.items() if error.code() == _TOO_LARGE and not self._portions.alone(batch[n])}
            self._portions.refused(batch[n] for n in together)
            refused |= {n: error for n, error in told.items() if n not in together}
            closed = {batch[n].destination for n, error in refused.items() if error.code() != _TOO_LARGE}
            left = [n for n in left if n not in refused and batch[n].destination not in closed]
        return refused

    def _rehearsed(
        self, entries: list[tuple[int, Entry, int]], now_ms: int, deadline: Deadline
    ) -> dict[int, KafkaError] | None:
        """What is refused first, which keeps the rest from being sent; None where all was taken.

        Nothing, where the transaction failed for what is no fault of an entry.
        """
        produce: Any = self._producer.produce
        refused: dict[int, KafkaError] = {}
        limited, failed = self._portions.limited(), False
        self.begin()
        for n, e, partition in entries:
            stamp = now_ms if e.timestamp_ms is None else min(e.timestamp_ms, now_ms)
            if limited and self._portions.full(e):
                self._arrive()
            try:
                produce(e.destination, e.value, e.key, partition, _teller(refused, n), None, stamp, e.headers)
            except KafkaException as error:
                # After a refusal the client takes nothing more, whatever it is.
                failed = error.args[0].code() == KafkaError._STATE
                if not failed:
                    refused[n] = error.args[0]
                break
            except BufferError:
                break
        while len(self._producer) and not refused and not deadline.passed():
            self._poll()
        failed = failed or bool(refused) or len(self._producer) > 0
        self.abort()
        return {n: error for n, error in refused.items() if error.code() not in _NOT_ITS_FAULT} if failed else None

    def read_to(self, positions: list[TopicPartition], member: object) -> None:
        """Make the consumer group's positions part of the transaction.

        Args:
          member: the consumer's group metadata; a stale generation is refused by the broker.

        Raises:
          TransactionFailed: as `commit`.
        """
        # The client can wait for ever, whatever time it is given: it looks for the group's coordinator again only when
        # a connection changes its state, and one may have been lost with the question (librdkafka 2.16). A transaction
        # is over by then; so is this producer, whose thread is left behind.
        done: Future[None] = Future()

        def send() -> None:
            ask = self._producer.send_offsets_to_transaction
            try:
                self._insist(lambda within_s: ask(positions, member, within_s), Deadline(_OFFSETS_S))
                done.set_result(None)
            except Exception as error:
                done.set_exception(error)

        threading.Thread(target=send, name="offsets", daemon=True).start()
        try:
            done.result(_OFFSETS_S + _LEFT_BEHIND_S)
        except TimeoutError:
            raise CommitInDoubt("no answer from the group's coordinator") from None

    def commit(self) -> None:
        """Make the transaction visible.

        Raises:
          TransactionAborted: it was undone.
          CommitInDoubt: nobody knows; close this producer and open another.
          ProducerFenced: another producer has taken over this id; close this one.
        """
        self._insist(self._producer.commit_transaction, Deadline(_COMMIT_S))

    def abort(self) -> None:
        """Undo the transaction.

        Raises:
          TransactionFailed: it could not be undone in time; close this producer and open another.
        """
        self._insist(self._producer.abort_transaction, Deadline(_ABORT_S))

    def close(self) -> None:
        """Let go of the producer without waiting for anything that is queued."""
        try:
            self._producer.purge()
            self._producer.flush(0)
        except KafkaException as error:
            # A producer that was fenced says so once more.
            log.debug("closed: %s", error)

    def _poll(self) -> None:
        """Give the queue a moment to drain."""
        try:
            self._producer.poll(_FULL_QUEUE_S)
        except KafkaException as error:
            raise _named(error) from error

    def _arrive(self) -> None:
        """Wait until what is queued has arrived, or was refused."""
        try:
            self._producer.flush(_ARRIVE_S)
        except KafkaException as error:
            raise _named(error) from error

    def _insist(self, call: Callable[[float], None], deadline: Deadline) -> None:
        """Call until it is done, refused, or the time is over."""
        while True:
            try:
                call(max(0.1, deadline.remaining_s()))
                return
            except KafkaException as error:
                known = error.args[0]
                if known.retriable() and not deadline.passed():
                    pause(_FULL_QUEUE_S)
                    continue
                if known.txn_requires_abort():
                    self._undo(error)
                raise _named(error) from error

    def _undo(self, cause: KafkaException) -> None:
        try:
            self._producer.abort_transaction(_ABORT_S)
        except KafkaException as error:
            raise _named(error) from error
        raise TransactionAborted(str(cause.args[0])) from cause


def _teller(refused: dict[int, KafkaError], n: int) -> Callable[[KafkaError | None, object], None]:
    def told(error: KafkaError | None, _message: object) -> None:
        # What is thrown away with the transaction was not refused by anybody.
        if error is not None and error.code() not in _PURGED:
            refused[n] = error

    return told


def _named(error: KafkaException) -> TransactionFailed:
    """The error in our terms. What is not known to be harmless counts as a commit in doubt."""
    known = error.args[0]
    if known.code() in _FENCED:
        return ProducerFenced(str(known))
    return CommitInDoubt(str(known))
