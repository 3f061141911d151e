"""Where this worker's reading stands in each dead-letter partition, and which of the letters that come are news.

librdkafka may go back by itself: where it finds out about another leader, or when the answer to an old question overrides a
seek. So a letter is news only where it lies at or behind the offset that is read next; all else was read before.

There is one exception: a partition may lose its end, where a broker leads that did not have it. What is written then lies at
offsets that were read before, but under a later leader epoch. In one partition epochs never go down from offset to offset, so
a letter of a later epoch than the last one that was read cannot have been there before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from retry import clock
from retry.intake.read_positions import ReadPosition
from retry.kafka.interface import Message, Partition, StartingPoint

log = logging.getLogger(__name__)

_SAY_EVERY_S = 5.0
_NEVER = 1 << 62


class ReadCursor:
    """The place in one partition that reading has come to.

    Attributes:
      leader_epoch: of the letter before it; -1 where that is not known.
      reread: the number of the last request to read the partition again that is followed.
    """

    __slots__ = ("committed_offset", "incarnation", "leader_epoch", "next_offset", "reread")

    def __init__(self, start: StartingPoint, incarnation: int) -> None:
        self.incarnation = incarnation
        self.next_offset, self.leader_epoch, self.reread = start.offset or 0, start.leader_epoch, start.reread
        self.committed_offset = self.next_offset

    def is_news(self, message: Message) -> bool:
        epoch = message.leader_epoch()
        return (message.offset() or 0) >= self.next_offset or (epoch is not None and epoch > self.leader_epoch >= 0)

    def pass_message(self, message: Message) -> None:
        epoch = message.leader_epoch()
        self.next_offset, self.leader_epoch = (message.offset() or 0) + 1, -1 if epoch is None else epoch


class ReadCursors:
    """The cursors of all partitions that are read; for the thread that reads, unless it says otherwise."""

    def __init__(self) -> None:
        self._cursors: dict[Partition, ReadCursor] = {}
        self._saying = clock.Interval(_SAY_EVERY_S, at_once=True)
        self._passed_over = 0

    def begin_partition(self, partition: Partition, start: StartingPoint, incarnation: int = 0) -> None:
        """Expect what lies from a starting point on, in this incarnation of the topic."""
        self._cursors[partition] = ReadCursor(start, incarnation)

    def follows_request(self, partition: Partition, number: int) -> bool:
        """Whether an operator's request to read a partition again is followed already."""
        cursor = self._cursors.get(partition)
        return cursor is not None and cursor.reread >= number

    def delete_cursors(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self._cursors.pop(partition, None)

    def take_news(self, messages: list[Message]) -> tuple[list[Message], list[Partition]]:
        """Return the letters that were not read before, in their order, and their partitions; they count as read from now on."""
        expected = {partition: cursor.next_offset for partition, cursor in self._cursors.items()}
        last: dict[Partition, Message] = {}
        for message in messages:
            partition: Partition = message.topic(), message.partition()  # type: ignore[assignment]
            offset: int = message.offset()  # type: ignore[assignment]
            if offset < expected.get(partition, _NEVER):
                return self._take_slowly(messages)
            expected[partition], last[partition] = offset + 1, message
        for partition, message in last.items():
            self._cursors[partition].pass_message(message)
        return messages, list(last)

    def _take_slowly(self, messages: list[Message]) -> tuple[list[Message], list[Partition]]:
        news = []
        for message in messages:
            cursor = self._cursors.get((message.topic() or "", message.partition() or 0))
            if cursor is not None and cursor.is_news(message):
                cursor.pass_message(message)
                news.append(message)
        self._passed_over += len(messages) - len(news)
        if self._saying.is_due():
            log.warning("%d letters came again that were read before; they are passed over", self._passed_over)
            self._passed_over = 0
        return news, list({(message.topic() or "", message.partition() or 0): None for message in news})

    def find_committed(self, partition: Partition) -> int:
        """Return the offset up to which this worker has taken in the letters of a partition. Safe in any thread."""
        cursor = self._cursors.get(partition)
        return cursor.committed_offset if cursor else 0

    def find_taken(self, partition: Partition, ended: int) -> int | None:
        """Return the first offset of a partition that is not taken in; None where reading has not begun. Safe in any thread.

        Where the client has come to an end (`ended`), only ends of transactions lie beyond what was committed.
        """
        cursor = self._cursors.get(partition)
        if cursor is None:
            return None
        is_idle = cursor.next_offset <= cursor.committed_offset
        return max(cursor.committed_offset, ended) if is_idle else cursor.committed_offset

    def note_committed(self, positions: Mapping[Partition, ReadPosition]) -> None:
        """Note that letters up to some read positions were taken in; safe in any thread."""
        for partition, position in positions.items():
            if cursor := self._cursors.get(partition):
                cursor.committed_offset = position.offset

    def find_position(self, partition: Partition, topic_id: str) -> ReadPosition:
        cursor = self._cursors[partition]
        return ReadPosition(
            topic_id=topic_id, offset=cursor.next_offset, leader_epoch=cursor.leader_epoch, reread=cursor.reread,
            incarnation=cursor.incarnation,
        )  # fmt: skip
