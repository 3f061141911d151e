"""The topics of a deployment, each read once as far as the bounds say, and once more uncommitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from retry.clock import Deadline, pause
from retry.delay_queue.blocks import ENTRIES_MAX
from retry.errors import TopicsInvalid
from retry.kafka import client_config, offset_ranges, topics
from retry.kafka.client_config import Config
from retry.kafka.interface import AdminClient
from retry.kafka.offset_ranges import Span
from retry.kafka.topics import Described
from retry.operations.cluster import Cluster, read_first_records
from retry.operations.read_positions import ReadOffsets
from retry.operations.verify.context import NEVER, Target, VerifiableLetters
from retry.operations.verify.deliveries import Deliveries
from retry.operations.verify.records import RecordReader
from retry.operations.verify.rows import OutcomeRow, Spill
from retry.record import PartitionId

# Up to where the topics are read while the service goes on.
#
# 1. how far intake has read, and of each topic the end that a read_committed reader sees: records before it are *in scope*
# 2. later, of each topic the end of everything, undecided records included: up to there it is read
#
# Whatever was committed by step 1 was written completely by then, in every topic that its transaction touched, so it lies
# before the ends of step 2. So all that belongs to a record in scope is read; what lies between the two is evidence and is not
# checked. A read_committed reader comes to the ends of step 2 as soon as the transactions are decided that were open then.

_DECIDED_S = 30.0
_ASK_AGAIN_S = 0.2


class ReadBounds(NamedTuple):
    """The spans that are read of each topic, and by partition the offset before which records are in scope."""

    spans: dict[str, list[Span]]
    scope_ends: dict[PartitionId, int]


def read_bounds(admin: AdminClient, partitions: dict[str, int]) -> ReadBounds:
    """Find where reading begins and ends now, of topics with so many partitions."""
    committed = {topic: offset_ranges.find_readable_spans(admin, topic, range(count)) for topic, count in partitions.items()}
    ends = {topic: offset_ranges.ends(admin, topic, range(count)) for topic, count in partitions.items()}
    return ReadBounds(
        {topic: [span._replace(stop=ends[topic][n]) for n, span in spans.items()] for topic, spans in committed.items()},
        {(topic, n): span.stop for topic, spans in committed.items() for n, span in spans.items()},
    )


def wait_for_transactions(admin: AdminClient, spans: Iterable[list[Span]]) -> set[str]:
    """Wait until all transactions in the spans have ended; return the topics in which one stays open for 30 s."""
    open_topics, deadline = [of_topic for of_topic in spans if of_topic], Deadline(_DECIDED_S)
    while True:
        open_topics = [of_topic for of_topic in open_topics if not _are_decided(admin, of_topic)]
        if not open_topics or deadline.has_passed():
            return {of_topic[0].topic for of_topic in open_topics}
        pause(_ASK_AGAIN_S)


def _are_decided(admin: AdminClient, spans: list[Span]) -> bool:
    committed = offset_ranges.find_readable_spans(admin, spans[0].topic, [span.partition for span in spans])
    return all(committed[span.partition].stop >= span.stop for span in spans)


def await_decided(admin: AdminClient, spans: Iterable[list[Span]]) -> None:
    """Wait until all transactions in the spans have ended; raises `TopicsInvalid` where one stays open for 30 s."""
    if topics := sorted(wait_for_transactions(admin, spans)):
        problems = [f"{topic}: a transaction has been open for {_DECIDED_S:.0f} s" for topic in topics]
        raise TopicsInvalid(problems, "end it with kafka-transactions.sh, then try again")


# What retention and compaction have left, and so what can still be checked.

_SLACK_MS = 60_000


class RetainedOffsets(NamedTuple):
    """The offsets and times of a topic that retention has left.

    Attributes:
      starts: by partition, the first offset that is still there, asked for when all was read.
      first_ms: by partition, the time of the first record that was read.
    """

    about: Described
    starts: Mapping[int, int]
    first_ms: Mapping[int, int]

    def since_ms(self, now_ms: int) -> int:
        """Return the time since which all records are there: 0 where none was ever deleted, NEVER where nobody can say."""
        firsts = [self.first_ms.get(n, self._emptied_ms(now_ms)) for n, start in self.starts.items() if start > 0]
        return min(NEVER, max(firsts) + _SLACK_MS) if firsts else 0

    def _emptied_ms(self, now_ms: int) -> int:
        """Return the time since which an emptied partition would have all records; NEVER where its size is limited."""
        config = self.about.config
        if config.get("retention.bytes", "-1") != "-1":
            return NEVER
        return now_ms - int(config.get("retention.ms", "0"))


def describe_target(retained: RetainedOffsets, now_ms: int, *, open_transaction: bool) -> Target:
    """Describe which deliveries can still be found on a topic; behind an open transaction nothing can be read."""
    if open_transaction:
        return Target(NEVER, "has a transaction that stays open")
    if is_compacted(retained.about):
        return Target(NEVER, "is compacted")
    since_ms = retained.since_ms(now_ms)
    if since_ms and retained.about.config.get("message.timestamp.type") != "LogAppendTime":
        return Target(NEVER, "has lost records to retention, and keeps no broker time")
    return Target(since_ms, "has lost records of that time to retention")


def is_compacted(about: Described) -> bool:
    """Whether records may be gone from the middle of a topic."""
    return "compact" in about.config.get("cleanup.policy", "delete")


def add_oldest_outcomes(
    letters: Mapping[Any, VerifiableLetters], spill: Spill, deliveries: Deliveries, since_ms: int
) -> dict[Any, VerifiableLetters]:
    """Go through outcomes once more: from which letter on they are kept, and whose the deliveries without `retry-source` are."""
    oldest = dict.fromkeys(letters, NEVER if since_ms else 0)
    for rows in spill.files():
        for row in rows:
            if isinstance(row, OutcomeRow):
                partition = row[1:3]
                if row.taken_ms >= since_ms and row.offset < oldest.get(partition, 0):
                    oldest[partition] = row.offset
                deliveries.match(row)
    deliveries.end_matching(all_outcomes=not since_ms)
    return {partition: each._replace(outcomes_from=oldest[partition]) for partition, each in letters.items()}


UNCOMMITTED = "read_uncommitted"
# The client holds as much of each partition, and counts only the bytes of records, not its own beside them.
_SPARING = {"queued.min.messages": 2_000, "queued.max.messages.kbytes": 2 << 10, "fetch.message.max.bytes": 128 << 10}

Batches = Callable[[Config, list[Span]], Iterator[list[Any]]]
ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]


def show_no_progress(_label: str, _length: int) -> AbstractContextManager[Callable[[int], object]]:
    """Stand in for a progress bar, and show nothing."""
    return nullcontext(lambda _n: None)


class TopicReading:
    """Reads topics into a `RecordReader`; raises `TopicsInvalid` where one of the service's own topics is missing.

    The `bar` shows progress: it is given a label and a number of records, then how many of them are done.
    """

    def __init__(self, cluster: Cluster, targets: set[str], bar: ProgressBar) -> None:
        self._admin, self._own, self._bar = cluster.admin, cluster.names, bar
        uncommitted = client_config.build_reader_config(cluster.settings, UNCOMMITTED)
        self._committed, self._uncommitted = {**cluster.reader, **_SPARING}, {**uncommitted, **_SPARING}
        own = {self._own.changelog, self._own.outcomes, self._own.parked}
        # Where nobody has ever discarded a letter that topic may be missing.
        self.described = topics.describe(self._admin, own | targets | {self._own.discarded})
        topics.demand_configs(self.described)
        if missing := sorted(own - self.described.keys()):
            raise TopicsInvalid([f"{topic} is missing" for topic in missing], "retry topics create")

    def find_read_bounds(self) -> ReadBounds:
        return read_bounds(self._admin, {topic: about.partitions for topic, about in self.described.items()})

    def letter_count(self) -> int:
        """Estimate how many letters were taken in at most: each record of the changelog puts or ends an entry, or a block."""
        changelog = self._own.changelog
        records = _count_records(read_bounds(self._admin, {changelog: self.described[changelog].partitions}).spans[changelog])
        return records // 2 * ENTRIES_MAX

    def read_own(self, reader: RecordReader, bounds: ReadBounds, since_ms: int) -> RetainedOffsets:
        """Read outcomes, those of the time asked for, and the changelog; what retention has left of outcomes."""
        outcomes, changelog = bounds.spans[self._own.outcomes], bounds.spans[self._own.changelog]
        await_decided(self._admin, [changelog, outcomes])
        if since_ms:
            stops = {span.partition: span.stop for span in outcomes}
            later = offset_ranges.find_spans_since(self._admin, self._own.outcomes, stops, since_ms)
            outcomes = [span._replace(stop=stops[span.partition]) for span in later]
        self._read("outcomes", outcomes, reader.add_outcome)
        self._read("changelog", changelog, reader.read_change)
        self._read("the same, uncommitted", outcomes + changelog, reader.add_uncommitted, config=self._uncommitted)
        return self._find_retained(self.described[self._own.outcomes], outcomes, reader.outcome_first_ms)

    def read_targets(self, reader: RecordReader, deliveries: Deliveries, bounds: ReadBounds, now_ms: int) -> dict[int, Target]:
        """Read where letters are delivered to: topics of the policy file, and as evidence those of earlier ones."""
        earlier = topics.describe(self._admin, reader.targets - self.described.keys(), optional=True)
        spans = bounds.spans | read_bounds(self._admin, {topic: about.partitions for topic, about in earlier.items()}).spans
        del spans[self._own.changelog], spans[self._own.outcomes]
        open_topics = wait_for_transactions(self._admin, spans.values())
        # Up to the transaction that stays open all can be read.
        for topic in open_topics:
            committed = offset_ranges.find_readable_spans(self._admin, topic, [span.partition for span in spans[topic]])
            spans[topic] = [span._replace(stop=min(span.stop, committed[span.partition].stop)) for span in spans[topic]]
        every = [span for of_topic in spans.values() for span in of_topic]
        deliveries.topic_ids = {topic: (self.described.get(topic) or earlier[topic]).topic_id for topic in spans}
        self._read("retry and parking topics", every, deliveries.add_committed, read_first_records)
        self._read("the same, uncommitted", every, deliveries.add_uncommitted, config=self._uncommitted)
        targets: dict[int, Target] = {}
        for topic, of_topic in spans.items():
            first_ms = {n: at_ms for (read, n), at_ms in deliveries.first_ms.items() if read == topic}
            retained = self._find_retained(self.described.get(topic) or earlier[topic], of_topic, first_ms)
            is_open = topic in open_topics
            targets[reader.names.topic(topic)] = describe_target(retained, now_ms, open_transaction=is_open)
        return targets

    def read_letters(
        self, reader: RecordReader, offsets: ReadOffsets, is_entry_source: Callable[[str], bool]
    ) -> dict[Any, VerifiableLetters]:
        """Read letters that were taken in, and those that outcomes name; what can be checked, by number of topic and partition.

        What lies on topics of entry sources is no letter.
        """
        positions = offsets.reached
        came_in = {topic for topic, _ in [*positions, *reader.letter_stop]} - reader.entry_sources
        dead = topics.describe(self._admin, {topic for topic in came_in if not is_entry_source(topic)})
        topics.demand_configs(dead)
        letters: dict[Any, VerifiableLetters] = {}
        spans = []
        for topic, about in dead.items():
            partitions, uncompacted = range(about.partitions), not is_compacted(about)
            committed = offset_ranges.find_readable_spans(self._admin, topic, partitions)
            ends = offset_ranges.ends(self._admin, topic, partitions)
            for n, span in committed.items():
                position = positions.get((topic, n), 0)
                reader.findings.not_taken_in += max(0, span.stop - max(position, span.start))
                stop = min(span.stop, max(position, reader.letter_stop.get((topic, n), 0)))
                spans.append(span._replace(stop=stop))
                again_from = offsets.read_again_from.get((topic, n), NEVER)
                letters[reader.names.topic(topic), n] = VerifiableLetters(0, span.start, stop, ends[n], uncompacted, again_from)
        self._read("letters", spans, lambda message: reader.dead_letter(message, positions))
        # What retention took away meanwhile was not read.
        for topic, about in dead.items():
            for n, start in offset_ranges.find_starts(self._admin, topic, range(about.partitions)).items():
                partition = reader.names.topic(topic), n
                letters[partition] = letters[partition]._replace(first=max(start, letters[partition].first))
        return letters

    def _read(
        self, label: str, spans: list[Span], take: Callable[[Any], object], batches: Batches = offset_ranges.read_batches,
        config: Config | None = None,
    ) -> None:  # fmt: skip
        with self._bar(label, _count_records(spans)) as advance:
            for batch in batches(config or self._committed, spans):
                for message in batch:
                    take(message)
                advance(len(batch))

    def _find_retained(self, about: Described, read: list[Span], first_ms: Mapping[int, int]) -> RetainedOffsets:
        starts = offset_ranges.find_starts(self._admin, read[0].topic, [span.partition for span in read])
        return RetainedOffsets(about, starts, first_ms)


def _count_records(spans: Iterable[Span]) -> int:
    return sum(max(0, span.stop - span.start) for span in spans)
