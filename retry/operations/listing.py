"""Letters that a filter means: those that wait, soonest first, then those that are parked, by topic, partition and offset.

Nothing is joined, committed or sent. What cannot be meant is not read: no parking topic for letters that wait, and for parked
ones only the partition of the changelog that says which of them were returned. Memory does not grow with what waits or is
parked, but for the keys of what waits behind another letter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from retry import clock
from retry.delay_queue import returned_offsets
from retry.delay_queue.entry_keys import Source
from retry.delay_queue.envelope_codec import make_codec
from retry.delay_queue.returned_offsets import ParkedPlace
from retry.errors import TopicsInvalid
from retry.kafka import offset_ranges, topics
from retry.kafka.offset_ranges import Span
from retry.operations import waiting_entries
from retry.operations.cluster import Cluster, LetterRange
from retry.operations.explain.search import LetterLocation, parse_location
from retry.operations.found_letter import FoundLetter, make_parked_letter, make_waiting_letter
from retry.operations.letter_filter import predicate
from retry.operations.letter_filter.syntax import Filter
from retry.policies.registry import Registry
from retry.worker.parked_letters import ParkedReferences, read_claim

# Which records of parking topics were returned from there, and so are no parked letters any more.

class ReturnedRecords:
    """Tells of single records whether they were returned; bitmaps are read from the changelog unless `bitmap` returns them."""

    def __init__(self, cluster: Cluster, bitmap: Callable[[bytes], bytes | None] | None = None) -> None:
        self._cluster, self._bitmap = cluster, bitmap
        # Asked for once a topic, and not once a record.
        self.topic_hash = cache(self._topic_hash)

    def is_record_returned(self, record: LetterLocation) -> bool:
        """Whether the letter at this place was returned; raises `TopicsInvalid` where the changelog cannot be read."""
        if self._bitmap is None:
            self._bitmap = _read_committed(self._cluster).get
        return returned_offsets.is_offset_returned(self._bitmap(self.resolve_place(record).block()), record.offset)

    def resolve_place(self, record: LetterLocation) -> ParkedPlace:
        """Convert a place to one with the hash of the id of the topic that has this name now."""
        return ParkedPlace(self.topic_hash(record.topic), record.partition, record.offset)

    def _topic_hash(self, topic: str) -> bytes:
        return returned_offsets.hash_topic_id(topics.describe(self._cluster.admin, [topic])[topic].topic_id)


def _read_committed(cluster: Cluster) -> dict[bytes, bytes]:
    changelog = cluster.names.changelog
    cluster.partitions(changelog)
    spans = offset_ranges.find_readable_spans(cluster.admin, changelog, [returned_offsets.SHARD]).values()
    records = (message for messages in offset_ranges.read_batches(cluster.reader, spans) for message in messages)
    return {key: each.value() or b"" for each in records if (key := each.key() or b"").startswith(returned_offsets.RETURNED)}


_WAITING = "due:"
_HEX_CHARS_MAX = 2_000
# So long a listing looks in the outcomes for what was parked by reference; a worker looks again before it follows one.
_PROVE_S = 30.0
Say = Callable[[str], None]


class Cursor:
    """The position at which a listing goes on: behind the last waiting letter, in due order, or behind the last parked one.

    Its text is the cursor of a letter; None stands for the beginning. Raises `ValueError` where it is no cursor.
    """

    def __init__(self, text: str | None = None) -> None:
        self.waiting = b""
        self.parked: LetterLocation | None = None
        if text is not None and text.startswith(_WAITING) and len(text) < _HEX_CHARS_MAX:
            self.waiting = bytes.fromhex(text.removeprefix(_WAITING))
        elif text is not None:
            self.parked = parse_location(text)


class Listing(NamedTuple):
    """A search for letters that wait, are parked or were discarded.

    Attributes:
      newest: of each partition of a parking topic, how many records are looked at.
      say: called with a line on what is left out.
    """

    cluster: Cluster
    registry: Registry
    newest: int
    say: Say

    def find_letters(self, letter_filter: Filter, after: Cursor) -> Generator[FoundLetter, None, None]:
        """Find the letters that are meant, behind a cursor; raises `TopicsInvalid` where a topic cannot be read."""
        now_ms = clock.wall_ms()
        fits, states = predicate.build_predicate(letter_filter, now_ms), predicate.list_states(letter_filter)
        if "waiting" in states and after.parked is None:
            yield from filter(fits, self._iterate_waiting(after.waiting, predicate.find_latest_due_ms(letter_filter, now_ms)))
        returned = ReturnedRecords(self.cluster)
        rest = (each for each in self.iterate_resting(after, states) if fits(each))
        yield from (each for each in rest if not returned.is_record_returned(each.place))

    def _iterate_waiting(self, after: bytes, latest_due_ms: float) -> Iterator[FoundLetter]:
        with waiting_entries.open_changelog_table(self.cluster.settings) as table:
            for place_in_order, where, entry in waiting_entries.iterate_waiting(table, after, make_codec(self.cluster.settings)):
                if where.due_at_ms > latest_due_ms:
                    return
                yield make_waiting_letter(where, entry, self.registry, _WAITING + place_in_order.hex())

    def iterate_resting(self, after: Cursor, states: Collection[str] = ("parked", "discarded")) -> Iterator[FoundLetter]:
        """Read letters that were parked or discarded, by topic, partition and offset, behind a cursor."""
        behind, deadline = after.parked, clock.Deadline(_PROVE_S)
        for topic, partitions in self._rest_in(states).items():
            for readable in offset_ranges.find_readable_spans(self.cluster.admin, topic, range(partitions)).values():
                if behind is None or readable[:2] >= behind[:2]:
                    first = behind.offset + 1 if behind and readable[:2] == behind[:2] else 0
                    for letters in self._partition(readable, first):
                        self.prove_references(letters, deadline)
                        yield from letters

    def _rest_in(self, states: Collection[str]) -> dict[str, int]:
        own = self.cluster.names
        parking = {own.parked, *self.registry.parking()} if "parked" in states else set[str]()
        names = sorted(parking | ({own.discarded} if "discarded" in states else set()))
        there = topics.describe(self.cluster.admin, names) if names else {}
        for topic in names:
            # A deployment of before has no topic of discarded letters, and none are.
            if topic not in there and topic != own.discarded:
                self.say(f"there is no parking topic {topic}")
        return {topic: there[topic].partitions for topic in names if topic in there}

    def _partition(self, readable: Span, first: int) -> Iterator[list[FoundLetter]]:
        (span,) = self.cluster.cut_to_newest([readable], self.newest)
        if span.start > max(readable.start, first):
            where = f"{span.topic}/{span.partition}"
            self.say(f"{where}: only the newest {self.newest:,} records are looked at, from offset {span.start} on")
        span = span._replace(start=max(span.start, first))
        is_discarded = span.topic == self.cluster.names.discarded
        if span.start < span.stop:
            for batch in offset_ranges.read_batches(self.cluster.reader, [span]):
                yield [make_parked_letter(message, self.registry, discarded=is_discarded) for message in batch]

    def prove_references(self, letters: Sequence[FoundLetter], deadline: clock.Deadline) -> None:
        """Find out which of those that say so were parked by reference, as far as the time goes."""
        references = [letter for letter in letters if letter.is_reference and letter.state == "parked" and letter.mark is None]
        if not references:
            return
        outcomes, cluster = self.cluster.names.outcomes, self.cluster
        looked = ParkedReferences(cluster.admin, cluster.reader, outcomes, lambda: cluster.partitions(outcomes))
        claims = [read_claim(letter.record) for letter in references]
        for letter, is_proven in zip(references, looked.prove_claims(claims, deadline), strict=True):
            if is_proven is False:
                letter.disown()

    def waiting_at(self, where: Source) -> FoundLetter | None:
        with waiting_entries.open_changelog_table(self.cluster.settings) as table:
            entry = waiting_entries.find(table, where, make_codec(self.cluster.settings))
        return None if entry is None else make_waiting_letter(where, entry, self.registry, "")

    def parked_at(self, where: LetterLocation) -> FoundLetter | None:
        """Read the letter that is parked at a location; None where it no longer is. Raises `TopicsInvalid` of any other topic."""
        known = self.cluster.names.list_resting(self.registry.parking())
        if where.topic not in known:
            raise TopicsInvalid([f"{where.topic} is no parking topic"], f"take one of {', '.join(sorted(known))}")
        spans = self.cluster.spans(LetterRange(where.topic, where.partition, from_offset=where.offset))
        found = (m for batch in offset_ranges.read_batches(self.cluster.reader, spans, records_max=1) for m in batch)
        # Where retention has removed it, the first that is left comes instead.
        there = (message for message in found if message.offset() == where.offset)
        is_discarded = where.topic == self.cluster.names.discarded
        letters = [make_parked_letter(message, self.registry, discarded=is_discarded) for message in there]
        self.prove_references(letters, clock.Deadline(_PROVE_S))
        return next(iter(letters), None)
