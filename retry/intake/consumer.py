"""The letters' side of a worker: a member of the intake group, and the producer that takes its batches in.

Two threads meet here. One reads batches ahead; the other takes them in. A batch that cannot be committed makes every
later one wrong, since they follow a gap: so the epoch is raised, batches of an older epoch are dropped, and reading
goes on from the committed offsets.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from confluent_kafka import KafkaException

from retry import clock
from retry.intake.batch import Batch, Decided
from retry.errors import RetryError, TransactionAborted, TransactionFailed
from retry.intake.intake import Intake
from retry.kafka.interface import Log, Partition, Writer
from retry.telemetry.health import Part

logger = logging.getLogger(__name__)

# Few letters make small batches, and every transaction costs the brokers the same.
_LINGER_S = 0.05
_DRAIN_S = 8.0
_AGAIN_S = 1.0
_LOOK_EVERY_S = 4.0


class Letters:
    """Reads batches (`read`), then takes them in (`settle`, `commit`); each from one thread at a time.

    Args:
      writer: the name of this worker's transactions; no other worker has the same.
      group: the intake group.
      subscription: topics, and patterns that begin with `^`.
      records_max, bytes_max: of a batch.
    """

    def __init__(
        self,
        log: Log,
        writer: str,
        group: str,
        subscription: list[str],
        intake: Intake,
        records_max: int,
        bytes_max: int,
    ) -> None:
        self._log, self._name, self._subscription = log, writer, subscription
        self._intake = self._former = intake
        self._records_max, self._bytes_max = records_max, bytes_max
        self._records = min(records_max, 1_000)
        # The epoch that counts, and the one since whose beginning reading has gone on without a gap.
        self._epoch = self._read_epoch = 0
        self.stopped = ""
        self._closing = threading.Event()
        # Where reading goes on, by partition: what comes from before that was read already.
        self._reached: dict[Partition, int] = {}
        # From where partitions came again; from the same place twice, and they are believed.
        self._again: dict[Partition, int] = {}
        # What this member committed last, with the id of the topic: only what has moved since is told again.
        self._committed: dict[Partition, tuple[int, str]] = {}
        self._reads = self._tries = self._commits = 0
        self._failing = ""
        self._look_at_s = clock.monotonic_s() + _LOOK_EVERY_S
        self._under_way, self._changed = 0, threading.Condition()
        self._committing = threading.Lock()
        self._writer = self._opened()
        self._member = log.member(group, subscription, gained=self._gained, leaving=self._drain)

    def use(self, intake: Intake, subscription: list[str]) -> None:
        """Decide by another intake from the next batch on, and read what it reads."""
        self._former, self._intake, self._subscription = self._intake, intake, subscription

    def read(self) -> Batch | None:
        """The next batch, or None if there is none within some milliseconds."""
        self._reads += 1
        if self.stopped:
            # Its partitions go to workers that can do something with them.
            self._member.subscribe([])
            self._member.read(1, _AGAIN_S)
            return None
        self._member.subscribe(self._subscription)
        self._look()
        if self._read_epoch != self._epoch and not self._rewound():
            # Whoever does not read does not hear either that it was put out of its group. This will be read again.
            self._member.read(self._records, _AGAIN_S)
            return None
        messages = self._member.read(self._records, _LINGER_S)
        if not messages:
            if not self._under_way:
                # Whatever failed, nothing is left to do.
                self._failing = ""
            return None
        first: dict[Any, int] = {(m.topic(), m.partition()): m.offset() or 0 for m in reversed(messages)}
        positions = self._member.positions()
        if self._went_back(first, {(p.topic, p.partition): p.metadata for p in positions}):
            self._start_over("letters came twice")
            return None
        self._reached |= {(p.topic, p.partition): p.offset for p in positions}
        # Bytes are bounded by counting records: as many as would have fitted, had all been like these.
        size = sum(map(len, messages)) // len(messages) + 1
        self._records = max(1, min(self._records_max, self._bytes_max // size))
        with self._changed:
            self._under_way += 1
        topics = frozenset(topic for topic, _ in first)
        # Answered while the batch is settled.
        return Batch(self._read_epoch, messages, positions, topics, self._member.ask_anew(topics))

    def _went_back(self, first: dict[Partition, int], ids: dict[Partition, str | None]) -> bool:
        """Whether the consumer went back by itself, as it may when the answer to an old question overrides a seek.

        What this member has committed stays read, whatever is answered. Only a partition that goes back to the same place once
        more, after all were rewound, has lost its end: it is read again.
        """
        back = {}
        for place, offset in first.items():
            committed, topic_id = self._committed.get(place, (0, ""))
            floor = max(self._reached.get(place, 0), committed if topic_id == ids.get(place) else 0)
            if offset >= floor:
                self._again.pop(place, None)
            elif self._again.get(place) != offset:
                back[place] = offset
            else:
                self._committed.pop(place, None)
        self._again |= back
        return bool(back)

    def _look(self) -> None:
        """Now and then; a topic that was made anew and has no more letters than were read of it says nothing by itself."""
        if clock.monotonic_s() >= self._look_at_s:
            self._look_at_s = clock.monotonic_s() + _LOOK_EVERY_S
            try:
                others = self._member.ask_anew()()
            except (KafkaException, TimeoutError):
                return
            if others:
                self._start_over(f"deleted and made again: {', '.join(others)}")

    def _gained(self, gained: list[Partition]) -> None:
        for partition in gained:
            for known in (self._reached, self._committed, self._again):
                known.pop(partition, None)

    def closing(self) -> bool:
        """Whether it is being closed: what was not settled by then is read again by whoever comes next."""
        return self._closing.is_set()

    def parts(self) -> list[Part]:
        """What must go on here; nothing, once it is being closed. Takes no lock, since whoever hangs may hold it."""
        if self._closing.is_set():
            return []
        found = [
            Part("reading letters", self._reads, busy=True),
            Part("taking letters in", self._tries, self._under_way > 0),
            Part("committing letters", self._commits, trouble=self._failing),
        ]
        committed, ended = self._committed, self._member.ended
        for place in list(self._member.owned):
            done = committed.get(place, (0, ""))[0], ended.get(place, 0)
            found.append(Part(f"letters of {place[0]}/{place[1]}", done, place=place, offset=max(done)))
        return found

    def stop(self, why: str) -> None:
        """Take in nothing more, not even what was read already; it stays on its topics."""
        if not self.stopped:
            logger.error("no letter is taken in any more: %s", why)
            self.stopped = why
            self._epoch += 1

    def settle(self, batch: Batch, now_ms: int | None = None) -> Decided | None:
        """What to write for a batch; None if it was dropped, to be read again.

        Args:
          now_ms: the time to decide by, where the wall clock is not to be asked.
        """
        if batch.epoch == self._epoch and not self.closing():
            now_ms = clock.wall_ms() if now_ms is None else now_ms
            return Decided(batch, self._deciding(batch).settle(batch.handed_over(), now_ms))
        self._done()
        return None

    def _deciding(self, batch: Batch) -> Intake:
        """The intake in use, or the one before it where the batch has letters of a topic that is given up just now.

        They were read while the old policy file had their topic; the new one knows nothing to do with them.
        """
        intake, former = self._intake, self._former
        if former is intake:
            return intake
        gone = any(former.reads(topic) and not intake.reads(topic) for topic in batch.topics)
        return former if gone else intake

    def commit(self, decided: Decided) -> bool:
        """Write it; False if it was dropped or undone, to be read again."""
        try:
            with self._committing:
                return decided.batch.epoch == self._epoch and self._commit(decided)
        finally:
            self._done()

    def _commit(self, decided: Decided) -> bool:
        positions = [p for p in decided.batch.positions if self._committed.get((p.topic, p.partition)) != (p.offset, p.metadata)]
        try:
            member = self._member.metadata()
            # Asked after the metadata was taken: what is given up from here on makes that metadata stale, and the
            # broker refuses it.
            owned = self._member.owned
            if not all((p.topic, p.partition) in owned for p in positions):
                raise TransactionAborted("partitions were given up")
            decided.batch.confirm()
            self._intake.commit(decided.settled, positions, member, self._writer)
        except TransactionAborted as error:
            self._start_over(str(error))
            return False
        except TransactionFailed as error:
            self._start_over(f"{type(error).__name__}: {error}")
            self._writer.close()
            self._writer = self._opened()
            return False
        self._committed |= {(p.topic, p.partition): (p.offset, p.metadata) for p in positions}
        self._commits, self._failing = self._commits + 1, ""
        return True

    def _done(self) -> None:
        self._tries += 1
        with self._changed:
            self._under_way = max(0, self._under_way - 1)
            self._changed.notify_all()

    def _start_over(self, why: str) -> None:
        logger.warning("letters are read again from the committed offsets: %s", why)
        self._failing = why
        self._epoch += 1

    def _rewound(self) -> bool:
        epoch = self._epoch
        try:
            self._reached = self._member.rewind()
        except (KafkaException, TimeoutError) as error:
            logger.warning("cannot learn the committed offsets yet: %s", error)
            return False
        self._read_epoch = epoch
        return True

    def _opened(self) -> Writer:
        """A producer that has fenced its own past, however long the brokers take to answer."""
        while True:
            writer = self._log.writer(self._name)
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
            while self._under_way and not deadline.passed():
                clock.wait(self._changed, deadline.remaining_s())
            late = self._under_way
        if late:
            # These partitions may come back, and be read again, before those batches have their turn.
            self._start_over(f"{late} batches were not committed before their partitions had to go")
        logger.info("intake gives up %d partitions", len(leaving))

    def close(self) -> None:
        """Finish the batch that is being committed, drop those that were read ahead, leave the group."""
        self._closing.set()
        with self._committing:
            self._epoch += 1
        with self._changed:
            self._under_way = 0
        self._member.close()
        self._writer.close()
