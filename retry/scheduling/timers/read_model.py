"""What `retry api` shows: a fold of the changelog's named entries, and the newest calls.

Nothing is written here but copies: tables in the data directory that begin where they ended, and in memory what became of the
newest timers. What this process has just written is shown before the fold has read it.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import NamedTuple, cast

from retry import clock
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.entry_keys import HELD_LANES, LANE_BYTES, NAMED
from retry.delay_queue.envelope_codec import PLAIN, EnvelopeCodec
from retry.delay_queue.table import named_entries
from retry.delay_queue.table.interface import ChangelogRow
from retry.delay_queue.table.rocksdb_table import RocksTable
from retry.delay_queue.table.table_directory import RocksTables
from retry.delay_queue.table.table_state import Freshness
from retry.errors import EntryForeign, RetryError
from retry.kafka.interface import Message, OffsetBounds
from retry.kafka.reading_loop import KafkaPartitionReader
from retry.scheduling.timers import entry_source as source
from retry.telemetry import call_records
from retry.telemetry.unreadable_records import UNREADABLE

log = logging.getLogger(__name__)

FINISHED_MAX = 100_000
_RECORDS_MAX, _WAIT_S = 5_000, 0.05
_PAGE = 100
_READS_MAX = 10


class WaitingTimer(NamedTuple):
    """A timer that is due some day, or just being called; its entry is `Unopened` where this process does not have its key."""

    key: bytes
    entry: envelopes.Named

    @property
    def id(self) -> str:
        """The id of the timer in the API; empty where its entry has no call, or cannot be opened."""
        return self.entry.call.id if self.entry.call is not None else ""

    @property
    def version(self) -> int:
        """Milliseconds since 1970 when it was made."""
        return entry_keys.read_version(self.key)

    @property
    def due_at_ms(self) -> int:
        return entry_keys.due_at_ms(self.key)


class _UnreadWrite(NamedTuple):
    """A write of this process that it has not read back yet; no timer where it ended one."""

    partition: int
    offset: int
    timer: WaitingTimer | None


class View:
    """Reads both topics in a thread of its own; one other thread asks it. Calls are read from the offsets `recent` on."""

    def __init__(
        self, follower: KafkaPartitionReader, tables: RocksTables, changelog: str, calls: str, bounds: dict[int, OffsetBounds],
        recent: dict[int, int], codec: EnvelopeCodec = PLAIN,
    ) -> None:  # fmt: skip
        self._follower, self._changelog, self._calls, self._codec = follower, changelog, calls, codec
        self._lock = threading.Lock()
        self._finished: OrderedDict[str, call_records.Called] = OrderedDict()
        self._unread_writes: dict[bytes, _UnreadWrite] = {}
        self._unread = {(changelog, n) for n in bounds} | {(calls, n) for n in recent}
        self._closing = False
        self.trouble = ""
        self._tables = {partition: _open_table(tables, partition, of) for partition, of in bounds.items()}
        self._freshness = {partition: Freshness(table, tables.age_ms_max) for partition, table in self._tables.items()}
        for partition, table in self._tables.items():
            follower.follow_partition(changelog, partition, table.next_offset)
        for partition, offset in recent.items():
            follower.follow_partition(calls, partition, offset)
        self._thread = threading.Thread(target=self._run, name="view", daemon=True)
        self._thread.start()

    @property
    def shards(self) -> int:
        return len(self._tables)

    def is_ready(self) -> bool:
        """Whether everything that was there at the start has been read."""
        return not self._unread and not self.trouble

    def count_waiting(self) -> int:
        return sum(table.waiting for table in self._tables.values())

    def waiting_of(self, team: str, timers_max: int) -> int:
        count = 0
        for table in self._tables.values():
            for lane in table.list_lanes():
                if lane[0] == NAMED and lane not in HELD_LANES and count < timers_max and _team_of(table, lane) == team:
                    count += table.count(lane, timers_max - count)
        return count

    def note_write(self, partition: int, offset: int, timer_id: str, timer: WaitingTimer | None) -> None:
        """Note what this process has just written: a timer, or None where it was ended."""
        with self._lock:
            if offset >= self._tables[partition].next_offset:
                self._unread_writes[source.hash_timer_id(timer_id)] = _UnreadWrite(partition, offset, timer)

    def timer(self, timer_id: str) -> WaitingTimer | None:
        name = source.hash_timer_id(timer_id)
        with self._lock:
            if (write := self._unread_writes.get(name)) is not None:
                return write.timer
        table = self._tables[entry_keys.find_shard(name, self.shards)]
        pointer = named_entries.build_pointer_key(entry_keys.build_named_key(0, name, 0, b"", 0, entry_keys.CANCEL))
        # Between two reads a fold may move it on; whoever has ended has no pointer any more, or one to its end.
        for _ in range(_READS_MAX):
            row = table.get(pointer)
            if row is None or (key := named_entries.waits(row)) is None:
                return None
            if (envelope := table.get(key)) is not None:
                return self._describe_timer(key, envelope)
        return None

    def last_call(self, timer_id: str) -> call_records.Called | None:
        """Find the outcome of a timer's last call, where it is among the newest 100,000."""
        with self._lock:
            return self._finished.get(timer_id)

    def between(self, from_ms: int, to_ms: int, after: bytes, team: str, rows_max: int) -> list[WaitingTimer]:
        """List a team's timers due from one moment to before another, in due order, behind the cursor `after`, empty at first."""
        lanes = [(table, lane) for table in self._tables.values() for lane in table.list_lanes() if lane[0] == NAMED]
        rows = (_of_lane(table, lane, from_ms, to_ms, after) for table, lane in lanes)
        in_due_order = merge(*rows, key=lambda row: row[0][LANE_BYTES:])
        timers = (self._describe_timer(key, envelope) for key, envelope in in_due_order if _team(envelope) == team)
        return list(islice(timers, rows_max))

    def _describe_timer(self, key: bytes, envelope: bytes) -> WaitingTimer:
        return WaitingTimer(key, cast(envelopes.Named, self._codec.decode_to_show(key, envelope)))

    def _run(self) -> None:
        while not self._closing:
            try:
                self._read()
            except RetryError as error:
                self.trouble = str(error)
                log.error("cannot go on reading: %s", error)
                return
            except Exception as error:
                # A mistake of ours: what has ended must not look as if it went on.
                self.trouble = f"a fault of the service ({type(error).__name__}), which its log has; start it again"
                log.exception("cannot go on reading")
                return

    def _read(self) -> None:
        of_partition: dict[tuple[str, int], list[Message]] = {}
        for message in self._follower.read(_RECORDS_MAX, _WAIT_S):
            of_partition.setdefault((message.topic() or "", message.partition() or 0), []).append(message)
        for (topic, partition), messages in of_partition.items():
            if topic == self._calls:
                self._keep_calls(message for message in messages if message.error() is None)
            else:
                self._apply_messages(partition, messages)
            if messages[-1].error() is not None:
                self._unread.discard((topic, partition))

    def _apply_messages(self, partition: int, messages: list[Message]) -> None:
        table = self._tables[partition]
        last = messages[-1]
        next_offset = (last.offset() or 0) + (last.error() is None)
        if next_offset < table.next_offset:
            return
        offsets = {}
        rows: list[ChangelogRow] = []
        for message in messages:
            if message.error() is not None:
                continue
            key, offset = message.key(), message.offset() or 0
            if offset >= table.next_offset and key and key[0] == NAMED:
                rows.append((key, message.value()))
                offsets[key] = offset
        freshness = self._freshness[partition]
        if last.error() is not None:
            freshness.note_current(clock.wall_ms())
        for row in table.apply_records(rows, next_offset, freshness.current_at_ms):
            UNREADABLE.pass_over(self._changelog, partition, offsets.get(row.key), row.why)
        with self._lock:
            for name, write in list(self._unread_writes.items()):
                if write.partition == partition and write.offset < next_offset:
                    del self._unread_writes[name]

    def _keep_calls(self, messages: Iterable[Message]) -> None:
        for message in messages:
            try:
                called = call_records.read(message.value() or b"")
            except ValueError as error:
                UNREADABLE.pass_over(message.topic(), message.partition(), message.offset(), error)
                continue
            with self._lock:
                self._finished[called.id] = called
                self._finished.move_to_end(called.id)
                if len(self._finished) > FINISHED_MAX:
                    self._finished.popitem(last=False)

    def close(self) -> None:
        self._closing = True
        self._thread.join()
        self._follower.close()
        for table in self._tables.values():
            table.close()


def build_cursor(timer: WaitingTimer) -> bytes:
    """Build the cursor with which a list goes on behind this timer."""
    return timer.key[LANE_BYTES:]


def _of_lane(table: RocksTable, lane: bytes, from_ms: int, to_ms: int, after: bytes) -> Iterator[tuple[bytes, bytes]]:
    at, end = max(entry_keys.build_due_bound(from_ms, lane), lane + after), entry_keys.build_due_bound(to_ms, lane)
    while page := table.scan_entries(at, _PAGE):
        for _, key, envelope in page:
            if key >= end:
                return
            yield key, envelope
        at = page[-1][0]


def _team_of(table: RocksTable, lane: bytes) -> str | None:
    """Find the team whose timers a lane has: that of the first one, since no two teams share a lane."""
    for _, key, envelope in table.scan_entries(lane, 1):
        if key.startswith(lane):
            return _team(envelope)
    return None


def _team(envelope: bytes) -> str | None:
    """Find the team whose timer it is; None of what is no timer: those alone go to a host."""
    try:
        of = envelopes.decode_routing(envelope)
    except EntryForeign:
        return None
    return of.team if "://" in of.destination else None


def _open_table(tables: RocksTables, partition: int, bounds: OffsetBounds) -> RocksTable:
    table = tables.open(partition, clock.wall_ms())
    if table.next_offset and not bounds.start <= table.next_offset <= bounds.end:
        table.close()
        tables.delete_table(partition)
        table = tables.open(partition, clock.wall_ms())
    return table
