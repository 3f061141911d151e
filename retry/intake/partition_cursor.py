"""Where reading of one dead-letter partition stands, and whether letters that come are news.

librdkafka may go back by itself, when the answer to an old question overrides a seek. What this worker has read or committed
stays read, whatever the client brings again.
"""

from __future__ import annotations

from enum import Enum


class Arrival(Enum):
    """What a batch's first letter of a partition says."""

    NEWS = "it follows what was read, or comes after a gap"
    WENT_BACK = "it was read before: reading goes on from the committed offsets, for all partitions"
    LOST_ITS_END = "it came back to the same place once more after that: the partition has lost its end, and is read again"


class PartitionCursor:
    """The offsets of one partition that a reader goes by.

    Attributes:
      read_to: where reading goes on.
      committed: where this worker has committed that it goes on, and the id of the topic then; None where it has not.
      sent: the same with what is about to be committed.
    """

    __slots__ = ("committed", "read_to", "sent", "went_back_to")

    def __init__(self) -> None:
        self.read_to = 0
        self.committed: tuple[int, str] | None = None
        self.sent: tuple[int, str] | None = None
        self.went_back_to: int | None = None

    def arrives(self, first_offset: int, topic_id: str | None) -> Arrival:
        """What it means that a batch begins at an offset of this partition.

        >>> cursor = PartitionCursor()
        >>> cursor.read_to = 10
        >>> [cursor.arrives(offset, "id").name for offset in (10, 12, 3, 3)]
        ['NEWS', 'NEWS', 'WENT_BACK', 'LOST_ITS_END']
        """
        committed = self.committed[0] if self.committed and self.committed[1] == topic_id else 0
        if first_offset >= max(self.read_to, committed):
            self.went_back_to = None
            return Arrival.NEWS
        if first_offset != self.went_back_to:
            self.went_back_to = first_offset
            return Arrival.WENT_BACK
        self.committed = self.sent = None
        return Arrival.LOST_ITS_END
