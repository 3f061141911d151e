"""What waits and what became of it, as far as this process has read: a fold of the changelog's named entries, and the last calls.

Nothing is written here but copies: tables in the data directory that begin where they ended, and in memory what became of the
newest timers. What this process has just written is known before the fold tells of it.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import NamedTuple

import msgspec
from confluent_kafka import Message

from retry import clock
from retry.delay_queue import entry as entries
from retry.scheduling.timers import entry_source as door
from retry.delay_queue.entry import LANE_BYTES, NAMED, Named
from retry.errors import RetryError
from retry.kafka.partition_reader import Follower
from retry.kafka.interface import Bounds
from retry.delay_queue.table import named_entries
from retry.delay_queue.table.rocksdb_table import RocksTable
from retry.delay_queue.table.table_directory import RocksTables
from retry.telemetry import call_records
from retry.telemetry.call_records import Called

log = logging.getLogger(__name__)

FINISHED_MAX = 100_000
_RECORDS_MAX, _WAIT_S = 5_000, 0.05
_PAGE = 100
_LOOKS_MAX = 10


class Waiting(NamedTuple):
    """A timer that is due some day, or just being called."""

    key: bytes
    entry: Named

    @property
    def id(self) -> str:
        """Its name outside."""
        return self.entry.call.id if self.entry.call is not None else ""

    @property
    def version(self) -> int:
        """Milliseconds since 1970 when it was made."""
        return entries.version_of(self.key)

    @property
    def due_at_ms(self) -> int:
        """When the next call is due."""
        return entries.due_at_ms(self.key)


class _Ours(NamedTuple):
    """What this process wrote and has not read back; no timer where it was ended."""

    partition: int
    offset: int
    timer: Waiting | None


class View:
    """Reads in a thread of its own; asked by one other.

    Args:
      changelog, calls: the topics.
      bounds: of the changelog's partitions.
      recent: offsets in the topic of calls from which on it is read.
    """

    def __init__(
        self, follower: Follower, tables: RocksTables, changelog: str, calls: str, bounds: dict[int, Bounds],
        recent: dict[int, int],
    ) -> None:
        self._follower, self._changelog, self._calls = follower, changelog, calls
        self._lock = threading.Lock()
        self._finished: OrderedDict[str, Called] = OrderedDict()
        self._ours: dict[bytes, _Ours] = {}
        self._unread = {(changelog, n) for n in bounds} | {(calls, n) for n in recent}
        self._closing = False
        self.trouble = ""
        self._tables = {partition: _opened(tables, partition, of) for partition, of in bounds.items()}
        for partition, table in self._tables.items():
            follower.begin(changelog, partition, table.next_offset)
        for partition, offset in recent.items():
            follower.begin(calls, partition, offset)
        self._thread = threading.Thread(target=self._run, name="view", daemon=True)
        self._thread.start()

    @property
    def shards(self) -> int:
        """Partitions of the changelog."""
        return len(self._tables)

    def ready(self) -> bool:
        """Whether everything was read once that was there at the start."""
        return not self._unread and not self.trouble

    def waiting(self) -> int:
        """How many named entries wait, of all doors."""
        return sum(table.waiting for table in self._tables.values())

    def wrote(self, partition: int, offset: int, timer_id: str, timer: Waiting | None) -> None:
        """This process wrote a timer there, or ended it."""
        with self._lock:
            if offset >= self._tables[partition].next_offset:
                self._ours[door.name(timer_id)] = _Ours(partition, offset, timer)

    def timer(self, timer_id: str) -> Waiting | None:
        """The timer of this id, if it waits."""
        name = door.name(timer_id)
        with self._lock:
            if (ours := self._ours.get(name)) is not None:
                return ours.timer
        table = self._tables[entries.shard_of(name, self.shards)]
        pointer = named_entries.pointer(entries.named_key(0, name, 0, b"", 0, entries.CANCEL))
        # Between two reads a fold may move it on; whoever has ended has no pointer any more, or one to its end.
        for _ in range(_LOOKS_MAX):
            row = table.get(pointer)
            if row is None or (key := named_entries.waits(row)) is None:
                return None
            if (envelope := table.get(key)) is not None:
                return Waiting(key, entries.decode_named(envelope))
        return None

    def last_call(self, timer_id: str) -> Called | None:
        """What came of the last call of a timer, of the newest ones."""
        with self._lock:
            return self._finished.get(timer_id)

    def between(self, from_ms: int, to_ms: int, after: bytes, team: str, rows_max: int) -> list[Waiting]:
        """A team's timers due from one moment to before another, in due order.

        Args:
          after: the end of the last one's key, see `cursor`, where it goes on; empty at the beginning.
        """
        lanes = [(table, lane) for table in self._tables.values() for lane in table.lanes() if lane[0] == NAMED]
        rows = (_of_lane(table, lane, from_ms, to_ms, after) for table, lane in lanes)
        found = merge(*rows, key=lambda row: row[0][LANE_BYTES:])
        timers = (Waiting(key, entries.decode_named(envelope)) for key, envelope in found)
        return list(islice((each for each in timers if each.entry.team == team and each.entry.call is not None), rows_max))

    def _run(self) -> None:
        while not self._closing:
            try:
                self._read()
            except RetryError as error:
                self.trouble = str(error)
                log.error("cannot go on reading: %s", error)
                return

    def _read(self) -> None:
        of_partition: dict[tuple[str, int], list[Message]] = {}
        for message in self._follower.read(_RECORDS_MAX, _WAIT_S):
            of_partition.setdefault((message.topic() or "", message.partition() or 0), []).append(message)
        for (topic, partition), messages in of_partition.items():
            if topic == self._calls:
                self._note(messages)
            else:
                self._fold(partition, messages)
            if messages[-1].error() is not None:
                self._unread.discard((topic, partition))

    def _fold(self, partition: int, messages: list[Message]) -> None:
        table = self._tables[partition]
        last = messages[-1]
        next_offset = (last.offset() or 0) + (last.error() is None)
        if next_offset < table.next_offset:
            return
        rows = [(m.key(), m.value()) for m in messages if m.error() is None and (m.offset() or 0) >= table.next_offset]
        table.fold([row for row in rows if row[0] and row[0][0] == NAMED], next_offset, clock.wall_ms())  # type: ignore[misc, index]
        with self._lock:
            for name in [n for n, ours in self._ours.items() if ours.partition == partition and ours.offset < next_offset]:
                del self._ours[name]

    def _note(self, messages: list[Message]) -> None:
        for message in messages:
            if message.error() is not None:
                continue
            try:
                called = call_records.read(message.value() or b"")
            except msgspec.MsgspecError as error:
                log.warning("%s/%s/%s: no call: %s", message.topic(), message.partition(), message.offset(), error)
                continue
            with self._lock:
                self._finished[called.id] = called
                self._finished.move_to_end(called.id)
                if len(self._finished) > FINISHED_MAX:
                    self._finished.popitem(last=False)

    def close(self) -> None:
        """Let go of the client and the tables."""
        self._closing = True
        self._thread.join()
        self._follower.close()
        for table in self._tables.values():
            table.close()


def cursor(timer: Waiting) -> bytes:
    """Where a list goes on behind this one."""
    return timer.key[LANE_BYTES:]


def _of_lane(table: RocksTable, lane: bytes, from_ms: int, to_ms: int, after: bytes) -> Iterator[tuple[bytes, bytes]]:
    at, end = max(entries.due_bound(from_ms, lane), lane + after), entries.due_bound(to_ms, lane)
    while page := table.page(at, _PAGE):
        for key, envelope in page:
            if key >= end:
                return
            yield key, envelope
        at = page[-1][0]


def _opened(tables: RocksTables, partition: int, bounds: Bounds) -> RocksTable:
    table = tables.open(partition, clock.wall_ms())
    if table.next_offset and not bounds.start <= table.next_offset <= bounds.end:
        table.close()
        tables.wipe(partition)
        table = tables.open(partition, clock.wall_ms())
    return table
