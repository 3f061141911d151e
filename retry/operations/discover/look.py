"""What a cluster says of its topics: letters, offsets and groups. Nothing is joined, committed, sent or created.

Read are the newest records of each partition up to where a reader of committed records ends: more of topics whose name says
that dead letters lie there, a few of a few partitions of all others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple

import msgspec

from retry.errors import TopicsInvalid
from retry.kafka import authorization, consumer_groups, offset_ranges
from retry.kafka import topics as own_topics
from retry.kafka.authorization import Right
from retry.kafka.interface import Message, Partition
from retry.kafka.offset_ranges import OffsetSpec, Span
from retry.kafka.topic_ends import cut_to_newest
from retry.operations.cluster import Cluster
from retry.operations.discover import topic_words
from retry.operations.discover.found_topic import TopicSample
from retry.policies.topic_names import is_of_kafka

# How many letters lie in a topic, where only some of its offsets were read: brokers tell offsets, and not each has a letter.
#
# Ends of transactions have offsets, and so have records of transactions that were undone, and what was compacted away.

class LetterCount(msgspec.Struct):
    """Counts letters by the share of the offsets read that have one; `read_bytes` are of keys and values."""

    offsets: int = 0
    read_offsets: int = 0
    read_letters: int = 0
    read_bytes: int = 0

    def add_letter(self, letter_bytes: int) -> None:
        self.read_letters += 1
        self.read_bytes += letter_bytes

    @property
    def unread_bytes(self) -> int:
        """How large the letters at the other offsets may be, if each of these has one."""
        mean = self.read_bytes / self.read_letters if self.read_letters else 0
        return round(mean * (self.offsets - self.read_offsets))

    @property
    def is_estimate(self) -> bool:
        return self.read_offsets < self.offsets

    @property
    def letters(self) -> int:
        return self.count_in(self.offsets)

    def count_in(self, offsets: int) -> int:
        """Estimate how many letters some offsets hold, if they are like the offsets that were read; 0 where none were read.

        >>> LetterCount(offsets=380, read_offsets=190, read_letters=20).letters
        40
        """
        return round(offsets * self.read_letters / self.read_offsets) if self.read_offsets else 0


_ASK_S, _GROUPS_S = 20.0, 15.0
_OTHERS_NEWEST, _OTHERS_PARTITIONS = 3, 4
# As much of a topic is read to count its letters.
_SMALL_OFFSETS, _SMALL_BYTES = 10_000, 4 << 20
# Brokers answer with a whole batch of records at least; more than that is read in vain here.
_FETCH_BYTES = 64 << 10
Say = Callable[[str], None]
Spans = dict[Partition, Span]


class View(NamedTuple):
    """The topics, groups and letters that were seen in a cluster.

    Attributes:
      topics: all of the cluster that this user may see, with their number of partitions.
      readers: by topic, groups that have committed an offset in it.
      spans: where partitions begin and end, of topics that were looked at.
      unread: what lies before the letters that were read, of the partitions in `spans`.
      counts: by topic, how many letters there are, of topics that were looked at.
      samples: by topic, of those that were looked at and have letters, or a name of dead letters.
      unreadable: topics that look like dead letters by name and may not be read.
    """

    topics: Mapping[str, int]
    readers: Mapping[str, set[str]]
    groups: set[str]
    spans: Spans
    unread: list[Span]
    counts: Mapping[str, LetterCount]
    samples: Mapping[str, TopicSample]
    unreadable: list[str]


def sample_topics(cluster: Cluster, globs: Collection[str], newest: int, say: Say) -> View:
    """Look at the topics whose names match any of `globs`; raises `TopicsInvalid` where brokers did not answer.

    Args:
      newest: of each partition of a topic of dead letters, how many letters are read.
      say: told what could not be seen, in a line.
    """
    partitions = offset_ranges.partitions_of(cluster.admin, lambda name: not is_of_kafka(name), _ASK_S)
    topics: dict[str, int] = {}
    for name, _ in partitions:
        topics[name] = topics.get(name, 0) + 1
    unread = {*own_topics.list_internal_topics(cluster.settings.app_id), cluster.names.parked}
    wanted = [name for name in topics if name not in unread and any(fnmatchcase(name, glob) for glob in globs)]
    missing = {right.name for right in authorization.list_missing_rights(cluster.admin, [_read(name) for name in wanted])}
    may_be_read = {name for name in wanted if name not in missing}
    spans = _spans(cluster, [place for place in partitions if place[0] in may_be_read], say)
    samples = {name: TopicSample(name) for name in sorted(may_be_read)}
    newest_spans = cut_to_newest(partial(_read_spans, cluster), _count_wanted(spans, newest))
    counts = _count_offsets(spans, newest_spans)
    for batch in _read_spans(cluster, newest_spans):
        for message in batch:
            samples[message.topic() or ""].count_letter(message)
            counts[message.topic() or ""].add_letter(_count_message_bytes(message))
    readers, groups = _readers(cluster, say)
    unreadable = sorted(name for name in missing if topic_words.is_dead(name))
    unread_spans = _unread(spans, newest_spans)
    return View(topics, readers, groups, spans, unread_spans, counts=counts, samples=samples, unreadable=unreadable)


def read_small_topics(cluster: Cluster, view: View, topics: Iterable[str]) -> None:
    """Read what was not read yet of topics in which that is little, so that their letters are counted and not reckoned."""
    small = {topic for topic in topics if _is_small(view.counts[topic])}
    unread = [span for span in view.unread if span.topic in small]
    for batch in _read_spans(cluster, unread):
        for message in batch:
            view.counts[message.topic() or ""].add_letter(_count_message_bytes(message))
    for span in unread:
        view.counts[span.topic].read_offsets += span.stop - span.start


def _is_small(count: LetterCount) -> bool:
    return count.offsets - count.read_offsets <= _SMALL_OFFSETS and count.unread_bytes <= _SMALL_BYTES


def note_oldest(cluster: Cluster, view: View, topics: Iterable[str]) -> None:
    """Read the oldest letter of each partition of some topics, for its time alone."""
    wanted = set(topics)
    spans = [span for (topic, _), span in view.spans.items() if topic in wanted]
    for batch in _read_spans(cluster, spans, records_max=1):
        for message in batch:
            view.samples[message.topic() or ""].note_time(message)


def estimate_written_since(cluster: Cluster, view: View, topics: Iterable[str], at_ms: int) -> dict[str, int]:
    """Estimate by topic how many letters were written since a moment, by the timestamps of its records."""
    wanted = set(topics)
    places = [place for place in view.spans if place[0] in wanted]
    began = offset_ranges.find_offsets_at(cluster.admin, places, OffsetSpec.for_timestamp(at_ms), _ASK_S)
    counts = dict.fromkeys(wanted, 0)
    for place, offset in began.items():
        span = view.spans[place]
        counts[place[0]] += max(0, span.stop - max(offset, span.start))
    return {topic: view.counts[topic].count_in(offsets) for topic, offsets in counts.items()}


def _count_offsets(spans: Spans, read: list[Span]) -> dict[str, LetterCount]:
    counts: dict[str, LetterCount] = defaultdict(LetterCount)
    for (topic, _), span in spans.items():
        counts[topic].offsets += span.stop - span.start
    for span in read:
        counts[span.topic].read_offsets += span.stop - span.start
    return counts


def _unread(spans: Spans, read: list[Span]) -> list[Span]:
    starts = {(span.topic, span.partition): span.start for span in read}
    return [span._replace(stop=starts.get(place, span.stop)) for place, span in spans.items()]


def _count_message_bytes(message: Message) -> int:
    return len(message) + len(message.key() or b"")


def _read(topic: str) -> Right:
    return Right(authorization.TOPIC, topic, authorization.READ)


def _spans(cluster: Cluster, places: list[Partition], say: Say) -> Spans:
    first = offset_ranges.find_offsets_at(cluster.admin, places, OffsetSpec.earliest(), _ASK_S)
    last = offset_ranges.find_offsets_at(cluster.admin, places, OffsetSpec.latest(), _ASK_S)
    spans = {place: Span(*place, first[place], last[place]) for place in places if place in first and place in last}
    if silent := sorted({topic for topic, n in places if (topic, n) not in spans}):
        shown = ", ".join(silent[:5]) + (", …" if len(silent) > 5 else "")
        say(f"no answer for partitions of {len(silent)} topics, which are left out of counts: {shown}")
    return spans


def _count_wanted(spans: Spans, newest: int) -> dict[Span, int]:
    """Count the letters that are wanted of each span that is looked at."""
    looked_at: dict[str, int] = {}
    wanted = {}
    for (topic, _), span in spans.items():
        dead = topic_words.is_dead(topic) or topic_words.may_be_dead(topic)
        if span.start == span.stop or (not dead and looked_at.get(topic, 0) >= _OTHERS_PARTITIONS):
            continue
        looked_at[topic] = looked_at.get(topic, 0) + 1
        wanted[span] = newest if dead else min(newest, _OTHERS_NEWEST)
    return wanted


def _read_spans(cluster: Cluster, spans: list[Span], records_max: int | None = None) -> Iterator[list[Message]]:
    """Read all records of each span, or the first `records_max`; a topic that is deleted meanwhile is left out."""
    config = {**cluster.reader, "fetch.message.max.bytes": _FETCH_BYTES}
    left = {(span.topic, span.partition): span for span in spans}
    while left:
        try:
            for batch in offset_ranges.read_batches(config, list(left.values()), records_max=records_max):
                for message in batch:
                    place = message.topic() or "", message.partition() or 0
                    left[place] = left[place]._replace(start=(message.offset() or 0) + 1)
                yield batch
            return
        except TopicsInvalid:
            there = {topic for topic, _ in offset_ranges.partitions_of(cluster.admin, lambda _: True, _ASK_S)}
            if all(topic in there for topic, _ in left):
                raise
            left = {place: span for place, span in left.items() if place[0] in there}


def _readers(cluster: Cluster, say: Say) -> tuple[dict[str, set[str]], set[str]]:
    own = (cluster.names.intake_group, cluster.names.table_group)
    groups = [group for group in consumer_groups.list_groups(cluster.admin) if group not in own]
    committed, failed = consumer_groups.Committed(cluster.admin)(groups, _GROUPS_S)
    if failed:
        say(f"{len(failed)} of {len(groups)} consumer groups could not be asked, as {next(iter(failed.items()))}")
    readers: dict[str, set[str]] = {}
    for group, offsets in committed.items():
        for topic, _ in offsets:
            readers.setdefault(topic, set()).add(group)
    return readers, set(groups)
