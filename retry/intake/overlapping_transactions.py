"""Two transactions of a worker's intake under way: one batch is written, offsets included, while the one before is committed.

Two producers take turns. What keeps their transactions one history, in the order of the letters:

1. A batch asks to commit only when the commit of the one before it is known to have succeeded.
2. It is begun only when all records of the one before have arrived and its offsets were accepted. Two producers have two
   connections: else a later letter of the same key, or a cancel, could lie before what it comes behind. And of the offsets
   that two transactions send for one partition, the group's coordinator keeps what came last, whichever is committed last.
3. Where one fails, all that is under way is undone, and read again from the committed offsets.
4. A producer in doubt is closed, and another one with its id has the brokers decide. Letters are read again only when
   nothing is under way any more and both producers are open: see `are_over`.
5. Both ids are opened before the first letter is read, which fences this worker's own past and ends what that left open.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from retry import clock
from retry.errors import TransactionAborted, TransactionFailed, TransactionSlow
from retry.kafka.interface import TransactionalProducer

log = logging.getLogger(__name__)

_LOOK_S = 1.0
# Less than a transaction lives, so that it is undone by whoever has begun it; see `retry.kafka.client_config.SESSION_TIMEOUT_MS`.
_ARRIVE_S = 4.5

Step = Callable[[TransactionalProducer], None]


class BatchTransaction:
    """The transaction of one batch, of the producer whose `turn` it is.

    Attributes:
      is_held: whether a thread writes, commits or undoes it, or has done so; no other one touches it then.
    """

    __slots__ = ("epoch", "is_held", "turn")

    def __init__(self, epoch: int, turn: int) -> None:
        self.epoch, self.turn, self.is_held = epoch, turn, True


class OverlappingTransactions:
    """Writes batches (`write`) and commits them (`commit`), in the same order; each from one thread at a time.

    Args:
      name: of the first producer; no other worker has the same.
      open_producer: a producer of a name that has fenced its own past, however long that takes.
      epoch: the epoch that counts. Batches of another one are dropped, or undone, to be read again; `start_over` raises it.
    """

    def __init__(
        self, name: str, open_producer: Callable[[str], TransactionalProducer], epoch: Callable[[], int],
        start_over: Callable[[str], None],
    ) -> None:  # fmt: skip
        # No name of an instance has a colon, so it is not the first producer of another worker, as "a-1" would be beside "a".
        self._names = name, f"{name}:1"
        self._open, self._epoch, self._start_over = open_producer, epoch, start_over
        self._producers = [open_producer(each) for each in self._names]
        self._turn = 1
        # Oldest first.
        self._under_way: list[BatchTransaction] = []
        self._changed = threading.Condition()

    def write(self, epoch: int, write: Step) -> BatchTransaction | None:
        """Begin a transaction, have the argument `write` write a batch in it, and return it for `commit` to end.

        Returns None where the transaction was undone, so that the batch is read again from Kafka.
        """
        with self._changed:
            if epoch != self._epoch():
                return None
            self._turn = 1 - self._turn
            transaction = BatchTransaction(epoch, self._turn)
            self._under_way.append(transaction)

        def note_written(producer: TransactionalProducer) -> None:
            deadline = clock.Deadline(_ARRIVE_S)
            write(producer)
            # They were on their way while the offsets were accepted.
            if not producer.await_arrival(deadline.remaining_s()):
                producer.abort()
                raise TransactionSlow("records do not arrive in time")

        return transaction if self._does(note_written, transaction) and self._handed_over(transaction) else None

    def commit(self, transaction: BatchTransaction, commit: Step) -> bool:
        """Commit a batch that was written; False if it was undone, and is read again. `commit` notes that before that."""
        with self._changed:
            if transaction.is_held:
                # It was undone with another one, or is just now.
                return False
            transaction.is_held = True
            follows = self._follows(transaction)
        if follows:
            return self._does(commit, transaction, is_last=True)
        self._undo_batch(transaction)
        return False

    def are_over(self, within_s: float) -> bool:
        """Wait until nothing that was begun is under way, and both producers can begin anew; whether it is so by then."""
        deadline = clock.Deadline(within_s)
        with self._changed:
            while self._under_way and not deadline.has_passed():
                clock.wait(self._changed, deadline.remaining_s())
            return not self._under_way

    def end_transactions(self) -> None:
        self._undo_others()
        while not self.are_over(_LOOK_S):
            log.debug("a transaction is still under way")

    def close(self) -> None:
        for producer in self._producers:
            producer.close()

    def _follows(self, transaction: BatchTransaction) -> bool:
        """Whether all letters before it are taken in: rule 1."""
        if transaction.epoch == self._epoch() and self._under_way[0] is not transaction:
            # Nobody asks for that. If somebody did, its letters would be behind a gap.
            self._start_over("a batch was to be committed before the one before it")
        return transaction.epoch == self._epoch()

    def _does(self, step: Step, transaction: BatchTransaction, *, is_last: bool = False) -> bool:
        """Take a step of a transaction; False where it failed, and nothing is under way of which the outcome is not known."""
        is_over = True
        try:
            step(self._producers[transaction.turn])
            is_over = is_last
            return True
        except TransactionAborted as error:
            self._start_over(str(error))
            self._undo_others()
        except TransactionFailed as error:
            self._start_over(f"{type(error).__name__}: {error}")
            self._producers[transaction.turn].close()
            # First: opening may take as long as the brokers are away, and an open transaction holds back their readers.
            self._undo_others()
            self._open_again(transaction.turn)
        except Exception as error:
            # It ends the worker. Nothing may be committed behind a gap until then.
            self._start_over(f"{type(error).__name__}: {error}")
            raise
        finally:
            if is_over:
                self._over(transaction)
        return False

    def _open_again(self, turn: int) -> None:
        self._producers[turn] = self._open(self._names[turn])

    def _handed_over(self, transaction: BatchTransaction) -> bool:
        """Let go of what is written, for its commit; False where another one has failed meanwhile, and it was undone."""
        with self._changed:
            if transaction.epoch == self._epoch():
                transaction.is_held = False
                return True
        self._undo_batch(transaction)
        return False

    def _undo_others(self) -> None:
        """Undo whatever no thread is at work on; who is, sees that the epoch was raised."""
        with self._changed:
            waiting = [each for each in self._under_way if not each.is_held]
            for each in waiting:
                each.is_held = True
        for each in waiting:
            self._undo_batch(each)

    def _undo_batch(self, transaction: BatchTransaction) -> None:
        producer = self._producers[transaction.turn]
        try:
            producer.abort()
        except TransactionAborted as error:
            log.debug("undone: %s", error)
        except TransactionFailed as error:
            log.warning("%s could not be undone, and is opened again: %s", self._names[transaction.turn], error)
            producer.close()
            self._open_again(transaction.turn)
        finally:
            self._over(transaction)

    def _over(self, transaction: BatchTransaction) -> None:
        with self._changed:
            self._under_way.remove(transaction)
            self._changed.notify_all()
