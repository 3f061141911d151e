"""Letters that a filter means: those that wait, soonest first, then those that are parked, by topic, partition and offset.

Nothing is joined, committed or sent. What cannot be meant is not read: no changelog for parked letters, no parking topic for
those that wait. Memory does not grow with what waits or is parked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from retry import clock
from retry.delay_queue.entry_keys import Source
from retry.errors import TopicsInvalid
from retry.kafka import offset_ranges, topics
from retry.operations import waiting_entries
from retry.operations.cluster import Cluster, LetterRange
from retry.operations.explain.search import LetterLocation, place
from retry.operations.letter_filter import predicate
from retry.operations.letter_filter.syntax import Filter
from retry.operations.letters.found_letter import FoundLetter, parked, waiting
from retry.policies.registry import Registry

_WAITING = "due:"
_HEX_CHARS_MAX = 2_000
Say = Callable[[str], None]


class Cursor:
    """Where a listing goes on: behind the last letter that waits, in due order, or the last one that is parked.

    Args:
      text: the cursor of a letter; None for the beginning.

    Raises:
      ValueError: that is no cursor.
    """

    def __init__(self, text: str | None = None) -> None:
        self.waiting = b""
        self.parked: LetterLocation | None = None
        if text is not None and text.startswith(_WAITING) and len(text) < _HEX_CHARS_MAX:
            self.waiting = bytes.fromhex(text.removeprefix(_WAITING))
        elif text is not None:
            self.parked = place(text)


class Listing(NamedTuple):
    """Where letters are looked for.

    Attributes:
      newest: of each partition of a parking topic, how many offsets are looked at.
      say: told what is left out, in a line.
    """

    cluster: Cluster
    registry: Registry
    newest: int
    say: Say

    def letters(self, meant: Filter, after: Cursor) -> Generator[FoundLetter, None, None]:
        """The letters that are meant, behind a cursor.

        Raises:
          TopicsInvalid: a topic is missing, or cannot be read.
        """
        fits, states = predicate.predicate(meant, clock.wall_ms()), predicate.states(meant)
        if "waiting" in states and after.parked is None:
            yield from filter(fits, self._waiting(after.waiting))
        if "parked" in states:
            yield from filter(fits, self._parked(after.parked))

    def _waiting(self, after: bytes) -> Iterator[FoundLetter]:
        with waiting_entries.folded(self.cluster.settings) as table:
            for place_in_order, where, entry in waiting_entries.following(table, after):
                yield waiting(where, entry, self.registry, _WAITING + place_in_order.hex())

    def _parked(self, after: LetterLocation | None) -> Iterator[FoundLetter]:
        names = sorted({self.cluster.names.parked, *self.registry.parking()})
        there = topics.describe(self.cluster.admin, names)
        for topic in names:
            if topic not in there:
                self.say(f"there is no parking topic {topic}")
                continue
            for partition in range(there[topic].partitions):
                if after is None or (topic, partition) >= after[:2]:
                    first = after[2] + 1 if after and after[:2] == (topic, partition) else 0
                    yield from self._partition(topic, partition, first)

    def _partition(self, topic: str, partition: int, first: int) -> Iterator[FoundLetter]:
        (readable,) = self.cluster.spans(LetterRange(topic, partition))
        (span,) = self.cluster.spans(LetterRange(topic, partition, limit=self.newest))
        if span.start > max(readable.start, first):
            self.say(f"{topic}/{partition}: only the newest {self.newest:,} offsets are looked at, from offset {span.start} on")
        span = span._replace(start=max(span.start, first))
        if span.start < span.stop:
            for batch in offset_ranges.batches(self.cluster.reader, [span]):
                yield from (parked(message, self.registry) for message in batch)

    def waiting_at(self, where: Source) -> FoundLetter | None:
        """The letter that waits there; None where it waits no more."""
        with waiting_entries.folded(self.cluster.settings) as table:
            entry = waiting_entries.find(table, where)
        return None if entry is None else waiting(where, entry, self.registry, "")

    def parked_at(self, where: LetterLocation) -> FoundLetter | None:
        """The letter that is parked there; None where nothing is any more.

        Raises:
          TopicsInvalid: that is no parking topic, or it cannot be read.
        """
        known = {self.cluster.names.parked, *self.registry.parking()}
        if where.topic not in known:
            raise TopicsInvalid([f"{where.topic} is no parking topic"], f"take one of {', '.join(sorted(known))}")
        spans = self.cluster.spans(LetterRange(where.topic, where.partition, from_offset=where.offset, limit=1))
        found = (message for batch in offset_ranges.batches(self.cluster.reader, spans) for message in batch)
        return next((parked(message, self.registry) for message in found), None)
