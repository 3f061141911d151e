"""Where partitions begin and end, and the records between two offsets, read once and outside every group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from retry.clock import Deadline
from retry.errors import TopicsInvalid
from retry.kafka import authorization, client_config
from retry.kafka.asked_again import NOT_KNOWN_YET, ask_until_answered
from retry.kafka.authorization import Right
from retry.kafka.client_config import Config
from retry.kafka.closing import close_consumer
from retry.kafka.interface import Partition
from retry.kafka.reading_loop import MISSING_TOPIC, ErrorLog, ReadingLoop, is_end

log = logging.getLogger(__name__)

_ASK_S, _ENDS_S = 15.0, 2.0
_LOOK_S, _LATE_S = 5.0, 0.5
_SILENCE_S = 30.0
_WAIT_S = 0.2
_FORMER_LEADER = (KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION)
# Records beyond this wait in the client's own queue, whose bytes are bounded.
_BATCH = 500


class Span(NamedTuple):
    """The records of a partition from `start` to before `stop`; some of these offsets may have none."""

    topic: str
    partition: int
    start: int
    stop: int


class ReadableEnd(NamedTuple):
    """The end of one partition, for two kinds of readers.

    Attributes:
      decided: the first offset that readers of committed records do not get yet.
      end: the offset of the next record.
    """

    decided: int
    end: int


def partitions_of(admin: AdminClient, reads: Callable[[str], bool], within_s: float) -> list[Partition]:
    """List the partitions of all topics that `reads` accepts; raises KafkaException where those of a topic are not known."""

    def query_cluster(left_s: float) -> list[Partition]:
        topics = {name: about for name, about in admin.list_topics(timeout=left_s).topics.items() if reads(name)}
        for name, about in topics.items():
            if about.error is not None:
                raise KafkaException(KafkaError(about.error.code(), f"{name}: {about.error.str()}"))
        return [(name, n) for name, about in topics.items() for n in about.partitions]

    return ask_until_answered(query_cluster, within_s)


def find_readable_spans(admin: AdminClient, topic: str, partitions: Iterable[int]) -> dict[int, Span]:
    """Return the span of each partition from its first record to where a read_committed reader ends now."""
    numbers = list(partitions)
    first, last = (_offsets(admin, topic, numbers, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
    return {n: Span(topic, n, first[n], last[n]) for n in numbers}


def find_spans_since(admin: AdminClient, topic: str, partitions: Iterable[int], at_ms: int) -> list[Span]:
    """List the spans of partitions, each from the first record whose timestamp is `at_ms` or later to the end."""
    ends = find_readable_spans(admin, topic, partitions)
    starts = _offsets(admin, topic, ends, OffsetSpec.for_timestamp(max(0, at_ms)))
    return [span._replace(start=starts[n] if starts[n] >= 0 else span.stop) for n, span in ends.items()]


def find_spans_between(admin: AdminClient, topic: str, partitions: Iterable[int], from_ms: int, to_ms: int) -> list[Span]:
    """Find the span of each partition, from its first record at `from_ms` or later to before its first record after `to_ms`."""
    spans = find_spans_since(admin, topic, partitions, from_ms)
    stops = _offsets(admin, topic, [span.partition for span in spans], OffsetSpec.for_timestamp(max(0, to_ms + 1)))
    return [span._replace(stop=stops[span.partition] if stops[span.partition] >= 0 else span.stop) for span in spans]


def find_starts(admin: AdminClient, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    return _offsets(admin, topic, partitions, OffsetSpec.earliest())


def ends(admin: AdminClient, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """Return the offset behind the last record of each partition, records of open transactions included."""
    return _offsets(admin, topic, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)


def find_stable_offsets(admin: AdminClient, partitions: Iterable[Partition], within_s: float = _LOOK_S) -> dict[Partition, int]:
    """Find where readers of committed records end now, by partition; omit partitions without an answer within `within_s`."""
    return find_offsets_at(admin, partitions, OffsetSpec.latest(), within_s)


def find_first_offsets(admin: AdminClient, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """Find the offset of each partition's first record; omit partitions without an answer within a few seconds."""
    return find_offsets_at(admin, partitions, OffsetSpec.earliest(), _LOOK_S)


def find_end_offsets(admin: AdminClient, partitions: Iterable[Partition], within_s: float = _LOOK_S) -> dict[Partition, int]:
    """Find the offset behind each partition's last record, decided or not; omit partitions without an answer in `within_s`."""
    return find_offsets_at(admin, partitions, OffsetSpec.latest(), within_s, IsolationLevel.READ_UNCOMMITTED)


def find_offsets_at(
    admin: AdminClient, partitions: Iterable[Partition], spec: OffsetSpec, within_s: float,
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> dict[Partition, int]:
    """Find offsets of many partitions at once, for readers of committed records; omit partitions without an answer in time.

    Where a moment is asked for behind which there is no record, the client says -1, which is left out.
    """
    offsets, deadline = {}, Deadline(within_s)
    request = {TopicPartition(*partition): spec for partition in partitions}
    if not request:
        return {}
    answers = admin.list_offsets(request, isolation_level=isolation_level, request_timeout=within_s)
    for place, answer in answers.items():
        try:
            offset = answer.result(deadline.remaining_s() + _LATE_S).offset
        except (KafkaException, TimeoutError) as error:
            # Whatever it is called: of a frozen broker's partitions the client says that they are unknown.
            log.debug("%s/%d: %s", place.topic, place.partition, error)
            continue
        if offset >= 0:
            offsets[place.topic, place.partition] = offset
    return offsets


def find_newest_ms(admin: AdminClient, topic: str, partitions: Iterable[int]) -> int:
    """Return the newest timestamp of a record in some partitions, in milliseconds since 1970; -1 where there is none.

    Raises KafkaException or TimeoutError where nobody answers.
    """
    request = {TopicPartition(topic, n): OffsetSpec.max_timestamp() for n in partitions}

    def query_cluster(within_s: float) -> int:
        answers = admin.list_offsets(request, request_timeout=within_s)
        return max((int(answer.result(within_s).timestamp) for answer in answers.values()), default=-1)

    return ask_until_answered(query_cluster, _ASK_S)


def _offsets(
    admin: AdminClient, topic: str, partitions: Iterable[int], spec: OffsetSpec,
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> dict[int, int]:  # fmt: skip
    request = {TopicPartition(topic, n): spec for n in partitions}

    def query_cluster(within_s: float) -> dict[int, int]:
        answers = admin.list_offsets(request, isolation_level=isolation_level, request_timeout=within_s)
        try:
            return {place.partition: answer.result(within_s).offset for place, answer in answers.items()}
        except KafkaException as error:
            if error.args[0].code() in _FORMER_LEADER:
                # The client goes on asking by the leader that it knows, until it is told of all topics anew (librdkafka 2.16).
                admin.list_topics(timeout=within_s)
            raise

    # Whoever asks where partitions end has been told how many there are.
    return ask_until_answered(query_cluster, _ASK_S, NOT_KNOWN_YET) if request else {}


def read_batches(
    config: Config, spans: Collection[Span], deadline: Deadline | None = None, records_max: int | None = None
) -> Iterator[list[Message]]:
    """Yield the committed records of some spans in batches, up to a deadline; memory does not grow with the number of records.

    Each span gives its first `records_max` records. Raises TopicsInvalid where a topic cannot be read, or nothing came for 30 s.
    """
    spans = [span for span in spans if span.start < span.stop]
    consumer = client_config.make_consumer(config)
    try:
        consumer.assign([TopicPartition(span.topic, span.partition, span.start) for span in spans])
        unread = _UnreadSpans(consumer, spans, records_max)
        loop, silence = ReadingLoop(consumer, ErrorLog(), _decides), Deadline(_SILENCE_S)
        for messages in loop.until(lambda: _BATCH if unread.stops else 0, _WAIT_S, deadline):
            if messages:
                silence = Deadline(_SILENCE_S)
            elif silence.has_passed():
                topics = ", ".join(sorted({topic for topic, _ in unread.stops}))
                raise TopicsInvalid([f"{topics}: no answer for {_SILENCE_S:.0f} s"], "look at the brokers, then try again")
            if records := [message for message in messages if unread.include(message)]:
                yield records
    finally:
        close_consumer(consumer)


def _decides(error: KafkaError) -> bool:
    return is_end(error) or error.code() in (*MISSING_TOPIC, KafkaError.TOPIC_AUTHORIZATION_FAILED)


class _UnreadSpans:
    """Spans that are still read. A span ends with its last record, where its partition does, or after its first so many records.
    """

    def __init__(self, consumer: Consumer, spans: Collection[Span], records_max: int | None) -> None:
        self._consumer = consumer
        self.stops = {(span.topic, span.partition): span.stop for span in spans}
        self._left = None if records_max is None else dict.fromkeys(self.stops, records_max)

    def include(self, message: Message) -> bool:
        """Whether it is a record of a span that is still read; the last one ends its span. Raises TopicsInvalid."""
        error, partition = message.error(), (message.topic() or "", message.partition() or 0)
        if error is not None and not is_end(error):
            if authorization.is_denied(KafkaException(error)):
                raise authorization.build_right_missing(Right(authorization.TOPIC, partition[0], authorization.READ))
            raise TopicsInvalid([f"{partition[0]}: {error.str()}"], "look at the topic's name")
        stop, offset = self.stops.get(partition), message.offset() or 0
        if stop is None:
            return False
        is_record = error is None and offset < stop
        if offset >= stop - (error is None) or (is_record and self._is_last(partition)):
            del self.stops[partition]
            self._consumer.pause([TopicPartition(*partition)])
        return is_record

    def _is_last(self, partition: Partition) -> bool:
        if self._left is None:
            return False
        self._left[partition] -= 1
        return not self._left[partition]


def find_ends(admin: AdminClient, partitions: Collection[Partition]) -> dict[Partition, ReadableEnd]:
    """Find the ends of partitions; those of which no broker told in time are left out."""
    # In this order: what is written in between is not taken for undecided.
    ends = find_end_offsets(admin, partitions, _ENDS_S)
    decided = find_stable_offsets(admin, ends, _ENDS_S)
    return {partition: ReadableEnd(decided[partition], ends[partition]) for partition in decided}
