"""Says that this worker runs, which shards it sweeps, which circuit breakers are not closed, and which letters are refused.

Consoles and `retry explain` show it. It is written by a plain producer: nothing of the service depends on it.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from zlib import crc32

from retry import clock
from retry.delivery.admission import Admission, RefusedEntry
from retry.errors import RetryError
from retry.kafka import topics
from retry.telemetry.worker_records import KEY, BreakerRecord, RefusedRecord, WorkerRecord, to_json
from retry.worker.consumer_lag_samples import SampleWriter
from retry.worker.context import Context
from retry.worker.shards.assignment import Shards
from retry.worker.shards.shard import Shard

log = logging.getLogger(__name__)

EVERY_S = 30.0
_LOOK_FOR_TOPIC_S, _END_S = 60.0, 1.0
# A record stays small, whatever happens.
_BREAKERS_MAX, _REFUSED_MAX, _WHY_CHARS_MAX = 100, 100, 300
_NAMED_MAX = 20

# Letters of a worker that their topics refuse for what they are, while all others go: for health and metrics.


def list_refused_letters(shards: Iterable[Shard], admission: Admission, now_ms: int) -> list[RefusedEntry]:
    """List the letters that were put back since topics refuse them, and those that are held, the longest refused first."""
    held = (entry for shard in shards for entry in list(shard.moves.held.refused.values()))
    return sorted((*admission.refused_entries.list_entries(now_ms), *held), key=lambda entry: entry.since_ms)


def name_refused_letters(refused: Sequence[RefusedEntry]) -> dict[str, str]:
    """Name the first 20 letters, and why each is refused."""
    return {entry.letter: f"{entry.destination}: {entry.why}" for entry in refused[:_NAMED_MAX]}


def count_refused_letters(refused: Iterable[RefusedEntry]) -> dict[str, float]:
    """Count the refused letters of each topic."""
    return {target: float(count) for target, count in Counter(entry.destination for entry in refused).items()}


class WorkerStatus:
    """Publishes the status of a worker by its stable name. Looked at by one thread, ended by another."""

    def __init__(
        self, name: str, shards: Callable[[], list[int]], breakers: Callable[[int], list[BreakerRecord]],
        refused: Callable[[int], list[RefusedRecord]], writer: Callable[[], SampleWriter], topic: str,
        partitions: Callable[[], int | None],
    ) -> None:
        self._name, self._shards, self._breakers, self._refused = name, shards, breakers, refused
        self._writer, self._topic, self._ask_partitions = writer, topic, partitions
        self._partitions: int | None = None
        self._looking = clock.Interval(_LOOK_FOR_TOPIC_S, at_once=True)
        self._due = clock.Interval(EVERY_S, at_once=True)
        self._began_ms, self._said = clock.wall_ms(), list[tuple[str, str]]()
        self._written: Future[int] | None = None
        self._trouble, self._has_ended, self._lock = "", False, threading.Lock()

    def publish_status(self) -> None:
        """Say it where it is time, or where a breaker, or what is refused, has changed."""
        self._note_trouble()
        if self._partitions is None and self._looking.is_due():
            self._partitions = self._ask_partitions()
        breakers = self._breakers(clock.wall_ms())
        refused = self._refused(clock.wall_ms())
        states = sorted([(each.target, each.state) for each in breakers] + [(each.letter, "refused") for each in refused])
        if self._partitions is not None and (self._due.is_due() or states != self._said):
            self._said = states
            self._say(breakers, refused)

    def report_end(self) -> None:
        """Say that it ends, as it was told to; waits for a moment."""
        if self._partitions is not None:
            self._say([], [], ended=True)
            if self._written is not None:
                with suppress(RetryError, TimeoutError):
                    self._written.result(_END_S)

    def _say(self, breakers: list[BreakerRecord], refused: list[RefusedRecord], *, ended: bool = False) -> None:
        record = WorkerRecord(
            host=socket.gethostname(), began_ms=self._began_ms, at_ms=clock.wall_ms(), every_ms=int(EVERY_S * 1_000),
            shards=self._shards(), breakers=breakers, refused=refused, ended=ended,
        )  # fmt: skip
        key = f"{KEY}{self._name}".encode()
        with self._lock:
            # Whoever looks at this moment must not say that it runs after it was said that it ends.
            if not self._has_ended:
                self._has_ended = ended
                self._written = self._writer().write(self._topic, crc32(key) % (self._partitions or 1), key, to_json(record))

    def _note_trouble(self) -> None:
        if self._written is None or not self._written.done():
            return
        error = self._written.exception()
        trouble = "" if error is None else str(error)
        if trouble and trouble != self._trouble:
            log.warning("consoles are not told of this worker: %s", trouble)
        self._trouble = trouble


def of_worker(context: Context, admission: Admission, shards: Shards, writer: Callable[[], SampleWriter]) -> WorkerStatus:
    topic = context.names.notes

    def partitions() -> int | None:
        described = topics.describe(context.admin, [topic], optional=True)
        return described[topic].partitions if topic in described else None

    def breakers(now_ms: int) -> list[BreakerRecord]:
        # Asked for each time: another policy file has others.
        found = admission.breakers.not_closed(now_ms)[:_BREAKERS_MAX]
        return [BreakerRecord(target, state, why[:_WHY_CHARS_MAX], since_ms) for target, state, why, since_ms in found]

    def list_refused(now_ms: int) -> list[RefusedRecord]:
        found = list_refused_letters(shards.list_open_shards(), admission, now_ms)[:_REFUSED_MAX]
        return [RefusedRecord(letter, target, why[:_WHY_CHARS_MAX], since_ms) for letter, target, why, since_ms in found]

    def list_owned() -> list[int]:
        return sorted(shard.changelog.partition for shard in shards.list_open_shards())

    return WorkerStatus(context.instance, list_owned, breakers, list_refused, writer, topic, partitions)
