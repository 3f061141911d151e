"""Ends of topics: where the newest records begin, what a group commits to be beyond all, what was there when a process began."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from retry import clock
from retry.clock import Deadline, Interval
from retry.errors import TopicsInvalid
from retry.kafka import client_config, offset_ranges, topics
from retry.kafka.client_config import Config
from retry.kafka.closing import close_consumer
from retry.kafka.interface import Message, Partition
from retry.kafka.offset_ranges import Span
from retry.record import Headers, read_headers
from retry.settings import Settings

# Finds where the newest records of partitions begin. An offset is no record: ends of transactions, records of transactions that
# were undone and what was compacted away have offsets, too, and nobody is given them to read.

# Reads the committed records of some spans, in batches.
SpanReader = Callable[[list[Span]], Iterable[list[Message]]]


def cut_to_newest(read: SpanReader, records_max: Mapping[Span, int], deadline: Deadline | None = None) -> list[Span]:
    """Cut spans so that each has no more than so many committed records, the newest that it has; there is one for each partition.

    Of a span with more offsets the newest are read, then twice as many before them, and so on until enough records are found.
    Where the deadline passes, spans may have fewer records than there are. Raises TopicsInvalid where `read` does.
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
    """

    def __init__(self, span: Span, wanted: int) -> None:
        self.span, self._wanted, self._window = span, wanted, wanted
        self.start = span.start if span.stop - span.start <= wanted else span.stop
        self.offsets = deque[int](maxlen=wanted)

    def is_done(self) -> bool:
        """Whether all records that are wanted were found, or there are no more."""
        return not self._wanted or self.start <= self.span.start

    def begin_window(self) -> Span:
        stop = self.start
        self.start = max(self.span.start, stop - self._window)
        self._window *= 2
        self.offsets = deque(maxlen=self._wanted)
        return self.span._replace(start=self.start, stop=stop)

    def end_window(self) -> None:
        self._wanted -= len(self.offsets)
        if not self._wanted:
            self.start = self.offsets[0]


# Whoever asks has other things to do in its thread.
_ASK_ENDS_S, _PARTITIONS_EVERY_S = 2.0, 60.0


class TopicEnds:
    """Asks again and again; how many partitions topics have is asked now and then."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._partitions: dict[str, int] = {}
        self._asking = Interval(_PARTITIONS_EVERY_S, at_once=True)

    def __call__(self, topics: Collection[str]) -> dict[str, dict[int, int]]:
        """Return the offset that a group must commit in each partition to pass its end; without topics where an end is unknown.

        Records are taken to be written in transactions, as retries are: behind each lies, or is to come, the mark that ends its
        transaction, which is no record.
        """
        if self._asking.is_due() or not self._partitions.keys() >= set(topics):
            self._ask_partitions(topics)
        known = {topic: self._partitions[topic] for topic in topics if topic in self._partitions}
        places = [(topic, n) for topic, partitions in known.items() for n in range(partitions)]
        # In this order: where both are the same nothing was undecided when the first was asked.
        decided = offset_ranges.find_stable_offsets(self._admin, places, _ASK_ENDS_S)
        ends = offset_ranges.find_end_offsets(self._admin, places, _ASK_ENDS_S)
        found: dict[str, dict[int, int]] = {topic: {} for topic in known}
        for topic, n in decided.keys() & ends.keys():
            end = ends[topic, n]
            found[topic][n] = max(0, end - 1) if decided[topic, n] == end else end
        return {topic: of for topic, of in found.items() if len(of) == known[topic]}

    def _ask_partitions(self, topics: Collection[str]) -> None:
        if not topics:
            return
        answers = self._admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=_ASK_ENDS_S)
        for topic, answer in answers.items():
            self._partitions.pop(topic, None)
            # One that is not there, or may not be seen, has no ends that anybody is told of.
            with suppress(KafkaException, TimeoutError):
                self._partitions[topic] = len(answer.result(_ASK_ENDS_S).partitions)


# What was on some topics when a process began: to be taken in before anything is sent, since among it may be what cancels.

log = logging.getLogger(__name__)

_ASK_S = 4.0
_AGAIN_S = 0.5
_SAY_EVERY_S = 10.0


class StartupBacklog:
    """Holds back every shard until the group of `member` has taken in what was there, and the shard has folded it."""

    def __init__(self, admin: AdminClient, reads: Callable[[str], bool], member: Config, changelog: str) -> None:
        self._admin, self._reads, self._changelog = admin, reads, changelog
        self._member = {name: value for name, value in member.items() if name != "group.instance.id"}
        self._left: dict[tuple[str, int], int] | None = None
        # By shard, up to where it has to be folded; None until that is known.
        self._folded: dict[int, int] | None = None
        self._asking, self._logging = Interval(_AGAIN_S, at_once=True), Interval(_SAY_EVERY_S)

    def holds(self, partition: int, next_offset: int) -> bool:
        """Whether nothing may be sent yet of this partition of the changelog, which is folded up to an offset."""
        if self._folded is None:
            return True
        if next_offset < self._folded.get(partition, 0):
            return True
        self._folded.pop(partition, None)
        return False

    def message(self) -> str:
        """Describe what is still waited for, as health shows it; empty where nothing is."""
        if self._folded is not None:
            return ""
        left = "asking how far that is" if self._left is None else f"{len(self._left)} partitions left"
        return f"what was there at the start is taken in first: {left}"

    def check_backlog(self) -> None:
        """Measure, every half second at most, how much of what was there at the start is left to take in."""
        if self._folded is not None or not self._asking.is_due():
            return
        try:
            self._measure_backlog()
        except (KafkaException, TimeoutError, TopicsInvalid) as error:
            log.warning("cannot learn yet what is to be taken in first: %s", error)
        self._asking.restart()

    def _measure_backlog(self) -> None:
        if self._left is None:
            self._left = self._there()
        behind = self._list_behind(self._left)
        self._left = {(span.topic, span.partition): span.stop for span in behind}
        if not behind:
            shards = offset_ranges.partitions_of(self._admin, lambda topic: topic == self._changelog, _ASK_S)
            self._folded = offset_ranges.ends(self._admin, self._changelog, (n for _, n in shards))
            log.info("what was there is taken in")
        elif self._logging.is_due():
            log.info(self.message())

    def _there(self) -> dict[tuple[str, int], int]:
        partitions = offset_ranges.partitions_of(self._admin, self._reads, _ASK_S)
        ends = offset_ranges.find_stable_offsets(self._admin, partitions) if partitions else {}
        if len(ends) < len(partitions):
            raise TimeoutError(f"no broker tells the ends of {sorted(set(partitions) - ends.keys())}")
        return {partition: end for partition, end in ends.items() if end > 0}

    def _list_behind(self, ends: dict[tuple[str, int], int]) -> list[Span]:
        """List the spans that the group has not taken in yet; empty where none of them holds a record."""
        if not ends:
            return []
        consumer = client_config.make_consumer(self._member)
        try:
            committed = consumer.committed([TopicPartition(*partition) for partition in ends], _ASK_S)
        finally:
            close_consumer(consumer)
        stops = [(c.topic, c.partition, max(0, c.offset), ends[c.topic, c.partition]) for c in committed]
        behind = [Span(*each) for each in stops if each[2] < each[3]]
        # What comes last may be the mark of a transaction, which nobody is given to read and to commit.
        return behind if behind and next(offset_ranges.read_batches(self._member, behind), None) is not None else []


# Where they begin has to be looked for, since ends of transactions lie between them.
_SEARCH_S, _READ_S = 3.0, 7.0


def read_newest_records(settings: Settings, topic: str, partition_max: Callable[[int], int]) -> Iterator[tuple[Message, Headers]]:
    """Read committed records with their headers, as far as can be read within ten seconds; none where there is no such topic.

    A record whose headers the client cannot tell is passed over. `partition_max` says how many of one partition, by how many
    there are. Raises TopicsInvalid, BrokersUnreachable.
    """
    # A client of its own for each reading: one that lives long can lose its brokers; see `retry.kafka.cluster`.
    admin, reader = client_config.connect_admin(settings), client_config.build_reader_config(settings)
    about = topics.describe(admin, [topic]).get(topic)
    if about is None:
        return
    spans = offset_ranges.find_readable_spans(admin, topic, range(about.partitions)).values()
    read = partial(offset_ranges.read_batches, reader, deadline=clock.Deadline(_SEARCH_S))
    newest = cut_to_newest(read, dict.fromkeys(spans, partition_max(about.partitions)), clock.Deadline(_SEARCH_S))
    for batch in offset_ranges.read_batches(reader, newest, clock.Deadline(_READ_S)):
        for message in batch:
            headers = read_headers(message)
            if headers is not None:
                yield message, headers
