"""Follows the topics and folds them into the replica, builds it anew where it has to, and says how far it has come."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable

from msgspec.structs import replace

from retry import clock
from retry.console.folding import folds as all_folds
from retry.console.folding.folds import Folds, Sources
from retry.console.folding.replica_file import TOPIC, ReplicaFile
from retry.console.folding.reports import Place, Report
from retry.errors import RetryError
from retry.kafka import client_config, offset_ranges, topics
from retry.kafka.interface import AdminClient, KafkaException, Message, Partition
from retry.kafka.reading_loop import KafkaPartitionReader
from retry.policies.registry import Registry
from retry.settings import Settings
from retry.telemetry.unreadable_records import UNREADABLE

log = logging.getLogger(__name__)

# More at once fold no faster, and take memory: 5,000 letters 80 MiB.
_RECORDS_MAX, _WAIT_S = 2_000, 0.25
_READING = {"fetch.message.max.bytes": 256 << 10, "fetch.max.bytes": 4 << 20, "queued.max.messages.kbytes": 4 << 10}
_LOOK_EVERY_S, _TOPICS_EVERY_S, _AGAIN_S, _AGAIN_MAX_S = 0.5, 30.0, 1.0, 60.0
_SETTLE_EVERY_S, _HEARD_EVERY_S = 2.0, 1.0
_LOOKS_MAX = 1_000
# Who is so far behind reads on for a while before readers see it; less, and pages would be behind for longer than they say.
_BULK_RECORDS_MIN, _BULK_S = 10_000, 2.0


class Follower:
    """Reads on until `closing` is set; whatever goes wrong, it begins again from what stands in the file."""

    def __init__(
        self, settings: Settings, registry: Callable[[], Registry], file: ReplicaFile, tell: Callable[[Report], None],
        closing: threading.Event,
    ) -> None:
        self._settings, self._registry, self._file, self._tell = settings, registry, file, tell
        self._own, self._closing = topics.build_topic_names(settings.app_id), closing
        self._positions: dict[Partition, int] = {}
        self._begun: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        # When ends were asked for, and what they were, as far as not all is folded that was there then.
        self._asked: deque[tuple[int, dict[Partition, int]]] = deque(maxlen=_LOOKS_MAX)
        self._answered_s = clock.monotonic_s()
        self._as_of_ms: int | None = None
        self._trouble, self._fault = "", ""
        self._generation = 0
        self._shown, self._telling = Report(), clock.Interval(_HEARD_EVERY_S, at_once=True)
        self._retention_ms: dict[str, int] = {}
        self._age_ms_max = 0

    def build_report(self) -> Report:
        file = self._file
        shown = None if not file.id else file.id if file.is_live and not file.is_corrupt else ""
        unreadable = UNREADABLE.list_topics()
        troubles = self._fault, self._trouble or "; ".join(each.sentence for each in unreadable)
        places = [
            Place(topic, n, begun, self._positions.get((topic, n), begun), self._ends.get((topic, n), 0))
            for (topic, n), begun in self._begun.items()
        ]
        # After a restart the file has at least what it had when it was current last.
        as_of_ms = self._as_of_ms or (file.current_at_ms if shown else None) or None
        return Report(
            file_id=shown, generation=self._generation, as_of_ms=as_of_ms, answered_s=self._answered_s,
            trouble="; ".join(filter(None, troubles)), is_stopped=bool(self._trouble), places=places,
            retention_ms=self._retention_ms, unreadable=unreadable,
        )  # fmt: skip

    def run(self) -> None:
        again_s = _AGAIN_S
        while not self._closing.is_set():
            try:
                self._follow()
            except (RetryError, KafkaException, TimeoutError, sqlite3.Error) as error:
                if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                    self._file.corrupt = self._file.id
                if str(error) != self._trouble:
                    log.error("the replica does not go on: %s", error)
                self._trouble = str(error)
                self._pause(_AGAIN_S)
            except Exception as error:
                # A mistake of ours must not end the only one that folds: what it has made may be wrong, and is made anew.
                log.exception("the replica failed, and is built anew")
                self._file.corrupt = self._file.id
                again_s = min(2 * again_s, _AGAIN_MAX_S) if self._fault else _AGAIN_S
                # Open health shows it, and the text of an error may have a part of a record.
                self._fault = f"a fault of the console ({type(error).__name__}), which its log has: everything is read anew"
                self._pause(again_s)
        self._file.close()

    def _pause(self, seconds: float) -> None:
        self._tell_progress()
        self._closing.wait(seconds)

    def _tell_progress(self) -> None:
        self._shown = self.build_report()
        self._tell(self._shown)

    def _follow(self) -> None:
        admin = client_config.connect_admin(self._settings)
        found = all_folds.find_sources(admin, self._own, self._registry())
        self._retention_ms = found.retention_ms()
        if self._file.is_corrupt:
            # Nobody is to look at it any more.
            self._tell_progress()
            self._file.discard()
        self._age_ms_max = topics.compute_table_age_max_ms(found.described[self._own.changelog])
        connection = self._file.open(found.identity(topics.read_cluster_id(admin), TOPIC), self._age_ms_max)
        folds = Folds(connection, found, self._registry, is_live=self._file.is_live)
        reader = KafkaPartitionReader(client_config.build_reader_config(self._settings, preferred=_READING))
        try:
            if not self._begin_reading(reader, folds, found, admin):
                return
            self._trouble = ""
            self._read(reader, folds, found, admin)
        finally:
            reader.close()

    def _begin_reading(self, reader: KafkaPartitionReader, folds: Folds, found: Sources, admin: AdminClient) -> bool:
        """Begin where the file ends; False where Kafka does not have what follows, and it has to be built anew."""
        # What is committed while brokers are asked may be in no answer.
        asked_ms, spans = clock.wall_ms(), found.spans(admin)
        begun: dict[Partition, int] = {}
        ends: dict[Partition, int] = {}
        for topic, partition, start, stop in spans:
            known = folds.positions.get((topic, partition))
            if known is not None and topic == self._own.changelog and not start <= known <= stop:
                log.warning("%s/%d: offset %d of the replica is not from %d to %d", topic, partition, known, start, stop)
                self._file.corrupt = self._file.id
                return False
            begin = start if known is None else max(start, known)
            reader.follow_partition(topic, partition, begin)
            begun[topic, partition], ends[topic, partition] = begin, stop
        self._positions, self._begun = dict(begun), begun
        self._asked.clear()
        self._note_ends(asked_ms, ends)
        return True

    def _read(self, reader: KafkaPartitionReader, folds: Folds, found: Sources, admin: AdminClient) -> None:
        looking, looking_for_topics = clock.Interval(_LOOK_EVERY_S), clock.Interval(_TOPICS_EVERY_S, at_once=True)
        settling = clock.Interval(_SETTLE_EVERY_S)
        self._shown = self.build_report()
        while not (self._closing.is_set() or self._file.is_corrupt):
            if self._count_behind() >= _BULK_RECORDS_MIN:
                self._project_in_bulk(reader, folds)
            else:
                self._project_messages(self._read_batch(reader), folds)
            self._tell_progress()
            if not self._file.is_live and self._has_all(self._ends):
                self._finish_rebuild(folds)
            if self._file.is_live and settling.is_due():
                self._generation += folds.count_recoveries(clock.wall_ms())
                self._file.note_current(self._as_of_ms or 0)
            if self._file.is_live and looking.is_due():
                self._refresh_ends(admin)
            if self._file.is_live and looking_for_topics.is_due() and self._topics_changed(admin, found, folds):
                return

    def _project_in_bulk(self, reader: KafkaPartitionReader, folds: Folds) -> None:
        deadline = clock.Deadline(_BULK_S)
        with folds.in_bulk():
            while self._count_behind() and not (deadline.has_passed() or self._closing.is_set() or self._file.is_corrupt):
                self._project_messages(self._read_batch(reader), folds)

    def _read_batch(self, reader: KafkaPartitionReader) -> list[Message]:
        """Read on, and tell that brokers were heard of: a starved core takes long until it may tell what it folded of this."""
        messages = reader.read(_RECORDS_MAX, _WAIT_S)
        if messages:
            self._answered_s = clock.monotonic_s()
            if self._telling.is_due():
                # In bulk readers do not see yet what was folded since, so nothing else is told.
                self._tell(replace(self._shown, answered_s=self._answered_s))
        return messages

    def _count_behind(self) -> int:
        return sum(max(0, end - self._positions.get(place, 0)) for place, end in self._ends.items())

    def _project_messages(self, messages: list[Message], folds: Folds) -> None:
        if messages and self._is_stale():
            log.warning("the replica was not current for too long, and may have missed deletes: it is built anew")
            self._file.corrupt = self._file.id
            return
        of_partition: dict[Partition, list[Message]] = {}
        next_offsets: dict[Partition, int] = {}
        for message in messages:
            place = message.topic() or "", message.partition() or 0
            error, offset = message.error(), message.offset() or 0
            if error is None:
                of_partition.setdefault(place, []).append(message)
            next_offsets[place] = max(offset + (error is None), next_offsets.get(place, 0))
        moved = {place: offset for place, offset in next_offsets.items() if offset > folds.positions.get(place, -1)}
        if moved:
            folds.project_partitions(of_partition, moved)
            self._positions.update(moved)
            self._generation += bool(of_partition)
        while self._file.is_live and self._asked and self._has_all(self._asked[0][1]):
            self._as_of_ms = self._asked.popleft()[0]

    def _is_stale(self) -> bool:
        current_at_ms = max(self._as_of_ms or 0, self._file.current_at_ms)
        return self._file.is_live and clock.wall_ms() - current_at_ms > self._age_ms_max

    def _has_all(self, ends: dict[Partition, int]) -> bool:
        return all(self._positions.get(place, 0) >= end for place, end in ends.items())

    def _note_ends(self, asked_ms: int, ends: dict[Partition, int]) -> None:
        self._ends, self._answered_s = ends, clock.monotonic_s()
        self._asked.append((asked_ms, ends))

    def _finish_rebuild(self, folds: Folds) -> None:
        self._file.finish_rebuild(folds.count_indexed)
        self._fault = ""
        self._generation += 1
        log.info("the replica is built")

    def _refresh_ends(self, admin: AdminClient) -> None:
        now_ms = clock.wall_ms()
        ends = offset_ranges.find_stable_offsets(admin, self._begun)
        if len(ends) == len(self._begun):
            self._note_ends(now_ms, ends)

    def _topics_changed(self, admin: AdminClient, found: Sources, folds: Folds) -> bool:
        now = all_folds.find_sources(admin, self._own, self._registry())
        partitions = {(topic, n) for topic in found.resting for n in range(found.described[topic].partitions)}
        folds.drop_deleted(offset_ranges.find_first_offsets(admin, partitions))
        return {t: d[:2] for t, d in now.described.items()} != {t: d[:2] for t, d in found.described.items()}
