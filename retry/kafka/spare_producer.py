"""Transactions of one shard under two ids: while brokers cannot end a transaction of the one, the other goes on.

What was committed or aborted has ended only when each partition that it touched has a marker of that. A partition without a
leader takes none, and until it is led again its id begins no other transaction (`CONCURRENT_TRANSACTIONS`). Two ids must not
make two owners of a shard, so:

1. Opening opens both, always in the same order: whoever had one of them is fenced on both before anything is read.
2. A spare is used only after a commit with the main id that came later than the opening of the spare. Where two workers
   open at the same time each may end up with one id; the one that has only the spare never commits anything.
3. It is used only where the last outcome is known. Nobody has asked to commit what is under way then, so that can only be
   aborted. A commit or an abort in doubt is the shard's affair, which opens both again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from retry.clock import monotonic_s
from retry.delay_queue.envelopes import Entry
from retry.errors import CommitInDoubt, TransactionAborted, TransactionFailed
from retry.kafka.interface import TransactionalProducer
from retry.kafka.refused_records import Anchor

log = logging.getLogger(__name__)

_SILENT_S = 0.5
# It is asked between two sweeps, which wait for the answer.
_ASK_EVERY_S, _ASK_S = 1.0, 0.1


class SparedProducer:
    """See `retry.kafka.interface.TransactionalProducer`.

    Args:
      make: a writer of a transactional id, not opened yet.
      name: the main id; the other has `-spare` behind it.
    """

    def __init__(self, make: Callable[[str], TransactionalProducer], name: str) -> None:
        self._make, self._name, self._spare_name = make, name, f"{name}-spare"
        self._writer, self._spare = make(self._name), make(self._spare_name)
        self._spare_is_open = self._may_go_over = False
        self._ask_at_s = 0.0

    def open(self, within_s: float | None = None) -> None:
        """Fence whoever had one of the ids; see `TransactionalProducer.open`."""
        for writer in (self._writer, self._spare):
            writer.open() if within_s is None else writer.open(within_s)
        self._spare_is_open = True

    def begin(self) -> None:
        """See `TransactionalProducer.begin`."""
        if not self._spare_is_open and monotonic_s() >= self._ask_at_s:
            self._open_spare()
        self._writer.begin()

    def write(self, topic: str, partition: int, rows: list[dict[str, Any]]) -> None:
        """See `TransactionalProducer.write`."""
        self._writer.write(topic, partition, rows)

    def publish(self, entries: Sequence[Entry], now_ms: int, partitions: Sequence[int] | None = None) -> None:
        """See `TransactionalProducer.publish`."""
        self._writer.publish(entries, now_ms, partitions)

    def rehearse(
        self, entries: Iterable[Entry], now_ms: int, partitions: Sequence[int] | None = None, anchor: Anchor | None = None
    ) -> dict[int, KafkaError]:
        """See `TransactionalProducer.rehearse`."""
        return self._writer.rehearse(entries, now_ms, partitions, anchor)

    def read_to(self, positions: list[TopicPartition], member: object) -> None:
        """See `TransactionalProducer.read_to`."""
        self._writer.read_to(positions, member)

    def arrived(self, within_s: float) -> bool:
        """See `TransactionalProducer.arrived`.

        Raises:
          TransactionAborted: nothing of it arrived, so the next one is begun with the other id.
        """
        if self._writer.arrived(within_s):
            return True
        if self._may_go_over and self._spare_is_open and self._writer.is_silent():
            self._go_over()
        return False

    def is_silent(self) -> bool:
        """See `TransactionalProducer.is_silent`."""
        return self._writer.is_silent()

    def commit(self) -> None:
        """See `TransactionalProducer.commit`."""
        self.arrived(_SILENT_S)
        self._writer.commit()
        self._may_go_over = self._spare_is_open

    def abort(self) -> None:
        """See `TransactionalProducer.abort`."""
        self._writer.abort()

    def close(self) -> None:
        """See `TransactionalProducer.close`."""
        self._writer.close()
        self._spare.close()

    def _go_over(self) -> None:
        stuck = self._name
        # What it had begun is ended by the next who opens its id, this one or another owner of the shard.
        self._writer.close()
        self._name, self._spare_name = self._spare_name, stuck
        self._writer, self._spare = self._spare, self._make(stuck)
        self._spare_is_open = self._may_go_over = False
        log.warning("%s: the brokers cannot end its last transaction yet; %s goes on", stuck, self._name)
        raise TransactionAborted(f"the brokers cannot end the last transaction of {stuck} yet; {self._name} goes on")

    def _open_spare(self) -> None:
        """Open the id that was stuck, as soon as the brokers let it: it is the spare then."""
        try:
            self._spare.open(_ASK_S)
        except CommitInDoubt as error:
            # Goes on where it was when it is asked again.
            log.debug("%s: not free yet: %s", self._spare_name, error)
        except TransactionFailed as error:
            log.debug("%s: %s", self._spare_name, error)
            self._spare.close()
            self._spare = self._make(self._spare_name)
        else:
            self._spare_is_open = True
            log.info("%s: ended; it is the spare now", self._spare_name)
        self._ask_at_s = monotonic_s() + _ASK_EVERY_S
