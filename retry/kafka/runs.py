"""Single records of one partition, in the order in which reading comes to them: what is found, and what is gone.

Says nothing to a broker; `pointers` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Message, TopicPartition

Found = dict[int, Message | str]

GONE = "source_gone"
# Rather read over so many records than ask the broker anew.
_HOLE_RECORDS = 200


@dataclass
class Run:
    """Offsets of one partition that are wanted and lie close together, lowest first.

    Attributes:
      decided: the first offset that was not committed when the bounds were asked for.
      missing: what reading has not come to yet.
      found: what it has.
    """

    topic: str
    partition: int
    decided: int
    missing: deque[int]
    found: Found

    def begin(self) -> TopicPartition:
        """Where reading begins, or goes on."""
        return TopicPartition(self.topic, self.partition, self.missing[0])

    def take(self, message: Message) -> None:
        """Reading has come to this record, so what is wanted before it is not there."""
        offset = message.offset() or 0
        self._pass(offset)
        if self.missing and self.missing[0] == offset:
            self.found[self.missing.popleft()] = message

    def end(self, offset: int, end: int) -> None:
        """Reading has come to the end of what is committed; behind it nobody knows yet, up to the end of all there is."""
        self._pass(offset)
        self.found.update({late: GONE for late in self.missing if late >= end})
        self.missing.clear()

    def refuse(self) -> None:
        """The next offset is outside what is there: deleted just now, or beyond the end, where all that follow are too."""
        while self.missing:
            offset = self.missing.popleft()
            self.found[offset] = GONE
            if offset < self.decided:
                return

    def _pass(self, offset: int) -> None:
        while self.missing and self.missing[0] < offset:
            self.found[self.missing.popleft()] = GONE


def runs(offsets: list[int]) -> Iterator[list[int]]:
    """Sorted offsets, cut at large holes.

    >>> list(runs([1, 2, 100, 5_000]))
    [[1, 2, 100], [5000]]
    """
    run: list[int] = []
    for offset in offsets:
        if run and offset - run[-1] > _HOLE_RECORDS:
            yield run
            run = []
        run.append(offset)
    if run:
        yield run
