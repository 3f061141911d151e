"""Moves what waits in one schedules topic to another, each schedule once: a copy there and a tombstone here in one transaction.

Which schedules were moved is told by the topic itself, so a second run finds what is left, whatever was killed. Of two runs the
later one fences the earlier, before it reads. A schedule that somebody writes for a key meanwhile is newer than the one that the
tombstone names, and is moved in the next pass, as an update there; passes end when nothing new was found. What was asked for by
its key in the other topic since then is not replaced: the schedule here is only ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from retry.clock import monotonic_s, wall_ms
from retry.delay_queue.envelopes import Entry
from retry.errors import MigrationStopped, TopicsInvalid, TransactionAborted, TransactionFailed, TransactionSlow
from retry.intake.entry_source import RecordVersions
from retry.kafka import client_config, offset_ranges, topics
from retry.kafka.interface import AdminClient
from retry.kafka.refused_headers import RefusedHeaders
from retry.kafka.transaction_pace import TransactionPace
from retry.kafka.transactional_producer import KafkaTransactionalProducer, demand_arrival
from retry.record import RecordLocation, count_bytes, read_headers, stamp_ms
from retry.scheduling.messages import schedule_request as names
from retry.scheduling.messages.schedule_request import Invalid, Put, RefusedBecause, Rules, read_request
from retry.settings import Settings

# What waits in a schedules topic, by its records alone: the newest record of each key, as a scheduler has it. No I/O.
#
# A null cancels what waits for its key, in whichever partition. One that says which schedule it ended, since that was sent or
# moved, leaves a newer one.


class WaitingSchedules:
    """Folds the records of one topic, each partition in its order.

    Attributes:
      offsets: of what waits, by partition and key, where its record lies.
    """

    def __init__(self) -> None:
        self.offsets: dict[tuple[int, bytes], int] = {}
        self.without_key: list[RecordLocation] = []
        self._versions = RecordVersions()
        # By key, the version of the newest schedule or cancel, and its partition.
        self._newest: dict[bytes, tuple[int, int]] = {}

    def add_records(self, messages: Iterable[Any], now_ms: int) -> None:
        for message in messages:
            key, partition, offset = message.key(), message.partition(), message.offset()
            is_null = message.value() is None
            if not key or not key.strip():
                self.without_key.append((message.topic(), partition, offset))
            elif is_null and (ended := _read_ended_offset(message)) is not None:
                self.end_schedule(partition, key, ended)
            elif self._is_newest(key, partition, self._versions.next_version(message, now_ms, of_cancel=is_null)) and not is_null:
                self.offsets[partition, key] = offset

    def _is_newest(self, key: bytes, partition: int, version: int) -> bool:
        """Whether a record is the newest of its key so far; then what waited for that key waits no more."""
        before = self._newest.get(key)
        if before is not None and before[0] > version:
            return False
        if before is not None:
            self.offsets.pop((before[1], key), None)
        self._newest[key] = version, partition
        return True

    def end_schedule(self, partition: int, key: bytes, offset: int) -> None:
        """Note that nothing waits any more for a key in a partition, up to and including an offset."""
        if self.offsets.get((partition, key), offset) <= offset:
            self.offsets.pop((partition, key), None)

    def is_waiting(self, message: Any) -> bool:
        key = message.key()
        return key is not None and self.offsets.get((message.partition(), key)) == message.offset()


def read_last_writes(messages: Iterable[Any], into: dict[bytes, int]) -> None:
    """Note when something was last asked for by each key, in ms: a schedule or its end, but not that it was sent or moved."""
    for message in messages:
        key = message.key()
        if key is not None and (message.value() is not None or _read_ended_offset(message) is None):
            into[key] = max(into.get(key, 0), message.timestamp()[1])


def _read_ended_offset(message: Any) -> int | None:
    """Read the offset of the schedule that a null says it has ended."""
    headers = dict(read_headers(message) or ())
    told = headers.get(names.DONE, headers.get(names.MIGRATED))
    return int(told) if told and told.isdigit() else None


_OPEN_S, _BATCH = 30.0, 1_000
# Of a null beside its key: what each record has, and its header.
_NULL_BYTES = 100
_HOUR_MS, _PLACES_MAX = 3_600_000, 20


class Counts:
    """The number of schedules that wait, in all, by when and by target, and of other records by why a scheduler parks them."""

    def __init__(self) -> None:
        self.when = dict.fromkeys(("at_once", "within_an_hour", "later"), 0)
        self.targets, self.others = Counter[str](), Counter[str]()
        self.places: list[str] = []

    @property
    def schedules(self) -> int:
        return sum(self.when.values())

    def count_schedule(self, put: Put, now_ms: int) -> None:
        wait_ms = put.due_at_ms - now_ms
        self.when["at_once" if wait_ms <= 0 else "within_an_hour" if wait_ms <= _HOUR_MS else "later"] += 1
        self.targets[put.target] += 1

    def count_non_schedule(self, reason: RefusedBecause, place: RecordLocation) -> None:
        self.others[reason.value] += 1
        if len(self.places) < _PLACES_MAX:
            self.places.append("{}/{}/{}".format(*place))


class SchedulesTopic:
    """One schedules topic, read from its beginning, and again from where reading ended; raises TopicsInvalid without one."""

    def __init__(self, settings: Settings, admin: AdminClient, topic: str, rules: Rules) -> None:
        self.topic, self._admin, self._rules = topic, admin, rules
        self._reader = client_config.build_reader_config(settings)
        about = topics.describe(admin, [topic]).get(topic)
        if about is None:
            raise TopicsInvalid([f"there is no topic {topic}"], "look at its name, and at this user's rights")
        self.partitions, self._read_to = about.partitions, dict[int, int]()
        self.waits, self.written_ms = WaitingSchedules(), dict[bytes, int]()

    def read(self) -> None:
        spans = offset_ranges.find_readable_spans(self._admin, self.topic, range(self.partitions))
        unread = [span._replace(start=self._read_to.get(n, span.start)) for n, span in spans.items()]
        for batch in self._read_span_batches(unread):
            self.waits.add_records(batch, wall_ms())
            read_last_writes(batch, self.written_ms)
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

    def iterate_schedules(self) -> Iterator[Any]:
        now_ms = wall_ms()
        return (each for each in self._iterate_waiting() if isinstance(read_request(each, now_ms, self._rules), Put))

    def _iterate_waiting(self) -> Iterator[Any]:
        first = dict[int, int]()
        for (partition, _), offset in self.waits.offsets.items():
            first[partition] = min(first.get(partition, offset), offset)
        spans = [offset_ranges.Span(self.topic, n, start, self._read_to[n]) for n, start in first.items()]
        for batch in self._read_span_batches(spans):
            yield from (message for message in batch if self.waits.is_waiting(message))

    def _read_span_batches(self, spans: list[offset_ranges.Span]) -> Iterator[list[Any]]:
        refused = RefusedHeaders(self._reader)
        try:
            for batch in offset_ranges.read_batches(self._reader, spans):
                yield refused.replace_unreadable(list[Any](batch))
        finally:
            refused.close()


class Moved(NamedTuple):
    """How many schedules were moved, and how many were only ended since something newer was asked for by their key there."""

    moved: int
    replaced: int


def move_schedules(settings: Settings, source: SchedulesTopic, target: SchedulesTopic) -> Moved:
    """Move all schedules that wait, updates that come meanwhile included; raises MigrationStopped, and what was moved stays so.
    """
    if source.partitions != target.partitions:
        raise MigrationStopped(
            f"{source.topic} has {source.partitions} partitions and {target.topic} {target.partitions}, and each schedule keeps "
            f"its partition; give a topic with {source.partitions}"
        )
    try:
        return _ScheduleMove(settings, source, target).run()
    except TransactionFailed as failed:
        raise MigrationStopped(
            f"{source.topic}: {failed}; what was moved stays moved. Give the command again, once its reason is gone: it goes on "
            "with what is left"
        ) from failed


class _ScheduleMove:
    """One move. After a transaction that took longer than it lives, the next ones are of fewer bytes."""

    def __init__(self, settings: Settings, source: SchedulesTopic, target: SchedulesTopic) -> None:
        self._config = client_config.build_producer_config(settings, f"{settings.app_id}-migrate-{source.topic}")
        self._source, self._target, self._total = source, target, Moved(0, 0)
        self._pace = TransactionPace("moved schedules", settings.batch_bytes)
        # Of the transaction that took too long: whether it was committed is seen once another producer is open.
        self._unknown, self._unknown_moved = list[Any](), Moved(0, 0)

    def run(self) -> Moved:
        while True:
            try:
                self._move_waiting()
            except TransactionSlow:
                if not self._unknown:
                    raise
            else:
                return self._total

    def _move_waiting(self) -> None:
        producer = KafkaTransactionalProducer(self._config)
        try:
            producer.open(_OPEN_S)
            is_left = True
            while is_left:
                # Only now: of an earlier run nothing more can come.
                self._source.read()
                self._target.read()
                self._count_unknown()
                is_left = False
                for batch in _batch_by_size(self._source.iterate_schedules(), self._pace):
                    self._move_batch(producer, batch)
                    is_left = True
            producer.await_visible(_OPEN_S)
        finally:
            producer.close()

    def _count_unknown(self) -> None:
        if self._unknown and not any(map(self._source.waits.is_waiting, self._unknown)):
            self._count_moved(self._unknown_moved)
        self._unknown = []

    def _count_moved(self, more: Moved) -> None:
        self._total = Moved(self._total.moved + more.moved, self._total.replaced + more.replaced)

    def _move_batch(self, producer: KafkaTransactionalProducer, batch: list[Any]) -> None:
        source, target = self._source, self._target
        newer = [m for m in batch if target.written_ms.get(m.key(), -1) <= m.timestamp()[1]]
        copies = [Entry(target.topic, m.key(), m.value(), m.headers() or [], stamp_ms(m), "") for m in newer]
        nulls = [Entry(source.topic, m.key(), None, [(names.MIGRATED, b"%d" % m.offset())], None, "") for m in batch]
        entries, about, moved = [*copies, *nulls], [*newer, *batch], Moved(len(newer), len(batch) - len(newer))
        begun_s, size = monotonic_s(), sum(map(_measure_bytes, batch))
        try:
            producer.begin()
            producer.publish(entries, wall_ms(), [m.partition() for m in about])
            demand_arrival(producer)
            producer.commit()
        except TransactionFailed as failed:
            self._pace.note_failure(begun_s, size)
            if len(batch) > 1 and self._pace.bytes_max < size:
                # A quota or a slow link. The next producer ends the transaction, which brokers may have done already.
                self._unknown, self._unknown_moved = batch, moved
                raise TransactionSlow(f"{len(batch):,} schedules take longer than a transaction lives ({failed})") from failed
            if isinstance(failed, TransactionAborted) and not isinstance(failed, TransactionSlow):
                _name_refused(producer, entries, about, failed)
            raise
        self._pace.note_commit(begun_s, size)
        self._count_moved(moved)
        # Not when the nulls are read back: a commit is answered before readers see what it wrote.
        for message in batch:
            source.waits.end_schedule(message.partition(), message.key(), message.offset())


def _name_refused(
    producer: KafkaTransactionalProducer, entries: list[Entry], about: list[Any], undone: TransactionAborted
) -> None:
    """Raise TransactionAborted, naming the record that a transaction was undone for, where one was refused."""
    for n, error in producer.rehearse_entries(entries, wall_ms(), [m.partition() for m in about]).items():
        place = f"{about[n].topic()}/{about[n].partition()}/{about[n].offset()}"
        raise TransactionAborted(f"of {place} a record is refused: {error.str()}") from undone


def _batch_by_size(schedules: Iterable[Any], pace: TransactionPace) -> Iterator[list[Any]]:
    """Batch schedules by number and by the bytes that a transaction may have; a single one may have more."""
    batch, size = list[Any](), 0
    for message in schedules:
        more = _measure_bytes(message)
        if batch and (len(batch) >= _BATCH or size + more > pace.bytes_max):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += more
    if batch:
        yield batch


def _measure_bytes(message: Any) -> int:
    key = message.key()
    return count_bytes(key, message.value(), message.headers() or ()) + len(key) + _NULL_BYTES
