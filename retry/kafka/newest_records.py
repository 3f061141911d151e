"""Finds where the newest records of partitions begin. An offset is no record: ends of transactions, records of transactions that
were undone and what was compacted away have offsets, too, and nobody is given them to read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from retry.clock import Deadline
from retry.kafka.interface import Message, Partition
from retry.kafka.offset_ranges import Span

# Reads the committed records of some spans, in batches.
SpanReader = Callable[[list[Span]], Iterable[list[Message]]]


def cut_to_newest(read: SpanReader, records_max: Mapping[Span, int], deadline: Deadline | None = None) -> list[Span]:
    """Cut spans so that each has no more than so many committed records, the newest that it has.

    A span of no more offsets than that stays as it is. Of any other one the newest offsets are read, then twice as many before
    them, and so on until enough records are found. Memory grows with the number of records that are wanted, not with their bytes.

    Args:
      read: reads the records of spans; those of each partition in their order.
      records_max: by span, how many records; one span for each partition.
      deadline: where it passes, spans are cut where the search has come to: they may have fewer records than there are.

    Raises:
      TopicsInvalid: `read` raised it.
    """
    searches = [_Search(span, wanted) for span, wanted in records_max.items()]
    while (open_searches := [each for each in searches if not each.is_done()]) and not (deadline and deadline.has_passed()):
        windows: dict[Partition, _Search] = {(each.span.topic, each.span.partition): each for each in open_searches}
        for batch in read([each.begin_window() for each in open_searches]):
            for message in batch:
                windows[message.topic() or "", message.partition() or 0].offsets.append(message.offset() or 0)
        for each in open_searches:
            each.end_window()
    return [each.span._replace(start=each.start) for each in searches]


class _Search:
    """Goes back in one span, by windows of offsets that double.

    Attributes:
      start: where what was searched begins; in the end, where the span is to begin.
      offsets: the newest records of the window, as many as are still wanted.
    """

    def __init__(self, span: Span, wanted: int) -> None:
        self.span, self._wanted, self._window = span, wanted, wanted
        self.start = span.start if span.stop - span.start <= wanted else span.stop
        self.offsets = deque[int](maxlen=wanted)

    def is_done(self) -> bool:
        """Whether all records that are wanted were found, or there are no more."""
        return not self._wanted or self.start <= self.span.start

    def begin_window(self) -> Span:
        """The offsets to read next."""
        stop = self.start
        self.start = max(self.span.start, stop - self._window)
        self._window *= 2
        self.offsets = deque(maxlen=self._wanted)
        return self.span._replace(start=self.start, stop=stop)

    def end_window(self) -> None:
        """Count what was found; where that is enough, the span begins with the first of it."""
        self._wanted -= len(self.offsets)
        if not self._wanted:
            self.start = self.offsets[0]
