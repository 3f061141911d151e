"""The one thread that folds topics into the replica, builds it anew where it has to, and says how old it is."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable

from retry import clock
from retry.clock import Interval, monotonic_s
from retry.console.replica import sources
from retry.console.replica.folds import Folds
from retry.console.replica.replica_file import TOPIC, ReplicaFile
from retry.console.replica.rows import Freshness
from retry.console.replica.sources import Sources
from retry.errors import RetryError
from retry.kafka import client_config, offset_ranges, topics
from retry.kafka.interface import AdminClient, KafkaException, Message, Partition
from retry.kafka.partition_reader import KafkaPartitionReader
from retry.policies.registry import Registry
from retry.settings import Settings

log = logging.getLogger(__name__)

_RECORDS_MAX, _WAIT_S = 5_000, 0.25
_LOOK_EVERY_S, _TOPICS_EVERY_S, _AGAIN_S = 0.5, 30.0, 1.0
_LOOKS_MAX = 1_000
_OLD_S = 15.0
REBUILDING, LIVE, OLD = "rebuilding", "live", "old"


class Follower:
    """Reads on until it is closed; whatever goes wrong, it begins again from what stands in the file.

    Args:
      registry: gives the newest.
    """

    def __init__(self, settings: Settings, registry: Callable[[], Registry], file: ReplicaFile) -> None:
        self._settings, self._registry, self._file = settings, registry, file
        self._own = topics.names(settings.app_id)
        self._closing = threading.Event()
        self._folded = threading.Condition()
        self._positions: dict[Partition, int] = {}
        self._begun: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        # When ends were asked for, and what they were, as far as not all is folded that was there then.
        self._asked: deque[tuple[int, dict[Partition, int]]] = deque(maxlen=_LOOKS_MAX)
        self._answered_s = monotonic_s()
        self._as_of_ms: int | None = None
        self._trouble, self._unreadable = "", ""
        self.generation = 0
        self.retention_ms: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, name="replica", daemon=True)

    def start(self) -> None:
        """Begin, whether brokers answer or not."""
        self._thread.start()

    def close(self) -> None:
        """Stop after what is at hand."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._file.close()

    @property
    def progress(self) -> float:
        """How much of a rebuild is done, from 0 to 1."""
        total = sum(end - self._begun.get(place, 0) for place, end in self._ends.items())
        done = sum(self._positions.get(place, begin) - begin for place, begin in self._begun.items())
        return 1.0 if self._file.is_live else min(0.99, max(0.0, done / total)) if total else 0.0

    def freshness(self) -> Freshness:
        """How old the replica is."""
        silent = monotonic_s() - self._answered_s > _OLD_S
        state = REBUILDING if not self._file.is_live else OLD if self._trouble or silent else LIVE
        trouble = self._trouble or ("no broker answers" if silent else self._unreadable)
        lag = sum(max(0, end - self._positions.get(place, 0)) for place, end in self._ends.items())
        return Freshness(state, self.progress, self._as_of_ms, lag, trouble)

    def shards(self) -> list[tuple[int, int, int]]:
        """Of each partition of the changelog: how far it is folded, and where it ended when that was asked last."""
        places = sorted(place for place in self._begun if place[0] == self._own.changelog)
        return [(n, self._positions.get((topic, n), 0), self._ends.get((topic, n), 0)) for topic, n in places]

    def has_folded(self, topic: str, partition: int, offset: int, within_s: float) -> bool:
        """Wait until a record is in the replica."""
        deadline = clock.Deadline(within_s)
        with self._folded:
            while self._positions.get((topic, partition), 0) <= offset and not deadline.passed():
                clock.wait(self._folded, deadline.remaining_s())
            return self._positions.get((topic, partition), 0) > offset

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._follow()
            except (RetryError, KafkaException, TimeoutError, sqlite3.Error) as error:
                if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                    self._file.is_corrupt = True
                if str(error) != self._trouble:
                    log.error("the replica does not go on: %s", error)
                self._trouble = str(error)
                self._closing.wait(_AGAIN_S)

    def _follow(self) -> None:
        """From the file, or from nothing, until something goes wrong or topics change."""
        admin = client_config.admin(self._settings)
        found = sources.look(admin, self._own, self._registry())
        self.retention_ms = found.retention_ms()
        if self._file.is_corrupt:
            self._file.discard()
        connection = self._file.open(found.identity(topics.cluster_id(admin), TOPIC))
        folds = Folds(connection, found, self._registry, self._note_unreadable, is_live=self._file.is_live)
        reader = KafkaPartitionReader(client_config.reader_config(self._settings))
        try:
            if not self._begin(reader, folds, found, admin):
                return
            self._trouble = ""
            self._read(reader, folds, found, admin)
        finally:
            reader.close()

    def _begin(self, reader: KafkaPartitionReader, folds: Folds, found: Sources, admin: AdminClient) -> bool:
        """Begin where the file ends; False where Kafka does not have what follows, and it has to be built anew."""
        spans = found.spans(admin)
        begun: dict[Partition, int] = {}
        ends: dict[Partition, int] = {}
        for topic, partition, start, stop in spans:
            known = folds.positions.get((topic, partition))
            if known is not None and topic == self._own.changelog and not start <= known <= stop:
                log.warning("%s/%d: offset %d of the replica is not from %d to %d", topic, partition, known, start, stop)
                self._file.is_corrupt = True
                return False
            begin = start if known is None else max(start, known)
            reader.begin(topic, partition, begin)
            begun[topic, partition], ends[topic, partition] = begin, stop
        # Others read these meanwhile: each is replaced whole.
        self._positions, self._begun = dict(begun), begun
        self._asked.clear()
        self._note_ends(clock.wall_ms(), ends)
        return True

    def _read(self, reader: KafkaPartitionReader, folds: Folds, found: Sources, admin: AdminClient) -> None:
        looking, looking_for_topics = Interval(_LOOK_EVERY_S), Interval(_TOPICS_EVERY_S, at_once=True)
        while not (self._closing.is_set() or self._file.is_corrupt):
            self._fold(reader.read(_RECORDS_MAX, _WAIT_S), folds)
            if not self._file.is_live and self._has_all(self._ends):
                self._finish(folds)
            if self._file.is_live and looking.is_due():
                self._look(admin)
            if self._file.is_live and looking_for_topics.is_due() and self._topics_changed(admin, found, folds):
                return

    def _fold(self, messages: list[Message], folds: Folds) -> None:
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
            folds.fold(of_partition, moved)
            with self._folded:
                self._positions.update(moved)
                self._folded.notify_all()
            self.generation += bool(of_partition)
        while self._file.is_live and self._asked and self._has_all(self._asked[0][1]):
            self._as_of_ms = self._asked.popleft()[0]

    def _has_all(self, ends: dict[Partition, int]) -> bool:
        """Whether all is folded up to there."""
        return all(self._positions.get(place, 0) >= end for place, end in ends.items())

    def _note_ends(self, asked_ms: int, ends: dict[Partition, int]) -> None:
        self._ends, self._answered_s = ends, monotonic_s()
        self._asked.append((asked_ms, ends))

    def _finish(self, folds: Folds) -> None:
        self._file.finish()
        folds.indexed()
        self.generation += 1
        log.info("the replica is built")

    def _look(self, admin: AdminClient) -> None:
        """Ask where partitions end now."""
        now_ms = clock.wall_ms()
        ends = offset_ranges.readable(admin, self._begun)
        if len(ends) == len(self._begun):
            self._note_ends(now_ms, ends)

    def _topics_changed(self, admin: AdminClient, found: Sources, folds: Folds) -> bool:
        now = sources.look(admin, self._own, self._registry())
        partitions = {(topic, n) for topic in found.resting for n in range(found.described[topic].partitions)}
        folds.drop_deleted(offset_ranges.firsts(admin, partitions))
        return {t: d[:2] for t, d in now.described.items()} != {t: d[:2] for t, d in found.described.items()}

    def _note_unreadable(self, what: str) -> None:
        if what != self._unreadable:
            log.warning("passed over: %s", what)
        self._unreadable = f"a record cannot be read and is passed over: {what}"
