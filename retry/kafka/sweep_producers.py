"""Transactions over all shards of a worker: two producers, and in every commit the proof that the shards are still its own.

A worker that was given up for dead may still be at work on a shard that another one has by now. Its commit must not count.
So each transaction takes the offsets of the changelog partitions that it wrote to with it, under the worker's membership of
the group that shares out shards: brokers refuse a membership of a generation that is over. That suffices, for two reasons.

1. All records have arrived before the proof is given. Whoever is given a shard after it was accepted finds them below the
   end that it asks for, and sweeps only when they are decided (`retry.worker.shards.restore`).
2. A shard is not given up while it has something in a transaction of this worker (`retry.worker.shards.shard`). A worker
   that was not asked, since nobody heard of it for too long, has a membership that is over.

There are two producers so that one batch is gathered while another is committed, and for outages: what was committed or
aborted has ended only when each partition that it touched has a marker of that. A partition without a leader takes none, and
until it is led again that producer begins no other transaction (`CONCURRENT_TRANSACTIONS`). The other one goes on.

A record that its topic takes only compressed goes by a third one or a fourth, which is made when it is needed first: compression
belongs to a whole producer, and what is ordinary goes uncompressed (decision 13).

After a commit in doubt a producer is closed, and another one with the same `transactional.id` has the brokers decide.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from confluent_kafka import KafkaError, TopicPartition

from retry import clock
from retry.delay_queue.envelopes import Entry
from retry.errors import CommitInDoubt, ProducerFenced, TransactionAborted, TransactionFailed, TransactionSlow
from retry.kafka.interface import SweepProducer, TransactionalProducer
from retry.kafka.refused_records import Anchor

log = logging.getLogger(__name__)

# The second is less than a transaction lives, so that it is undone by whoever has begun it.
_SILENT_S, _ARRIVE_S = 0.5, 4.5
# Another producer may begin the transaction meanwhile.
_RENEW_S = 1.0
# It is asked between two sweeps, which wait for the answer.
_ASK_EVERY_S, _ASK_S = 1.0, 0.1
# A worker that was taken for dead learns in this time that it was, and does not fence whoever has its name now.
_FENCED_S = 2.0
# For one that is made in a sweep, and that much of it waits for.
_OPEN_COMPRESSING_S = 2.0

_Answer = TypeVar("_Answer")
# For changelog partitions: how far each is folded, and the proof of membership. Raises TransactionAborted where there is none.
Prove = Callable[[Iterable[int]], tuple[list[TopicPartition], object]]


class Make(Protocol):
    """Makes a producer; see `retry.kafka.interface.Log.make_producer`."""

    def __call__(self, name: str, *, compressing: bool = False) -> TransactionalProducer: ...


class SweepProducers:
    """The producers of a worker's sweeps, each used by one sweep at a time.

    No other worker has the same `names`, which are transactional ids; the partitions of `changelog` are shards.
    """

    def __init__(self, make: Make, names: Sequence[str], changelog: str, prove: Prove) -> None:
        self._all = [_Producer(make, name, self, changelog, prove) for name in names]
        self._lock, self._opening = threading.Lock(), threading.Lock()

    def open(self) -> None:
        """Open the producers: fence this worker's past, end transactions it left. Raises TransactionFailed where none opened."""
        with self._opening:
            failed = None
            for producer in () if self.is_any_open() else self._all:
                if self._claim_producer(producer):
                    try:
                        # A sweep may have opened it meanwhile.
                        if not producer.is_open:
                            producer.open()
                    except TransactionFailed as error:
                        failed = error
                    finally:
                        producer.is_taken = False
            if failed is not None and not self.is_any_open():
                raise failed

    @contextmanager
    def borrow_producer(self) -> Iterator[SweepProducer | None]:
        """Lend a free producer until the end of the `with` block; None where each is in use or cannot be opened yet."""
        for producer in self._all:
            if self._claim_producer(producer):
                try:
                    if producer.is_ready():
                        yield producer
                        return
                finally:
                    producer.is_taken = False
        yield None

    def _claim_producer(self, producer: _Producer) -> bool:
        with self._lock:
            was_taken, producer.is_taken = producer.is_taken, True
            return not was_taken

    def is_any_open(self, but: object = None) -> bool:
        """Whether something can be sent just now, without one of them."""
        return any(producer.is_open for producer in self._all if producer is not but)

    def trouble(self) -> str:
        """Return why nothing can be sent just now; an empty text where a producer is open."""
        return "" if self.is_any_open() else "no transactional producer could be opened yet"

    def close(self) -> None:
        for producer in self._all:
            producer.close()


class _Producer:
    """See `retry.kafka.interface.TransactionalProducer`; what it cannot go on with is replaced by another of the same id."""

    def __init__(self, make: Make, name: str, among: SweepProducers, changelog: str, prove: Prove) -> None:
        self._make, self._name, self._among, self._changelog, self._prove = make, name, among, changelog, prove
        self._compressing: _Producer | None = None
        self._client = make(name)
        self.is_open = self.is_taken = False
        self._ask_at_s = 0.0
        self._touched: set[int] = set()

    def open(self, within_s: float | None = None) -> None:
        try:
            self._client.open() if within_s is None else self._client.open(within_s)
        except CommitInDoubt:
            # Goes on where it was when it is asked again.
            raise
        except TransactionFailed:
            self._replace()
            raise
        self.is_open = True

    def open_compressing(self) -> SweepProducer:
        if self._compressing is None:
            make = partial(self._make, compressing=True)
            self._compressing = _Producer(make, f"{self._name}-gzip", self._among, self._changelog, prove=self._prove)
        if not self._compressing.is_ready(_OPEN_COMPRESSING_S):
            raise TransactionAborted(f"{self._name}-gzip, for what goes only compressed, is not open yet")
        return self._compressing

    def is_ready(self, within_s: float = _ASK_S) -> bool:
        """Whether it is open, or could be opened just now."""
        if self.is_open or clock.monotonic_s() < self._ask_at_s:
            return self.is_open
        try:
            self.open(within_s)
        except TransactionFailed as error:
            log.debug("%s: not free yet: %s", self._name, error)
            self._ask_at_s = clock.monotonic_s() + _ASK_EVERY_S
            return False
        log.info("%s: goes on", self._name)
        return True

    def begin(self, renew_within_s: float = _RENEW_S) -> None:
        """Begin a transaction; raises TransactionAborted where brokers cannot end the last: another producer goes on."""
        self._touched.clear()
        try:
            self._do(self._client.begin, renew_within_s)
        except CommitInDoubt as error:
            # Nothing was begun that could be in doubt.
            self._go_on_with_another(error)
            raise

    def write(self, topic: str, partition: int, rows: list[dict[str, Any]]) -> None:
        if topic == self._changelog:
            self._touched.add(partition)
        self._do(self._client.write, topic, partition, rows)

    def publish(self, entries: Sequence[Entry], now_ms: int, partitions: Sequence[int] | None = None) -> None:
        self._do(self._client.publish, entries, now_ms, partitions)

    def rehearse_entries(
        self, entries: Iterable[Entry], now_ms: int, partitions: Sequence[int] | None = None, anchor: Anchor | None = None
    ) -> dict[int, KafkaError]:
        return self._do(self._client.rehearse_entries, entries, now_ms, partitions, anchor)

    def read_to(self, positions: list[TopicPartition], member: object) -> None:
        self._do(self._client.read_to, positions, member)

    def await_arrival(self, within_s: float) -> bool:
        """Wait for the answers to queued records; raises TransactionAborted where none arrived: another producer begins the next.
        """
        if self._do(self._client.await_arrival, within_s):
            return True
        if self._client.is_silent():
            self._go_on_with_another()
        return False

    def _go_on_with_another(self, cause: Exception | None = None) -> None:
        """Leave what it had begun to whoever opens its id next, where another producer is open; else do nothing."""
        if not self._among.is_any_open(but=self):
            return
        if self.is_open:
            self._replace()
        log.warning("%s: the brokers cannot end its last transaction yet; the other producer goes on", self._name)
        why = f"the brokers cannot end the last transaction of {self._name} yet; another producer goes on"
        raise TransactionAborted(why) from cause

    def is_silent(self) -> bool:
        return self._client.is_silent()

    def commit(self) -> None:
        """Prove that touched shards are this worker's, then commit; raises TransactionAborted where they are not, or too late."""
        # Before the proof: whoever has a shard after it must find these records.
        deadline = clock.Deadline(_ARRIVE_S)
        while not self.await_arrival(_SILENT_S):
            if deadline.has_passed():
                self.abort()
                raise TransactionSlow("records do not arrive in time")
        if self._touched:
            try:
                positions, member = self._prove(sorted(self._touched))
            except TransactionAborted:
                self.abort()
                raise
            self.read_to(positions, member)
        self._do(self._client.commit)

    def abort(self) -> None:
        self._do(self._client.abort)

    def close(self) -> None:
        self.is_open = False
        self._client.close()
        if self._compressing is not None:
            self._compressing.close()

    def _do(self, call: Callable[..., _Answer], *arguments: Any) -> _Answer:
        if not self.is_open:
            raise TransactionAborted(f"{self._name} is being opened again")
        try:
            return call(*arguments)
        except TransactionAborted:
            raise
        except TransactionFailed as error:
            self._replace(_FENCED_S if isinstance(error, ProducerFenced) else 0.0)
            raise

    def _replace(self, after_s: float = 0.0) -> None:
        self.is_open, self._ask_at_s = False, clock.monotonic_s() + after_s
        self._client.close()
        self._client = self._make(self._name)
