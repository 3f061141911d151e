"""A shard: one changelog partition, with its table and its transactional producer, from opening to closing.

Opening, in this order:

1. open the producer     it fences the former owner and ends the transaction that it left open
2. open the table        what cannot be trusted is wiped
3. ask for the end of the changelog partition, undecided records included
4. fold from the table's offset on; only when that end is passed may the shard be swept

Step 3 matters: a read_committed reader stops at the first transaction that is still open, whoever began it. An intake
of another worker may hold one open in this partition while deletes of the former owner lie behind it, committed and
unseen.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from confluent_kafka import Message

from retry import clock
from retry.anew import Judge
from retry.errors import EntryUnreadable, TableUnreadable, TransactionAborted, TransactionFailed
from retry.gate import Gate
from retry.kafka.log import Log, Writer
from retry.reschedule import Rescheduling
from retry.sweep import Changelog, Swept, sweep
from retry.table.base import Table, Tables

log = logging.getLogger(__name__)


class Phase(Enum):
    """Where a shard is between opening and closing."""

    RESTORING = "restoring"
    READY = "ready"
    HALTED = "halted"
    BROKEN = "broken"
    CLOSED = "closed"


class Surroundings(NamedTuple):
    """What all shards of a process share; batches are bounded by rows and by bytes."""

    log: Log
    tables: Tables
    gate: Gate
    judge: Judge
    rows_max: int
    bytes_max: int


class Shard:
    """One shard, owned. `fold` and `sweep` may be called from different threads; each from one at a time."""

    def __init__(self, changelog: Changelog, table: Table, tables: Tables, writer: Writer, end_offset: int) -> None:
        self.changelog, self.table, self._tables = changelog, table, tables
        self.end_offset, self.trouble = end_offset, ""
        self.phase = Phase.RESTORING if table.next_offset < end_offset else Phase.READY
        self._writer, self._rescheduling = writer, Rescheduling()
        self._sweeping, self._folding = threading.Lock(), threading.Lock()

    @classmethod
    def open(cls, changelog: Changelog, around: Surroundings) -> Shard:
        """Open it; the steps are those of the module's docstring.

        Raises:
          TransactionFailed: the broker did not answer; nothing is held, try again later.
        """
        topic, partition = changelog
        tables, writer = around.tables, around.log.writer(f"shard-{partition}")
        try:
            writer.open()
            start, end = around.log.bounds(topic, [partition])[partition]
            table = tables.open(partition, clock.wall_ms())
            if not (table.next_offset == 0 or start <= table.next_offset <= end):
                lost = ", Kafka lost acknowledged writes" if table.next_offset > end else ""
                log.error("shard %d: table at %d, log from %d to %d%s: wiped", partition, table.next_offset, start, end, lost)
                table.close()
                tables.wipe(partition)
                table = tables.open(partition, clock.wall_ms())
        except BaseException:
            writer.close()
            raise
        log.info("shard %d: from %d to %d", partition, table.next_offset, end)
        return cls(changelog, table, tables, writer, end)

    def fold(self, messages: Sequence[Message]) -> None:
        """Take in changelog records, and an end of the partition where there is one."""
        with self._folding:
            if self.phase in (Phase.CLOSED, Phase.HALTED):
                return
            seen = self.table.next_offset
            if (messages[0].offset() or 0) < seen:
                # Read again from further back, which would bring to life what is deleted later on.
                log.warning("shard %d: read from %s, folded up to %d", self.changelog.partition, messages[0].offset(), seen)
                messages = [m for m in messages if (m.offset() or 0) >= seen]
                if not messages:
                    return
            rows = [(m.key(), m.value()) for m in messages if m.error() is None]
            last = messages[-1]
            next_offset = (last.offset() or 0) + (last.error() is None)
            if rows or next_offset != self.table.next_offset:
                self._guarded_fold(rows, next_offset)
            if self.phase is Phase.RESTORING and next_offset >= self.end_offset:
                self.phase = Phase.READY
                log.info("shard %d: ready, %d waiting", self.changelog.partition, self.table.waiting)

    def _guarded_fold(self, rows: list[Any], next_offset: int) -> None:
        try:
            self.table.fold(rows, next_offset, clock.wall_ms())
        except TableUnreadable as error:
            self._break(str(error), unreadable=True)
        except EntryUnreadable as error:
            self._halt(error)

    def _halt(self, error: EntryUnreadable) -> None:
        """Deliver and fold nothing more: what cannot be read may say anything."""
        if self.phase is not Phase.HALTED:
            log.error("shard %d: halted: %s", self.changelog.partition, error)
        self.phase, self.trouble = Phase.HALTED, str(error)

    def waiting(self) -> int:
        """How many entries wait here."""
        return self.table.waiting

    def to_restore(self) -> int:
        """How many changelog offsets lie between the table and being ready."""
        return max(0, self.end_offset - self.table.next_offset) if self.phase is Phase.RESTORING else 0

    def touch(self) -> None:
        """Note in the table that it is current, so that an idle one does not grow stale."""
        with self._folding:
            if self.phase is Phase.READY:
                self._guarded_fold([], self.table.next_offset)

    def sweep(self, around: Surroundings, now_ms: int) -> Swept | None:
        """Do one batch of what is to be rescheduled, and deliver one; None where it is not ready, or is swept already.

        What goes wrong changes the shard's phase; whoever owns it looks at that.
        """
        if not self._sweeping.acquire(blocking=False):
            return None
        try:
            if self.phase is not Phase.READY:
                return None
            limits = around.rows_max, around.bytes_max
            if self._rescheduling.step(self.table, self._writer, self.changelog, around.judge, *limits):
                log.info("shard %d: rescheduled, %s", self.changelog.partition, self._rescheduling.told())
            return sweep(self.table, self._writer, self.changelog, around.gate, now_ms, *limits)
        except TransactionAborted as error:
            log.warning("shard %d: %s; again at the next sweep", self.changelog.partition, error)
        except TransactionFailed as error:
            self._break(f"{type(error).__name__}: {error}")
        except TableUnreadable as error:
            self._break(str(error), unreadable=True)
        except EntryUnreadable as error:
            self._halt(error)
        finally:
            self._sweeping.release()
        return None

    def rescheduling(self, around: Surroundings) -> str | None:
        """How far what is to be rescheduled has come, or what it waits for; None where there is nothing."""
        return self._rescheduling.about(self.table, around.judge) if self.phase is Phase.READY else None

    def _break(self, trouble: str, *, unreadable: bool = False) -> None:
        self.trouble = trouble
        self.unreadable = unreadable
        self.phase = Phase.BROKEN
        log.warning("shard %d: to be opened again: %s", self.changelog.partition, trouble)

    unreadable = False

    def close(self) -> None:
        """Finish what is under way and let go of the table and the producer."""
        with self._sweeping, self._folding:
            if self.phase is not Phase.CLOSED:
                self.phase = Phase.CLOSED
                self.table.close()
                self._writer.close()
                if self.unreadable:
                    self._tables.wipe(self.changelog.partition)
