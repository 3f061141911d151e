"""One transactional producer on real brokers; `retry.kafka.refused_records` says what each of its errors means.

librdkafka speaks the first version of the transaction protocol, in which a delayed end of one transaction can hit the
next. So after a commit of unknown outcome nothing more is begun on that producer: it is closed, and a new one with the
same `transactional.id` makes the broker decide. Behind a transaction that was undone it goes on under another id, see
`retry.kafka.transactional_ids`, and so with another client: where brokers refused a record, there is a gap in the numbers of
a client's records, for which they would refuse the next transaction. Where the answer to a record was lost, the client gives
its number to the next record of that partition: the broker takes that one for the former, and says that it arrived
(librdkafka 2.16). With another producer id all numbers begin anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from itertools import repeat
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from retry.clock import Deadline, pause
from retry.delay_queue.envelopes import Entry
from retry.errors import CommitInDoubt, TransactionAborted, TransactionFailed, TransactionSlow
from retry.kafka import authorization, client_config
from retry.kafka.authorization import Right
from retry.kafka.client_config import Config
from retry.kafka.closing import discard_queued, flush
from retry.kafka.record_limits import BatchSizeLimits
from retry.kafka.refused_records import Anchor, Rehearsal, RehearsedRecord, find_refusals, translate_error
from retry.kafka.transactional_ids import TransactionalIds

_FULL_QUEUE_S, _LOOK_EVERY_S = 0.05, 0.1
_ARRIVE_S = 8.0
_REHEARSE_S = 8.0
_COMMIT_S = 15.0
# More than a transaction lives; see `retry.kafka.client_config.SESSION_TIMEOUT_MS`.
_OFFSETS_S = 8.0
_LEFT_BEHIND_S = 2.0
_ABORT_S = 10.0
_ANY = repeat(-1)
_OPEN_S = 8.0
# Less than a transaction lives, so that it is undone by whoever has begun it.
ARRIVE_WITHIN_S = 4.5
# The client looks for its coordinator, or asks it again, every half a second, and at once whenever it is called.
_ASKED_FIRST_S = 0.02


class KafkaTransactionalProducer:
    """Transactions one after another, by one thread at a time; `ids` are at first that of the configuration."""

    def __init__(self, config: Config, ids: TransactionalIds | None = None) -> None:
        self._config, self._ids = config, ids or TransactionalIds(config["transactional.id"])
        self._producer = self._make_client()
        self._batch_limits = BatchSizeLimits(compressed=client_config.compresses(config))
        self._right = Right(authorization.TRANSACTIONAL_ID, config["transactional.id"], authorization.WRITE)
        self._queued, self._was_undone = 0, False

    def _make_client(self) -> Producer:
        return client_config.make_producer({**self._config, "transactional.id": self._ids.current})

    def open(self, within_s: float = _OPEN_S) -> None:
        """Open the producer: fence earlier ones with the same id, end their open transaction; raises TransactionFailed.

        Where they may have had one, go on under the next id.
        """
        deadline = Deadline(within_s)
        self._open_client(deadline)
        if self._ids.is_in_doubt:
            self._go_on_with_next_id()
            self._open_client(deadline)

    def _open_client(self, deadline: Deadline) -> None:
        try:
            self._insist(self._producer.init_transactions, deadline, _ASKED_FIRST_S)
        except CommitInDoubt as failed:
            if isinstance(failed.__cause__, KafkaException) and authorization.is_denied(failed.__cause__):
                raise TransactionFailed(str(authorization.build_right_missing(self._right))) from failed
            raise

    def renew_client(self, within_s: float = _OPEN_S) -> Producer:
        """Go on with another client, which undoes a transaction that is under way; raises as `open`."""
        if self._was_undone:
            self._go_on_with_next_id()
        else:
            self.close()
            self._producer = self._make_client()
        self.open(within_s)
        return self._producer

    def _go_on_with_next_id(self) -> None:
        self.close()
        self._ids.advance()
        self._producer, self._was_undone = self._make_client(), False

    def await_visible(self, within_s: float = _OPEN_S) -> None:
        """Wait until readers see what was committed, which is soon after the answer; raises TransactionFailed."""
        # Brokers give the id to the next producer only when the last transaction is complete everywhere.
        self.renew_client(within_s)

    def begin(self, renew_within_s: float = _OPEN_S) -> None:
        """Begin a transaction; behind one that was undone, go on under another id. Raises as `open`."""
        self._queued = 0
        if self._was_undone:
            self.renew_client(renew_within_s)
        self._ids.is_in_doubt = True
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise translate_error(error) from error

    def write(self, topic: str, partition: int, rows: list[dict[str, Any]]) -> None:
        """Queue dicts with `key` and `value`, where None is a null; in partition -1 their keys decide. Raises TransactionFailed.
        """
        self._queued += len(rows)
        while rows and self._queue_rows(topic, partition, rows) < len(rows):
            refused = {row["_error"] for row in rows if row.get("_error") is not None}
            if fault := next((error for error in refused if error.code() != KafkaError._QUEUE_FULL), None):
                self._abort_transaction(KafkaException(fault))
            rows = [row for row in rows if row.pop("_error", None) is not None]
            self.drain()

    def _queue_rows(self, topic: str, partition: int, rows: list[dict[str, Any]]) -> int:
        try:
            return self._producer.produce_batch(topic, rows, partition)
        except KafkaException as error:
            self._abort_transaction(error)
            raise

    def publish(self, entries: Sequence[Entry], now_ms: int, partitions: Sequence[int] | None = None) -> None:
        """Queue entries for their destinations; their keys decide the partitions, unless `partitions` has another than -1.

        Timestamps are no later than `now_ms`, since brokers refuse those from the future.
        """
        produce: Any = self._producer.produce
        limited = self._batch_limits.begin_batch()
        self._queued += len(entries)
        for e, partition in zip(entries, _ANY if partitions is None else partitions, strict=False):
            stamp = e.timestamp_ms
            if stamp is None or stamp > now_ms:
                stamp = now_ms
            if limited and self._batch_limits.queue_entry(e):
                self.await_arrival(_ARRIVE_S)
            try:
                # By position: by keyword it takes half as long again.
                produce(e.destination, e.value, e.key, partition, None, None, stamp, e.headers)
            except BufferError:
                self._publish_slowly(e, stamp, partition)
            except KafkaException as error:
                self._abort_transaction(error)

    def _publish_slowly(self, e: Entry, stamp: int, partition: int) -> None:
        """Queue an entry as soon as the client's queue, which is full, has room for it."""
        produce: Any = self._producer.produce
        while True:
            self.drain()
            try:
                return produce(e.destination, e.value, e.key, partition=partition, timestamp=stamp, headers=e.headers)
            except BufferError:
                continue
            except KafkaException as error:
                self._abort_transaction(error)

    def rehearse_entries(
        self, entries: Iterable[Entry], now_ms: int, partitions: Sequence[int] | None = None, anchor: Anchor | None = None
    ) -> dict[int, KafkaError]:
        """Publish in transactions that are thrown away, and say by position which entries were refused and why.

        It goes on until nothing is refused or 8 seconds are over; see `find_refusals`, and `Rehearsal` for the anchor.
        """
        deadline = Deadline(_REHEARSE_S)
        records = [RehearsedRecord(n, *each) for n, each in enumerate(zip(entries, partitions or _ANY, strict=False))]
        rehearsal = Rehearsal(self, self._batch_limits, now_ms, anchor)
        return find_refusals(records, lambda some: rehearsal.attempt(some, deadline), self._batch_limits, deadline)

    def await_arrival(self, within_s: float) -> bool:
        """Wait for what is queued; whether all of it has arrived or was refused by then, or nothing more of it will arrive.

        Of a transaction that has failed the client keeps some records, and says nothing of them until it is undone.
        """
        deadline = Deadline(within_s)
        try:
            while flush(self._producer, min(_LOOK_EVERY_S, deadline.remaining_s())):
                if self.find_failure() is not None:
                    return True
                if deadline.has_passed():
                    return False
        except KafkaException as error:
            raise translate_error(error) from error
        return True

    def find_failure(self) -> KafkaError | None:
        """Find why the transaction that is under way can only be undone; None where it can go on."""
        try:
            # Refused in any case. Of a transaction that has failed the refusal says why.
            self._producer.begin_transaction()
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            return reason if reason.txn_requires_abort() or reason.fatal() else None
        return None

    def drain(self) -> None:
        try:
            self._producer.poll(_FULL_QUEUE_S)
        except KafkaException as error:
            raise translate_error(error) from error

    def is_silent(self) -> bool:
        """Whether not a single record of this transaction has arrived so far, though some are queued."""
        return 0 < self._queued <= len(self._producer)

    def read_to(self, positions: list[TopicPartition], member: object) -> None:
        """Make positions part of the transaction, unless the group metadata, `member`, is stale; raises as `commit`."""
        # The client can wait for ever, whatever time it is given: it looks for the group's coordinator again only when
        # a connection changes its state, and one may have been lost with the question (librdkafka 2.16). A transaction
        # is over by then; so is this producer, whose thread is left behind.
        done: Future[None] = Future()
        ask = self._producer.send_offsets_to_transaction

        def send() -> None:
            self._insist(lambda within_s: ask(positions, member, within_s), Deadline(_OFFSETS_S))

        threading.Thread(target=_complete_future, args=(done, send), name="offsets", daemon=True).start()
        try:
            done.result(_OFFSETS_S + _LEFT_BEHIND_S)
        except TimeoutError:
            raise CommitInDoubt("no answer from the group's coordinator") from None
        finally:
            # An error holds this frame: with the error in its turn held here, the client would outlive this producer.
            del done

    def commit(self) -> None:
        """Make the transaction visible.

        Raises:
          TransactionAborted: it was undone.
          CommitInDoubt: nobody knows; close this producer and open another.
          ProducerFenced: another producer has taken over this id; close this one.
        """
        self._insist(self._producer.commit_transaction, Deadline(_COMMIT_S))
        self._ids.is_in_doubt = False

    def abort(self) -> None:
        """Abort the transaction that is under way; raises TransactionFailed where this producer is to be closed for another."""
        self._insist(self._producer.abort_transaction, Deadline(_ABORT_S))
        self._was_undone = True

    def close(self) -> None:
        """Let go of the producer without waiting for anything that is queued."""
        discard_queued(self._producer)

    def _insist(self, call: Callable[[float], None], deadline: Deadline, first_s: float = _COMMIT_S) -> None:
        """Call until it is done, refused, or the time is over; each call waits twice as long as the one before, at most."""
        longest_s = first_s
        while True:
            try:
                call(min(longest_s, max(0.1, deadline.remaining_s())))
                return
            except KafkaException as error:
                reason = error.args[0]
                if reason.retriable() and not deadline.has_passed():
                    pause(min(longest_s, _FULL_QUEUE_S))
                    longest_s *= 2
                    continue
                if reason.txn_requires_abort():
                    self._abort_transaction(error)
                raise translate_error(error) from error

    def _abort_transaction(self, cause: KafkaException) -> None:
        try:
            self._producer.abort_transaction(_ABORT_S)
        except KafkaException as error:
            raise translate_error(error) from error
        self._was_undone = True
        raise TransactionAborted(str(cause.args[0])) from cause


def demand_arrival(producer: KafkaTransactionalProducer) -> None:
    """Wait until all records of a transaction have arrived, or were refused; raises as the producer's `commit`, too.

    Raises TransactionSlow where they do not arrive in the time that it has. Nothing is committed; a renewed client undoes it.
    """
    if not producer.await_arrival(ARRIVE_WITHIN_S):
        raise TransactionSlow("records do not arrive in time")


def _complete_future(done: Future[None], call: Callable[[], None]) -> None:
    try:
        call()
        done.set_result(None)
    except Exception as error:
        done.set_exception(error)
    finally:
        # The error holds this frame; see `read_to`.
        del done
