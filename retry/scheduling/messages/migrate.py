"""Moves what waits in one schedules topic to another, each schedule once: a copy there and a tombstone here in one transaction.

Which schedules were moved is told by the topic itself, so a second run finds what is left, whatever was killed. Of two runs the
later one fences the earlier, before it reads. A schedule that somebody writes for a key meanwhile is newer than the one that the
tombstone names, and is moved in the next pass, as an update there; passes end when nothing new was found. What was asked for by
its key in the other topic since then is not replaced: the schedule here is only ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from retry.clock import wall_ms
from retry.delay_queue.envelopes import Entry
from retry.errors import MigrationStopped, TopicsInvalid, TransactionAborted, TransactionFailed
from retry.kafka import client_config, offset_ranges, topics
from retry.kafka.interface import AdminClient
from retry.kafka.offset_ranges import Span
from retry.kafka.refused_headers import RefusedHeaders
from retry.kafka.transactional_producer import KafkaTransactionalProducer, await_visible
from retry.record import RecordLocation, stamp_ms
from retry.scheduling.messages import headers as names
from retry.scheduling.messages.schedule_request import Invalid, Put, RefusedBecause, Rules, read_request
from retry.scheduling.messages.waiting_schedules import WaitingSchedules, written_last
from retry.settings import Settings

_OPEN_S, _BATCH = 30.0, 1_000
_HOUR_MS, _PLACES_MAX = 3_600_000, 20


class Counts:
    """The number of schedules that wait in a topic, and of records that are none.

    Attributes:
      when: of schedules, how many are due `at_once`, `within_an_hour` and `later`.
      targets: of schedules, by target topic.
      others: records that are no schedules, by the reason for which a scheduler parks them.
      places: where the first of those lie.
    """

    def __init__(self) -> None:
        self.when = dict.fromkeys(("at_once", "within_an_hour", "later"), 0)
        self.targets, self.others = Counter[str](), Counter[str]()
        self.places: list[str] = []

    @property
    def schedules(self) -> int:
        """How many schedules wait."""
        return sum(self.when.values())

    def count_schedule(self, put: Put, now_ms: int) -> None:
        """Count a schedule, by its due time and its target."""
        wait_ms = put.due_at_ms - now_ms
        self.when["at_once" if wait_ms <= 0 else "within_an_hour" if wait_ms <= _HOUR_MS else "later"] += 1
        self.targets[put.target] += 1

    def count_non_schedule(self, reason: RefusedBecause, place: RecordLocation) -> None:
        """Count a record that is no schedule."""
        self.others[reason.value] += 1
        if len(self.places) < _PLACES_MAX:
            self.places.append("{}/{}/{}".format(*place))


class SchedulesTopic:
    """One schedules topic, read from its beginning, and again from where reading ended.

    Raises:
      TopicsInvalid: there is no such topic.
    """

    def __init__(self, settings: Settings, admin: AdminClient, topic: str, rules: Rules) -> None:
        self.topic, self._admin, self._rules = topic, admin, rules
        self._reader = client_config.reader_config(settings)
        about = topics.describe(admin, [topic]).get(topic)
        if about is None:
            raise TopicsInvalid([f"there is no topic {topic}"], "look at its name, and at this user's rights")
        self.partitions, self._read_to = about.partitions, dict[int, int]()
        self.waits, self.written_ms = WaitingSchedules(), dict[bytes, int]()

    def read(self) -> None:
        """Fold what came since it was read last."""
        spans = offset_ranges.readable_spans(self._admin, self.topic, range(self.partitions))
        unread = [span._replace(start=self._read_to.get(n, span.start)) for n, span in spans.items()]
        for batch in self._read_span_batches(unread):
            self.waits.add_records(batch, wall_ms())
            written_last(batch, self.written_ms)
        self._read_to = {n: span.stop for n, span in spans.items()}

    def count_waiting(self) -> Counts:
        """Count what waits, as a scheduler that starts now would take it."""
        found, now_ms = Counts(), wall_ms()
        for place in self.waits.without_key:
            found.count_non_schedule(RefusedBecause.NO_KEY, place)
        for message in self._iterate_waiting():
            request = read_request(message, now_ms, self._rules)
            if isinstance(request, Put):
                found.count_schedule(request, now_ms)
            elif isinstance(request, Invalid):
                found.count_non_schedule(request.reason, (message.topic(), message.partition(), message.offset()))
        return found

    def schedules(self) -> Iterator[list[Any]]:
        """The records of the schedules that wait, in batches."""
        now_ms, batch = wall_ms(), list[Any]()
        for message in self._iterate_waiting():
            if isinstance(read_request(message, now_ms, self._rules), Put):
                batch.append(message)
            if len(batch) >= _BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    def _iterate_waiting(self) -> Iterator[Any]:
        first = dict[int, int]()
        for (partition, _), offset in self.waits.offsets.items():
            first[partition] = min(first.get(partition, offset), offset)
        spans = [Span(self.topic, n, start, self._read_to[n]) for n, start in first.items()]
        for batch in self._read_span_batches(spans):
            yield from (message for message in batch if self.waits.is_waiting(message))

    def _read_span_batches(self, spans: list[Span]) -> Iterator[list[Any]]:
        refused = RefusedHeaders(self._reader)
        try:
            for batch in offset_ranges.read_batches(self._reader, spans):
                yield refused.mark_unreadable(list[Any](batch))
        finally:
            refused.close()


class Moved(NamedTuple):
    """How many schedules were moved, and how many were only ended since something newer was asked for by their key there."""

    moved: int
    replaced: int


def move_schedules(settings: Settings, source: SchedulesTopic, target: SchedulesTopic) -> Moved:
    """Move all schedules that wait, updates that come meanwhile included.

    Raises:
      MigrationStopped: it ended early; what was moved stays moved.
    """
    if source.partitions != target.partitions:
        raise MigrationStopped(
            f"{source.topic} has {source.partitions} partitions and {target.topic} {target.partitions}, and each schedule keeps "
            f"its partition; give a topic with {source.partitions}"
        )
    config = client_config.producer_config(settings, f"{settings.app_id}-migrate-{source.topic}")
    producer, total = KafkaTransactionalProducer(config), Moved(0, 0)
    try:
        producer.open(_OPEN_S)
        while True:
            # Only now: of an earlier run nothing more can come.
            source.read()
            target.read()
            passed = [_move_batch(producer, batch, source, target) for batch in source.schedules()]
            if not passed:
                await_visible(config, _OPEN_S)
                return total
            total = Moved(*map(sum, zip(total, *passed, strict=True)))
    except TransactionFailed as failed:
        raise MigrationStopped(
            f"{source.topic}: {failed}; what was moved stays moved. Give the command again, once its reason is gone: it goes on "
            "with what is left"
        ) from failed
    finally:
        producer.close()


def _move_batch(producer: KafkaTransactionalProducer, batch: list[Any], source: SchedulesTopic, target: SchedulesTopic) -> Moved:
    """Move some schedules in one transaction."""
    newer = [m for m in batch if target.written_ms.get(m.key(), -1) <= m.timestamp()[1]]
    copies = [Entry(target.topic, m.key(), m.value(), m.headers() or [], stamp_ms(m), "") for m in newer]
    nulls = [Entry(source.topic, m.key(), None, [(names.MIGRATED, b"%d" % m.offset())], None, "") for m in batch]
    partitions = [m.partition() for m in (*newer, *batch)]
    try:
        producer.begin()
        producer.publish([*copies, *nulls], wall_ms(), partitions)
        producer.commit()
    except TransactionAborted as undone:
        for n, error in producer.rehearse_entries([*copies, *nulls], wall_ms(), partitions).items():
            about = (*newer, *batch)[n]
            place = f"{about.topic()}/{about.partition()}/{about.offset()}"
            raise TransactionAborted(f"of {place} a record is refused: {error.str()}") from undone
        raise
    # Not when the nulls are read back: a commit is answered before readers see what it wrote.
    for message in batch:
        source.waits.end_schedule(message.partition(), message.key(), message.offset())
    return Moved(len(newer), len(batch) - len(newer))
