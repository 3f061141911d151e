"""The letters' side of a worker: a member of the intake group, and the transactions that take its batches in.

Four threads meet here. One reads batches ahead; the others prepare, write and commit them. A batch that cannot be committed
makes every later one wrong, since they follow a gap: so the epoch is raised, batches of an older epoch are dropped or undone,
and when nothing is under way any more reading goes on from the committed offsets.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from functools import partial

from retry import clock
from retry.errors import RetryError, TransactionAborted
from retry.intake.batch import BatchSize, LetterBatch, PreparedBatch, WrittenBatch
from retry.intake.entry_source import RecordVersions
from retry.intake.intake import Intake
from retry.intake.overlapping_transactions import OverlappingTransactions
from retry.intake.read_cursors import ReadCursors
from retry.intake.read_positions import ReadPositions
from retry.kafka.interface import CommittedOffset, KafkaException, Log, Partition, StartingPoint, TransactionalProducer
from retry.kafka.transaction_pace import TransactionPace
from retry.telemetry.health import HealthProbe

logger = logging.getLogger(__name__)

# Few letters make small batches, and every transaction costs the brokers the same: what is gathered is what comes in this
# time, or while the batch before is committed.
_LINGER_S, _LINGER_S_MAX = 0.05, 0.2
_DRAIN_S = 8.0
_AGAIN_S = 1.0
_CHECK_EVERY_S = 4.0


class LetterConsumer:
    """Reads batches (`read`), then takes them in (`prepare`, `write`, `commit`); each from one thread at a time.

    Args:
      writer: the name of this worker's transactions; no other worker has the same.
      positions: how far each partition was taken in, by the service's own record.
      versions: of records whose entries have names; entry sources ask it.

    Attributes:
      stopped: why nothing is taken in any more; empty where all is well.
      notes: by partition, what an operator should know of where reading of it began.
    """

    def __init__(
        self, log: Log, writer: str, group: str, subscription: list[str], intake: Intake, *,
        positions: ReadPositions, versions: RecordVersions, records_max: int, bytes_max: int,
    ) -> None:  # fmt: skip
        self._log, self._subscription, self._positions, self._versions = log, subscription, positions, versions
        self._intake = self._former = intake
        self._size, self.pace = BatchSize(records_max, bytes_max), TransactionPace("intake", bytes_max)
        # The epoch that counts, and the one since whose beginning reading has gone on without a gap.
        self._epoch = self._read_epoch = 0
        self.stopped = ""
        self.notes: dict[Partition, str] = {}
        self._closing = threading.Event()
        self._cursors = ReadCursors()
        # Gained, and it is not chosen yet where reading of them begins.
        self._unplaced: set[Partition] = set()
        self._placing = clock.Interval(_AGAIN_S, at_once=True)
        self._topic_ids: dict[str, str] = {}
        self._reads = self._tries = self._commits = 0
        self._linger_s = _LINGER_S
        self._failing = ""
        self._check_at_s = clock.monotonic_s() + _CHECK_EVERY_S
        self._under_way, self._changed = 0, threading.Condition()
        self._transactions = OverlappingTransactions(writer, self._open_producer, lambda: self._epoch, self._start_over)
        self._member = log.join_group(group, subscription, gained=self._note_gained, leaving=self._release_partitions)

    def use(self, intake: Intake, subscription: list[str]) -> None:
        """Decide by another intake from the next batch on, and read what it reads."""
        self._former, self._intake, self._subscription = self._intake, intake, subscription

    def read(self) -> LetterBatch | None:
        """Read the next batch of letters; return None where there is none within some milliseconds."""
        self._reads += 1
        if self.stopped:
            # Its partitions go to workers that can do something with them.
            self._member.subscribe([])
            self._member.read(1, _AGAIN_S)
            return None
        self._member.subscribe(self._subscription)
        self._check_topics()
        if self._read_epoch != self._epoch and not self._begin_anew():
            # Whoever does not read does not hear either that it was put out of its group. This will be read again.
            self._member.read(self._size.records, _AGAIN_S)
            return None
        self._size.limit_bytes(self.pace.bytes_max)
        if self._unplaced and self._placing.is_due():
            self._begin_reading(self._unplaced)
        messages, partitions = self._cursors.take_news(self._member.read(self._size.records, self._linger_s))
        if not messages:
            if not self._under_way:
                # Whatever failed, nothing is left to do.
                self._failing = ""
            return None
        try:
            messages = self._member.replace_unreadable(messages)
        except (KafkaException, TimeoutError) as error:
            self._start_over(str(error))
            return None
        self._size.learn(messages)
        letters = len(messages)
        with self._changed:
            self._under_way += 1
        positions = {each: self._cursors.find_position(each, self._topic_ids.get(each[0], "")) for each in partitions}
        topics = frozenset(topic for topic, _ in partitions)
        # Answered while the batch is prepared.
        recreated, size = self._member.ask_recreated(topics), self._size.estimate_bytes(letters)
        return LetterBatch(self._read_epoch, messages, positions, topics, recreated, size, letters)

    def _check_topics(self) -> None:
        """See now and then whether a topic was recreated: one with no more letters than were read of it shows nothing."""
        if clock.monotonic_s() >= self._check_at_s:
            self._check_at_s = clock.monotonic_s() + _CHECK_EVERY_S
            try:
                recreated = self._member.ask_recreated()()
            except (KafkaException, TimeoutError):
                return
            if recreated:
                self._start_over(f"deleted and made again: {', '.join(recreated)}")
            placed = self._member.owned - self._unplaced
            ids, find_request = self._topic_ids, self._positions.find_request
            if not all(self._cursors.follows_request(each, find_request(each, ids.get(each[0], ""))) for each in placed):
                self._start_over("an operator asked to read letters again")

    def _note_gained(self, gained: list[Partition]) -> None:
        self._unplaced.update(gained)
        self._placing = clock.Interval(_AGAIN_S, at_once=True)

    def _release_partitions(self, leaving: list[Partition]) -> None:
        self._drain(leaving)
        self._unplaced.difference_update(leaving)
        self._cursors.delete_cursors(leaving)
        for partition in leaving:
            self.notes.pop(partition, None)

    def closing(self) -> bool:
        """Whether it is being closed: what was not committed by then is read again by whoever comes next."""
        return self._closing.is_set()

    def list_probes(self) -> list[HealthProbe]:
        """List the health probes of intake; none once it is closing. Takes no lock, since a thread that hangs may hold it."""
        if self._closing.is_set():
            return []
        probes = [
            HealthProbe("reading letters", self._reads, busy=True),
            HealthProbe("taking letters in", self._tries, self._under_way > 0),
            HealthProbe("committing letters", self._commits, trouble=self._failing),
        ]
        ended = self._member.ended
        for partition in list(self._member.owned):
            done = self._cursors.find_committed(partition), ended.get(partition, 0)
            name = f"letters of {partition[0]}/{partition[1]}"
            probes.append(HealthProbe(name, done, place=partition, offset=max(done), thread="letters"))
        return probes

    def list_taken(self) -> dict[Partition, int]:
        """List the first offset that is not taken in, by partition that is read; safe in any thread."""
        ended = self._member.ended
        taken = {each: self._cursors.find_taken(each, ended.get(each, 0)) for each in list(self._member.owned)}
        return {partition: offset for partition, offset in taken.items() if offset is not None}

    def stop(self, why: str) -> None:
        """Take in nothing more, not even what was read already; it stays on its topics."""
        if not self.stopped:
            logger.error("no letter is taken in any more: %s", why)
            self.stopped = why
            self._epoch += 1

    def prepare(self, batch: LetterBatch, now_ms: int | None = None) -> PreparedBatch | None:
        """Prepare what is to be written for a batch, by the wall clock or `now_ms`; None if it was dropped, to be read again."""
        if batch.epoch == self._epoch and not self.closing():
            now_ms = clock.wall_ms() if now_ms is None else now_ms
            incarnations = {place: each.incarnation for place, each in batch.positions.items() if each.incarnation}
            result = self._deciding(batch).prepare(batch.handed_over(), now_ms, incarnations)
            return PreparedBatch(batch._replace(positions=self._versions.stamp(batch.positions)), result)
        self._done()
        return None

    def may_join(self, batch: LetterBatch, later: LetterBatch) -> bool:
        letters, size = batch.letters + later.letters, batch.size + later.size
        return batch.epoch == later.epoch and letters <= self._size.records and size <= self.pace.bytes_max

    def _deciding(self, batch: LetterBatch) -> Intake:
        """The intake in use, or the one before it where the batch has letters of a topic that is given up just now."""
        intake, former = self._intake, self._former
        if former is intake:
            return intake
        gone = any(former.reads_topic(topic) and not intake.reads_topic(topic) for topic in batch.topics)
        return former if gone else intake

    def write(self, prepared: PreparedBatch | None) -> WrittenBatch | None:
        """Write a batch while the one before is committed; None if it was dropped or undone, to be read again."""
        if prepared is None:
            return None
        batch, begun_s, transaction = prepared.batch, clock.monotonic_s(), None
        try:
            transaction = self._transactions.write(batch.epoch, partial(self._write, prepared))
        finally:
            if transaction is None:
                self.pace.note_failure(begun_s, batch.size)
                self._done(batch.reads)
        if transaction is None:
            return None
        return WrittenBatch(prepared.result, batch.positions, transaction, begun_s, batch.size, batch.reads)

    def _write(self, prepared: PreparedBatch, producer: TransactionalProducer) -> None:
        member, positions = self._member.metadata(), prepared.batch.positions
        # Asked after the metadata was taken: what is given up from here on makes that metadata stale, and the
        # broker refuses it.
        if not self._member.owned.issuperset(positions):
            raise TransactionAborted("partitions were given up")
        prepared.batch.confirm()
        self._intake.write(prepared.result, positions, member, producer)

    def commit(self, written: WrittenBatch) -> bool:
        """Commit what was written; False if it was undone, to be read again."""
        try:
            if not self._transactions.commit(written.transaction, partial(self._commit, written)):
                self.pace.note_failure(written.begun_s, written.size)
                return False
            self.pace.note_commit(written.begun_s, written.size)
            self._commits, self._failing = self._commits + 1, ""
            self._linger_s = min(max(_LINGER_S, clock.monotonic_s() - written.begun_s), _LINGER_S_MAX)
            return True
        finally:
            self._done(written.reads)

    def _commit(self, written: WrittenBatch, producer: TransactionalProducer) -> None:
        producer.commit()
        self._cursors.note_committed(written.positions)

    def _done(self, reads: int = 1) -> None:
        self._tries += 1
        with self._changed:
            self._under_way = max(0, self._under_way - reads)
            self._changed.notify_all()

    def _start_over(self, why: str) -> None:
        logger.warning("letters are read again from the committed offsets: %s", why)
        self._failing = why
        self._epoch += 1

    def _begin_anew(self) -> bool:
        """Read all partitions on from what was taken in, once nothing is under way; whether that is so."""
        epoch = self._epoch
        if not self._transactions.are_over(_AGAIN_S):
            return False
        self._unplaced = set(self._member.owned)
        if not self._begin_reading(self._member.owned):
            return False
        self._read_epoch = epoch
        return True

    def _begin_reading(self, partitions: Iterable[Partition]) -> bool:
        """Begin to read partitions where the service's own record and the group say; whether it could be learned."""
        try:
            self._member.begin_reading(set(partitions), self._choose_starts)
        except (KafkaException, TimeoutError) as error:
            logger.warning("cannot learn yet where to read on: %s", error)
            return False
        return True

    def _choose_starts(
        self, committed: Mapping[Partition, CommittedOffset], topic_ids: Mapping[str, str]
    ) -> dict[Partition, StartingPoint]:
        # In this order: what another worker was committing is decided when its offsets are told, and lies before the end of the
        # positions that is asked for then.
        self._positions.await_current()
        self._topic_ids = dict(topic_ids)
        bounds = self._log.fetch_partition_bounds(committed)
        starts = {
            partition: self._positions.find_start(partition, topic_ids[partition[0]], offset, bounds[partition])
            for partition, offset in committed.items()
            if partition in bounds
        }
        for partition, start in starts.items():
            self._cursors.begin_partition(partition, start, self._positions.find_incarnation(partition, topic_ids[partition[0]]))
            position = self._positions.find_position(partition)
            self._versions.set_last_version(partition, position.version if position else 0)
            self._note_start(partition, start)
        self._mend_group(starts, committed)
        self._unplaced.difference_update(starts)
        return starts

    def _note_start(self, partition: Partition, start: StartingPoint) -> None:
        if start.note and self.notes.get(partition) != start.note:
            logger.warning("letters of %s/%d: %s", *partition, start.note)
        if start.note:
            self.notes[partition] = start.note

    def _mend_group(self, starts: Mapping[Partition, StartingPoint], committed: Mapping[Partition, CommittedOffset]) -> None:
        """Have the group say where the service really is, for others who look at it."""
        wrong = {p: start for p, start in starts.items() if start.note and start.offset not in (None, committed[p].offset)}
        try:
            if wrong:
                self._member.commit_starts(wrong)
        except KafkaException as error:
            logger.warning("the offsets of the group stay as they are until the next letters come: %s", error)

    def _open_producer(self, name: str) -> TransactionalProducer:
        """A producer that has fenced its own past, however long the brokers take to answer."""
        while True:
            writer = self._log.make_producer(name)
            try:
                writer.open()
                return writer
            except RetryError as error:
                logger.warning("intake cannot begin yet: %s", error)
                self._tries, self._failing = self._tries + 1, str(error)
                if self._closing.wait(_AGAIN_S):
                    return writer
                writer.close()

    def _drain(self, leaving: list[Partition]) -> None:
        """Let batches that are under way be committed before their partitions go to another worker."""
        deadline = clock.Deadline(_DRAIN_S)
        with self._changed:
            while self._under_way and not deadline.has_passed():
                clock.wait(self._changed, deadline.remaining_s())
            late = self._under_way
        if late:
            # These partitions may come back, and be read again, before those batches have their turn.
            self._start_over(f"{late} batches were not committed before their partitions had to go")
        logger.info("intake gives up %d partitions", len(leaving))

    def close(self) -> None:
        """Finish the batch that is being committed, undo and drop those behind it, leave the group."""
        self._closing.set()
        self._epoch += 1
        self._transactions.end_transactions()
        with self._changed:
            self._under_way = 0
        self._member.close()
        self._transactions.close()
