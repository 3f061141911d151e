"""Keeps the record of recent lineages up to date: one thread follows its topic, the one that traces letters folds.

That thread and client read the topic of read positions, too. At its start a worker takes in no letter before it has reached what
was there then.
"""

from __future__ import annotations

import logging
from collections import deque

from retry import clock
from retry.errors import LineageUnreadable, ReadPositionNewer
from retry.intake.attempts import RampedLineages, RecentLineages
from retry.intake.read_positions import PARTITION, ReadPositions
from retry.kafka.interface import KafkaException, Log, Message
from retry.telemetry.health import HealthProbe
from retry.telemetry.unreadable_records import UNREADABLE

logger = logging.getLogger(__name__)

_LINGER_S = 0.5
_RECORDS_MAX = 100
_WAIT_S = 0.02
_NOW_S, _SOON_S = 1.0, 0.002
_BEYOND = 1 << 62


class LineageFollower:
    """Follows (`read`, one thread), and folds what was read (`catch_up`, another).

    Attributes:
      trouble: why no letter may be taken in any more; empty where all is well.
    """

    def __init__(
        self, log: Log, topic: str, partitions: int, lineages: RecentLineages, positions: ReadPositions,
        ramped: RampedLineages | None = None,
    ) -> None:  # fmt: skip
        self.lineages, self.trouble = lineages, ""
        self.ramped, self.positions = ramped, positions
        self._read: deque[Message] = deque()
        self._log, self._follower = log, log.make_reader()
        self._topic, self._turns, self._closing = topic, 0, False
        # Up to where it is folded, by partition.
        self._reached = dict.fromkeys(range(partitions), 0)
        bounds = log.fetch_bounds(topic, range(partitions))
        self._missing = {partition: end for partition, (_, end) in bounds.items() if end > 0}
        for partition in range(partitions):
            self._follower.follow_partition(topic, partition, 0)
        self._follower.follow_partition(positions.topic, PARTITION, 0)

    def read(self) -> None:
        self._turns += 1
        # One by itself: a client that is asked for more waits for more, and a retry that is due at once comes back meanwhile.
        if messages := self._follower.read(1, _LINGER_S):
            messages += self._follower.read(_RECORDS_MAX, 0)
            self._read.extend(message for message in messages if message.topic() == self._topic)
            self._fold_positions([message for message in messages if message.topic() != self._topic])

    def _fold_positions(self, messages: list[Message]) -> None:
        for message in messages:
            try:
                self.positions.apply_message(message)
            except ReadPositionNewer as error:
                # Whoever goes by an older record would take letters in again.
                self.trouble = f"{message.topic()}/{message.offset()}: {error}"

    def part(self) -> HealthProbe:
        """Return the health probe of reading lineages, which must go on until the follower is closed."""
        # A place is here to be asked for by workers that own no partition, too.
        return HealthProbe("reading lineages", self._turns, not self._closing, (self._topic, 0), _BEYOND)

    def catch_up(self) -> None:
        """Fold what was read; for the first time, wait until that is all that was there at the start."""
        while True:
            self._fold_read()
            if not self._missing:
                return
            clock.pause(_WAIT_S)

    def catch_up_to_now(self) -> None:
        """Fold all that is there by now: a letter tells of a send that is not on record here."""
        try:
            bounds = self._log.fetch_bounds(self._topic, self._reached)
        except (KafkaException, TimeoutError) as error:
            # Nothing can be committed without brokers: the letter will be read, and looked for, again.
            logger.warning("the end of %s is not known: %s", self._topic, error)
            return
        deadline = clock.Deadline(_NOW_S)
        while any(self._reached[n] < end for n, (_, end) in bounds.items()) and not self._closing and not deadline.has_passed():
            clock.pause(_SOON_S)
            self._fold_read()

    def _fold_read(self) -> None:
        while self._read:
            self._apply_message(self._read.popleft())

    def _apply_message(self, message: Message) -> None:
        partition, offset = message.partition() or 0, message.offset() or 0
        if message.error() is None:
            try:
                self.lineages.apply_batch(message.value() or b"")
                if self.ramped is not None and (key := message.key()):
                    self.ramped.apply_record(key, message.value() or b"")
            except LineageUnreadable as error:
                # Counts only: a letter whose sends are not known here is known by its headers. So it is where a newer version
                # wrote them; one record of a stranger that looks so must not keep every letter of everybody waiting.
                UNREADABLE.pass_over(message.topic(), partition, offset, error)
            offset += 1
        self._reached[partition] = offset
        if offset >= self._missing.get(partition, 0):
            self._missing.pop(partition, None)

    def close(self) -> None:
        self._closing = True
        self._missing.clear()
        self._follower.close()
