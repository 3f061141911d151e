"""Parts of topics, read once from one offset to another, outside every group."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from retry.clock import Deadline
from retry.errors import TopicsInvalid
from retry.kafka.client_config import Config

log = logging.getLogger(__name__)

_ASK_S = 15.0
_LOOK_S, _LATE_S = 5.0, 0.5
_SILENCE_S = 30.0
_WAIT_S = 0.2
# Records beyond this wait in the client's own queue, whose bytes are bounded.
_BATCH = 500
_REFUSALS = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION,
             KafkaError.TOPIC_AUTHORIZATION_FAILED)  # fmt: skip


class Span(NamedTuple):
    """The records of a partition from `start` to before `stop`; some of these offsets may have none."""

    topic: str
    partition: int
    start: int
    stop: int


def whole(admin: AdminClient, topic: str, partitions: Iterable[int]) -> dict[int, Span]:
    """By partition, from the first record to where a read_committed reader ends now."""
    asked = list(partitions)
    first, last = (_offsets(admin, topic, asked, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
    return {n: Span(topic, n, first[n], last[n]) for n in asked}


def since(admin: AdminClient, topic: str, partitions: Iterable[int], at_ms: int) -> list[Span]:
    """Of each partition, from the first record whose timestamp is `at_ms` or later to the end."""
    ends = whole(admin, topic, partitions)
    starts = _offsets(admin, topic, ends, OffsetSpec.for_timestamp(max(0, at_ms)))
    return [span._replace(start=starts[n] if starts[n] >= 0 else span.stop) for n, span in ends.items()]


def starts(admin: AdminClient, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """By partition, the offset of the first record."""
    return _offsets(admin, topic, partitions, OffsetSpec.earliest())


def ends(admin: AdminClient, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """By partition, the offset behind the last record, undecided records included."""
    return _offsets(admin, topic, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)


def end(admin: AdminClient, topic: str, partition: int) -> int:
    """The same of one partition."""
    return ends(admin, topic, [partition])[partition]


def readable(admin: AdminClient, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """The offsets at which readers of committed records end now; without those that no broker told within a few seconds."""
    found, deadline = {}, Deadline(_LOOK_S)
    asked = {TopicPartition(*place): OffsetSpec.latest() for place in places}
    answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_LOOK_S)
    for place, answer in answers.items():
        try:
            offset = answer.result(deadline.remaining_s() + _LATE_S).offset
        except (KafkaException, TimeoutError) as error:
            # Whatever it is called: of a frozen broker's partitions the client says that they are unknown.
            log.debug("%s/%d: %s", place.topic, place.partition, error)
            continue
        if offset >= 0:
            found[place.topic, place.partition] = offset
    return found


def _offsets(
    admin: AdminClient,
    topic: str,
    partitions: Iterable[int],
    spec: OffsetSpec,
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> dict[int, int]:
    asked = {TopicPartition(topic, n): spec for n in partitions}
    answers = admin.list_offsets(asked, isolation_level=isolation_level, request_timeout=_ASK_S) if asked else {}
    return {place.partition: answer.result(_ASK_S).offset for place, answer in answers.items()}


def batches(config: Config, spans: Collection[Span], deadline: Deadline | None = None) -> Iterator[list[Message]]:
    """The committed records of some spans, no further than to a deadline; memory does not grow with their number.

    Args:
      config: of a reader, see `retry.kafka.client_config.reader_config`.

    Raises:
      TopicsInvalid: a topic cannot be read, or nothing came for 30 s.
    """
    stops = {(span.topic, span.partition): span.stop for span in spans if span.start < span.stop}
    consumer = Consumer(config)
    try:
        consumer.assign([TopicPartition(span.topic, span.partition, span.start) for span in spans if span.start < span.stop])
        silence = Deadline(_SILENCE_S)
        while stops and not (deadline and deadline.passed()):
            messages = consumer.consume(_BATCH, _WAIT_S)
            if messages:
                silence = Deadline(_SILENCE_S)
            elif silence.passed():
                topics = ", ".join(sorted({topic for topic, _ in stops}))
                raise TopicsInvalid([f"{topics}: no answer for {_SILENCE_S:.0f} s"], "look at the brokers, then try again")
            if found := [message for message in messages if _is_within(message, consumer, stops)]:
                yield found
    finally:
        consumer.close()


def _is_within(message: Message, consumer: Consumer, stops: dict[tuple[str, int], int]) -> bool:
    """Whether it is a record of a span that is still read. A span ends with its last record, or where its partition does."""
    error, place, offset = message.error(), (message.topic() or "", message.partition() or 0), message.offset() or 0
    if error is not None and error.code() in _REFUSALS:
        raise TopicsInvalid([f"{place[0]}: {error.str()}"], "look at the topic's name and at this user's rights")
    stop = stops.get(place)
    if stop is None or (error is not None and error.code() != KafkaError._PARTITION_EOF):
        return False
    if offset >= stop - (error is None):
        del stops[place]
        consumer.pause([TopicPartition(*place)])
    return error is None and offset < stop
