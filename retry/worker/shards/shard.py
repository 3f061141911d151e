"""A shard: one changelog partition with its table, from opening (see `restore`) to closing.

A standby is a shard that another worker owns: it is folded and never swept. When it is taken over, its table
is there already, and only a short tail is left to fold. When a shard is handed over, it becomes one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from retry import clock
from retry.delay_queue import control_records, entry_keys
from retry.delay_queue.table.changelog_records import count_before_newer
from retry.delay_queue.table.interface import DueEstimate, Table, TableDirectory, UnreadableRow
from retry.delay_queue.table.table_state import Freshness
from retry.delivery.admission import Admission
from retry.delivery.disregarded_changes import DisregardedChanges, SentNames
from retry.delivery.sweep import ChangelogPartition
from retry.errors import EntryNewer, EntryUnreadable, ProducerSpent, TableUnreadable, TransactionAborted, TransactionFailed
from retry.kafka.interface import KafkaException, Message, OffsetBounds
from retry.kafka.topics import DELETE_RETENTION_MS
from retry.telemetry.health import HealthProbe
from retry.telemetry.unreadable_records import UNREADABLE
from retry.worker.shards import restore
from retry.worker.shards.requested_moves import NOTHING_ASKED, MovesTold, RequestedMoves
from retry.worker.shards.restore import Phase, RestoreProgress, ShardContext, SweepProgress

log = logging.getLogger(__name__)

# Of so many quick checks of an idle shard one is thorough: can entries that are held be sent now, say.
_THOROUGH_EVERY = 20

# Phases in which what is read is taken in, and may have been read too late.
_FOLDED = (Phase.STANDBY, Phase.RESTORING, Phase.READY)

_Done = TypeVar("_Done")


class Shard:
    """One shard, owned or standing by. It is folded by one thread, and swept by one sweep at a time: see `acquire_sweep_lock`.

    Attributes:
      is_still_ours: whether what broke it says that no other worker has taken over.
      unreadable: whether its table is to be deleted, and read anew.
    """

    unreadable = is_still_ours = False

    def __init__(
        self, changelog: ChangelogPartition, table: Table, tables: TableDirectory, end_offset: int,
        stale_ms: int = DELETE_RETENTION_MS // 2, *, owned: bool = True, disregarded: DisregardedChanges | None = None,
    ) -> None:  # fmt: skip
        self.disregarded = disregarded or DisregardedChanges()
        self.sent_names = SentNames(self.disregarded)
        self.changelog, self.table, self._tables = changelog, table, tables
        self.trouble, self._freshness, self.progress = "", Freshness(table, stale_ms), SweepProgress(changelog)
        self._readable = end_offset
        self._begin_restore(end_offset, owned=owned)
        self._sweeping, self._folding = threading.Lock(), threading.Lock()
        self._checks = 0

    def _begin_restore(self, end_offset: int, *, owned: bool) -> None:
        self.restoring = RestoreProgress(self.table, end_offset)
        self.moves = RequestedMoves(self.changelog, self.table)
        self.progress.restart()
        self.phase = Phase.STANDBY
        if owned:
            log.info("shard %d: from %d to %d", self.changelog.partition, self.table.next_offset, end_offset)
            self.phase = Phase.RESTORING
            self._become_ready()

    def _become_ready(self) -> None:
        if self.phase is Phase.RESTORING and not self.restoring.unread():
            self.phase = Phase.READY
            log.info("shard %d: ready, %d waiting", self.changelog.partition, self.table.waiting)

    @classmethod
    def open(cls, changelog: ChangelogPartition, shard_context: ShardContext) -> Shard:
        """Open it by the steps of `retry.worker.shards.restore`; raises KafkaException, TimeoutError: try again later."""
        return cls._open_table(changelog, shard_context, restore.fetch_bounds(changelog, shard_context), owned=True)

    @classmethod
    def stand_by(cls, changelog: ChangelogPartition, shard_context: ShardContext, bounds: OffsetBounds) -> Shard:
        """Open its table only, to be kept current while another worker owns it."""
        return cls._open_table(changelog, shard_context, bounds, owned=False)

    @classmethod
    def _open_table(
        cls, changelog: ChangelogPartition, shard_context: ShardContext, bounds: OffsetBounds, *, owned: bool
    ) -> Shard:
        table = restore.table(changelog, shard_context, bounds)
        return cls(
            changelog, table, shard_context.tables, bounds.end, shard_context.stale_ms, owned=owned,
            disregarded=shard_context.disregarded,
        )  # fmt: skip

    def take_over(self, shard_context: ShardContext) -> bool:
        """Own it from now on; False if its table has to be closed. Raises what `open` does, and then stands by as before."""
        bounds = restore.fetch_bounds(self.changelog, shard_context)
        with self._folding:
            self._break_if_stale()
            if self.phase is Phase.STANDBY and not restore.is_within(self.table, bounds):
                self._break(f"at {self.table.next_offset}, log from {bounds.start} to {bounds.end}", unreadable=True)
            if self.phase is not Phase.STANDBY:
                return False
            self._begin_restore(bounds.end, owned=True)
            return True

    def hand_over(self) -> bool:
        """Finish what is under way and only stand by from now on; False if it has to be closed."""
        with self._sweeping, self._folding:
            if self.phase not in (Phase.READY, Phase.RESTORING):
                return False
            self._begin_restore(self.restoring.end_offset, owned=False)
            return True

    def note_end(self, readable: int, at_ms: int) -> None:
        """Note that at that time readers of committed records came to this offset; without a lock: a watchdog must never wait."""
        self._readable = readable
        if self.table.next_offset >= readable:
            self._freshness.note_current(at_ms)

    def _break_if_stale(self) -> bool:
        is_stale = self.phase in _FOLDED and self._freshness.is_stale()
        if is_stale:
            self._break("it has not been current for too long, and may have missed deletes: it is read anew", unreadable=True)
        return is_stale

    def lag(self) -> int:
        """Return how many changelog offsets a standby was behind its readable end, as last asked; 0 if it is no standby."""
        return max(0, self._readable - self.table.next_offset) if self.phase is Phase.STANDBY else 0

    def apply_messages(self, messages: Sequence[Message]) -> None:
        """Take in changelog records, and an end of the partition where there is one."""
        with self._folding:
            if self.phase in (Phase.CLOSED, Phase.READ_ONLY, Phase.HALTED) or self._break_if_stale():
                return
            seen = self.table.next_offset
            if (messages[0].offset() or 0) < seen:
                # Read again from further back, which would bring to life what is deleted later on.
                log.warning("shard %d: read from %s, folded up to %d", self.changelog.partition, messages[0].offset(), seen)
                messages = [m for m in messages if (m.offset() or 0) >= seen]
                if not messages:
                    return
            records = [m for m in messages if m.error() is None]
            last = messages[-1]
            next_offset = (last.offset() or 0) + (last.error() is None)
            if records or next_offset != self.table.next_offset:
                self._guarded_fold(records, next_offset)
            if last.error() is not None:
                self._freshness.note_current(clock.wall_ms())
            self._become_ready()

    def _guarded_fold(self, records: Sequence[Message], next_offset: int) -> None:
        rows: list[Any] = [(m.key(), m.value()) for m in records]
        try:
            self.restoring.update_bulk_load()
            unreadable = self.table.apply_records(rows, next_offset, self._freshness.current_at_ms)
            passed_over = {row.key for row in unreadable}
            self.sent_names.check([row for row in rows if row[0] not in passed_over] if passed_over else rows)
        except TableUnreadable as error:
            self._break(str(error), unreadable=True)
        except EntryNewer as error:
            # Folded is all before it, so that a worker that can read it goes on from there.
            readable = count_before_newer(rows)
            stop = records[readable].offset() or 0
            self._guarded_fold(records[:readable], stop)
            if self.phase is not Phase.BROKEN:
                self._halt(error, f"offset {stop}: ")
        else:
            if unreadable:
                self._pass_over(unreadable, records)

    def _pass_over(self, unreadable: Sequence[UnreadableRow], records: Sequence[Message]) -> None:
        offsets = {record.key(): record.offset() for record in records}
        for row in unreadable:
            UNREADABLE.pass_over(*self.changelog, offsets.get(row.key), row.why)

    def _halt(self, error: EntryUnreadable, where: str = "") -> None:
        """Deliver and fold nothing more: what cannot be read may say anything."""
        self.phase = Phase.READ_ONLY if isinstance(error, EntryNewer) else Phase.HALTED
        self.trouble = f"{where}{error}"
        log.error("shard %d: %s: %s", self.changelog.partition, self.phase.value, self.trouble)

    def count_waiting(self) -> int:
        return self.table.waiting

    def scan_entries(self, after: bytes, rows_max: int) -> list[tuple[bytes, bytes, bytes]]:
        """List the next entries, as `Table.scan_entries` does; raises as it does. Return none once the shard is closed."""
        with self._folding:
            return [] if self.phase is Phase.CLOSED else self.table.scan_entries(after, rows_max)

    def soon(self, until_ms: Sequence[int], rows_max: int) -> DueEstimate:
        """Estimate how many entries are due soon, as `Table.estimate_due` does; none is due once the shard is closed."""
        with self._folding:
            if self.phase is Phase.CLOSED:
                return DueEstimate(None, [0] * len(until_ms))
            return self.table.estimate_due(until_ms, rows_max)

    def list_first_entries(self, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """List the first entries of every lane, as `Table.list_first_entries` does; empty once the shard is closed."""
        with self._folding:
            return [] if self.phase is Phase.CLOSED else self.table.list_first_entries(rows_max, bytes_max)

    def to_restore(self) -> int:
        return self.restoring.unread() if self.phase is Phase.RESTORING else 0

    def measure_restore(self) -> float:
        """Return which part, 0 to 1, is read of what was to be read when the shard was opened; 1 where nothing was."""
        return self.restoring.share() if self.phase is Phase.RESTORING else 1.0

    def touch(self) -> None:
        """Note in the table when it was last seen to be current, so that an idle one does not grow stale."""
        with self._folding:
            self._break_if_stale()
            if self.phase in (Phase.READY, Phase.STANDBY):
                self._guarded_fold([], self.table.next_offset)

    def acquire_sweep_lock(self) -> bool:
        """Keep it as it is for a sweep, so that it is not given up meanwhile; False where it is not ready, or held already."""
        if not self._sweeping.acquire(blocking=False):
            return False
        if self.phase is not Phase.READY:
            self._sweeping.release()
            return False
        return True

    def release(self) -> None:
        self.progress.note_try()
        self._sweeping.release()

    def run_guarded(self, step: Callable[[], _Done]) -> _Done | None:
        """Do something; what goes wrong changes the shard's phase, and gives None.

        What brokers do not answer is asked again at the next sweep: the end of the changelog, where letters are moved.
        """
        try:
            return step()
        except (KafkaException, TimeoutError) as error:
            self.progress.note_failure(str(error) or "brokers did not answer in time")
        except (TransactionFailed, TableUnreadable, EntryUnreadable) as error:
            self.note_failure(error)
        return None

    def note_failure(self, error: Exception) -> None:
        """Note that a sweep failed; by its error, the shard is swept again, opened again, or left alone."""
        if isinstance(error, TransactionAborted):
            self.progress.note_failure(str(error))
        elif isinstance(error, TransactionFailed):
            self.is_still_ours = isinstance(error, ProducerSpent)
            self._break(f"{type(error).__name__}: {error}")
        elif isinstance(error, EntryUnreadable):
            self._halt(error)
        else:
            self._break(str(error), unreadable=True)

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing is to be done here, by a quick check; now and then it says no, for a thorough one."""
        self._checks += 1
        if is_idle := self._checks % _THOROUGH_EVERY != 0 and self.quiet(now_ms):
            self.progress.note_rest()
        return is_idle

    def quiet(self, now_ms: int) -> bool:
        """Whether nothing is to be done here at this time, or later, by what is in the table now."""
        table = self.table
        if self.phase is not Phase.READY:
            return True
        try:
            asked = control_records.is_standing_request(table.controls) or table.has_slices
            ended = table.list_superseded(1) or table.expired_cancels(now_ms, 1)
            return not (asked or set(table.find_due_lanes(now_ms)) - entry_keys.HELD_LANES or ended)
        except TableUnreadable:
            # Whoever sweeps it finds that too, and has it opened again.
            return False

    def is_overlooked(self, admission: Admission, now_ms: int) -> bool:
        """Whether something is due that nothing holds: a sweep that found nothing must not leave that behind."""
        lanes = {admission.lanes[prefix] for prefix in self.table.find_due_lanes(now_ms) if prefix in admission.lanes}
        due = {lane for lane in lanes if not lane.calls}
        return bool(due) and not due <= admission.list_blocked(now_ms).keys()

    def list_probes(self) -> list[HealthProbe]:
        """List what must go on here, for the watchdog; takes no lock, since whoever hangs may hold it."""
        offset = self.table.next_offset
        if self.phase is Phase.STANDBY:
            name = f"shard {self.changelog.partition}: standing by"
            return [HealthProbe(name, offset, place=self.changelog, offset=offset, thread="changelog")]
        if self.phase not in (Phase.READY, Phase.RESTORING):
            return []
        return self.progress.probes(ready=self.phase is Phase.READY, next_offset=offset)

    def describe_requested(self, shard_context: ShardContext) -> MovesTold:
        return self.moves.describe(shard_context.redecider.digest) if self.phase is Phase.READY else NOTHING_ASKED

    def _break(self, trouble: str, *, unreadable: bool = False) -> None:
        self.trouble, self.unreadable, self.phase = trouble, unreadable, Phase.BROKEN
        log.warning("shard %d: to be opened again: %s", self.changelog.partition, trouble)

    def close(self) -> None:
        """Finish what is under way and let go of the table."""
        with self._sweeping, self._folding:
            if self.phase is not Phase.CLOSED:
                self.phase = Phase.CLOSED
                self.table.close()
                if self.unreadable:
                    self._tables.delete_table(self.changelog.partition)
