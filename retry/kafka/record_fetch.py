"""Fetches the records that pointer letters name, by their coordinates.

A pointer letter has no payload; its headers say where that lies. By the time somebody asks, the record may have been
deleted or compacted away, and then no other record may take its place: reading begins exactly at the offset that is
wanted, or fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from retry.clock import Deadline
from retry.kafka.client_config import Config
from retry.kafka.partition_reader import Complaints
from retry.kafka.runs import GONE, Found, Run, runs

Place = tuple[str, int, int]

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
_RECORDS_MAX = 1_000
_NOT_THERE = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_EXCEPTION,
)
_NOT_OURS = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


class Pointers:
    """Reads single records; for one thread. The client is made when it is first needed, and kept.

    Args:
      config: of a reader, see `retry.kafka.client_config.reader_config`.
    """

    def __init__(self, config: Config) -> None:
        self._config = {**config, **_DEMANDED}
        self._client: Consumer | None = None
        self._complaints = Complaints()

    def fetch(self, wanted: Collection[Place], deadline_s: float = 10.0) -> dict[Place, Message | str]:
        """The record at each (topic, partition, offset), or the word that says why there is none.

        `source_gone`: deleted, compacted away, undone, beyond the end, or its topic is missing. `source_unreadable`: no
        right to read it, not committed yet, or no answer by the deadline. All records are held at once: ask for as many as
        fit into memory.
        """
        deadline = Deadline(deadline_s)
        found: dict[Place, Message | str] = dict.fromkeys(wanted, UNREADABLE)
        partitions: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset in sorted(found):
            partitions.setdefault((topic, partition), []).append(offset)
        for (topic, partition), offsets in partitions.items():
            for offset, what in self._fetch_from(topic, partition, offsets, deadline).items():
                found[topic, partition, offset] = what
        return found

    def close(self) -> None:
        """Let go of the client."""
        if self._client:
            self._client.close()
            self._client = None

    def _consumer(self) -> Consumer:
        self._client = self._client or Consumer(self._config)
        return self._client

    def _fetch_from(self, topic: str, partition: int, offsets: list[int], deadline: Deadline) -> Found:
        try:
            low, decided = self._bounds(topic, partition, deadline)
        except KafkaException as error:
            return dict.fromkeys(offsets, self._reason(error.args[0]) or UNREADABLE)
        found: Found = {offset: GONE for offset in offsets if offset < low}
        for run in runs([offset for offset in offsets if offset not in found]):
            try:
                self._read(Run(topic, partition, decided, deque(run), found), deadline)
            finally:
                self._consumer().unassign()
        return found

    def _bounds(self, topic: str, partition: int, deadline: Deadline) -> tuple[int, int]:
        """The first offset that is there, and the first that is not committed."""
        about = self._consumer().list_topics(topic, timeout=_some_of(deadline, _ASK_S)).topics[topic]
        if about.error:
            raise KafkaException(about.error)
        if partition not in about.partitions:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        place = TopicPartition(topic, partition)
        bounds = self._consumer().get_watermark_offsets(place, timeout=_some_of(deadline, _ASK_S))
        if bounds is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return bounds

    def _read(self, run: Run, deadline: Deadline) -> None:
        """Read through a run; what is not found afterwards was not answered."""
        consumer = self._consumer()
        consumer.assign([run.begin()])
        while run.missing and not deadline.passed():
            records_max = min(_RECORDS_MAX, run.missing[-1] - run.missing[0] + 1)
            for message in consumer.consume(records_max, _some_of(deadline, _WAIT_S)):
                self._note(message, run)

    def _note(self, message: Message, run: Run) -> None:
        """Take in one answer: a record, an end, or an error."""
        error, consumer = message.error(), self._consumer()
        if error is None:
            run.take(message)
        elif error.code() == KafkaError._PARTITION_EOF and run.missing:
            run.end(message.offset() or 0, consumer.get_watermark_offsets(run.begin(), cached=True)[1])
        elif error.code() == KafkaError._AUTO_OFFSET_RESET and run.missing:
            run.refuse()
            if run.missing:
                consumer.assign([run.begin()])
        elif reason := self._reason(error):
            run.found.update(dict.fromkeys(run.missing, reason))
            run.missing.clear()

    def _reason(self, error: KafkaError) -> str | None:
        """Why there will be no record; None where there still may be one."""
        if error.code() in _NOT_THERE:
            return GONE
        self._complaints.tell(error)
        return UNREADABLE if error.code() in _NOT_OURS else None


def _some_of(deadline: Deadline, seconds_max: float) -> float:
    return min(deadline.remaining_s(), seconds_max)
