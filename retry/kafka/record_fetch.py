"""Fetches the records that pointer letters name, by their coordinates.

The record may have been deleted or compacted away, and then no other may take its place: reading begins exactly at the offset
that is wanted, or fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from retry.clock import Deadline
from retry.kafka import client_config
from retry.kafka.asked_again import ask_until_answered
from retry.kafka.client_config import Config
from retry.kafka.reading_loop import MISSING_TOPIC, ErrorLog, ReadingLoop, is_end
from retry.kafka.refused_headers import RefusedHeaders
from retry.record import RecordLocation

FetchedRecords = dict[int, Message | str]

GONE = "source_gone"
# Rather read over so many records than ask the broker anew.
HOLE_RECORDS = 200
_RECORDS_MAX = 1_000


@dataclass
class OffsetRun:
    """Offsets of one partition that are wanted and lie close together, lowest first.

    Attributes:
      decided: the first offset that was not committed when the bounds were asked for.
      missing: what reading has not come to yet.
    """

    topic: str
    partition: int
    decided: int
    missing: deque[int]
    results: FetchedRecords

    def find_start(self) -> TopicPartition:
        """Return the position at which reading begins or goes on: the first offset that is missing."""
        return TopicPartition(self.topic, self.partition, self.missing[0])

    def records_max(self) -> int:
        """Compute how many records to read at once, at most: the first to the last missing offset; 0 where none is missing."""
        return min(_RECORDS_MAX, self.missing[-1] - self.missing[0] + 1) if self.missing else 0

    def take_record(self, message: Message) -> None:
        """Keep a record that was read, if its offset is missing; missing offsets before the record are gone."""
        offset = message.offset() or 0
        self._pass(offset)
        if self.missing and self.missing[0] == offset:
            self.results[self.missing.popleft()] = message

    def reach_end(self, offset: int, end: int) -> None:
        """Note that reading has come to the end of the committed records at `offset`; missing offsets before that one are gone.

        Those from `end` on, the end of all records, are gone too; what lies between the two nobody knows yet.
        """
        self._pass(offset)
        self.results.update({late: GONE for late in self.missing if late >= end})
        self.missing.clear()

    def skip_out_of_range(self) -> None:
        """Note that the next missing offset is gone, since brokers say it is out of range.

        The record was deleted just now; or the offset is beyond the end, and then all missing offsets behind are gone too.
        """
        while self.missing:
            offset = self.missing.popleft()
            self.results[offset] = GONE
            if offset < self.decided:
                return

    def _pass(self, offset: int) -> None:
        while self.missing and self.missing[0] < offset:
            self.results[self.missing.popleft()] = GONE


def split_at_holes(offsets: list[int], hole_records: int = HOLE_RECORDS) -> Iterator[list[int]]:
    """Split sorted offsets into runs, cut at holes of more than `hole_records`; yield each run.

    >>> list(split_at_holes([1, 2, 100, 5_000]))
    [[1, 2, 100], [5000]]
    """
    run: list[int] = []
    for offset in offsets:
        if run and offset - run[-1] > hole_records:
            yield run
            run = []
        run.append(offset)
    if run:
        yield run


UNREADABLE = "source_unreadable"

_DEMANDED = {
    # Anything else would silently read on at another record where the wanted one is gone.
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    # What lies behind the last wanted record is fetched in vain.
    "queued.min.messages": 1_000,
}
# The client waits for as many records as it is asked for, though an end or an error lies ready.
_WAIT_S = 0.02
_ASK_S = 5.0
_NOT_ALLOWED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


class RecordFetcher:
    """Reads single records; for one thread. The client is made when it is first needed, and kept."""

    def __init__(self, config: Config, hole_records: int = HOLE_RECORDS) -> None:
        self._hole_records = hole_records
        self._config = {**config, **_DEMANDED}
        self._client: Consumer | None = None
        self._errors, self._refused = ErrorLog(), RefusedHeaders(config)

    def fetch(self, wanted: Collection[RecordLocation], deadline_s: float = 10.0) -> dict[RecordLocation, Message | str]:
        """Return the record at each (topic, partition, offset), or the word that says why there is none.

        `source_gone`: deleted, compacted away, undone, beyond the end, or its topic is missing. `source_unreadable`: no right to
        read it, not committed yet, or no answer by the deadline. All are held at once. Those with too many headers are
        `UnreadableHeaders`.
        """
        deadline = Deadline(deadline_s)
        results: dict[RecordLocation, Message | str] = dict.fromkeys(wanted, UNREADABLE)
        partitions: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset in sorted(results):
            partitions.setdefault((topic, partition), []).append(offset)
        for (topic, partition), offsets in partitions.items():
            for offset, result in self._fetch_from(topic, partition, offsets, deadline).items():
                results[topic, partition, offset] = result
        records = {place: result for place, result in results.items() if not isinstance(result, str)}
        try:
            return results | dict(zip(records, self._refused.replace_unreadable(list(records.values())), strict=True))
        except TimeoutError:
            return results | dict.fromkeys(records, UNREADABLE)

    def close(self) -> None:
        self._refused.close()
        if self._client:
            self._client.close()
            self._client = None

    def _consumer(self) -> Consumer:
        self._client = self._client or client_config.make_consumer(self._config)
        return self._client

    def _fetch_from(self, topic: str, partition: int, offsets: list[int], deadline: Deadline) -> FetchedRecords:
        try:
            ask = partial(self._fetch_offset_range, topic, partition)
            low, decided = ask_until_answered(ask, min(deadline.remaining_s(), _ASK_S))
        except KafkaException as error:
            return dict.fromkeys(offsets, self._reason(error.args[0]))
        results: FetchedRecords = {offset: GONE for offset in offsets if offset < low}
        for run in split_at_holes([offset for offset in offsets if offset not in results], self._hole_records):
            try:
                self._read(OffsetRun(topic, partition, decided, deque(run), results), deadline)
            finally:
                self._consumer().unassign()
        return results

    def _fetch_offset_range(self, topic: str, partition: int, within_s: float) -> tuple[int, int]:
        """The first offset that is there, and the first that is not committed."""
        about = self._consumer().list_topics(topic, timeout=within_s).topics[topic]
        if about.error:
            raise KafkaException(about.error)
        if partition not in about.partitions:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        place = TopicPartition(topic, partition)
        bounds = self._consumer().get_watermark_offsets(place, timeout=within_s)
        if bounds is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return bounds

    def _read(self, run: OffsetRun, deadline: Deadline) -> None:
        """Read through a run; what is not found afterwards was not answered."""
        consumer = self._consumer()
        consumer.assign([run.find_start()])
        for messages in ReadingLoop(consumer, self._errors, _decides).until(run.records_max, _WAIT_S, deadline):
            for message in messages:
                self._handle_message(message, run)

    def _handle_message(self, message: Message, run: OffsetRun) -> None:
        error, consumer = message.error(), self._consumer()
        if error is None:
            run.take_record(message)
        elif not run.missing:
            return
        elif is_end(error):
            run.reach_end(message.offset() or 0, consumer.get_watermark_offsets(run.find_start(), cached=True)[1])
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            run.skip_out_of_range()
            if run.missing:
                consumer.assign([run.find_start()])
        else:
            run.results.update(dict.fromkeys(run.missing, self._reason(error)))
            run.missing.clear()

    def _reason(self, error: KafkaError) -> str:
        if error.code() in MISSING_TOPIC:
            return GONE
        self._errors.log_error(error)
        return UNREADABLE


def _decides(error: KafkaError) -> bool:
    return is_end(error) or error.code() in (KafkaError._AUTO_OFFSET_RESET, *MISSING_TOPIC, *_NOT_ALLOWED)
