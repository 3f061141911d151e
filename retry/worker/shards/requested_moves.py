"""What moves waiting entries of one shard between two sweeps: rescheduling, actions, nulls that cancel, keys that are lost and
found, and entries that their topics refuse."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from retry.delay_queue.table.interface import Table
from retry.delivery import move_entries, park_refused
from retry.delivery.act import Acting
from retry.delivery.acted_entry import EntryActions
from retry.delivery.cancel import Cancelling
from retry.delivery.due_batch import DueRow, RefusedEntry, name_letter
from retry.delivery.hold import Held, Holding
from retry.delivery.move_entries import MoveContext
from retry.delivery.park_refused import RefusedContext
from retry.delivery.redecide import Redecider
from retry.delivery.reschedule import Rescheduling
from retry.delivery.slice_work import ActContext
from retry.delivery.sweep import ChangelogPartition
from retry.kafka.interface import SweepProducer
from retry.worker.shards.restore import ShardContext

log = logging.getLogger(__name__)


class MovesTold(NamedTuple):
    """The progress of one shard's moves, as health shows it; empty where there is nothing to show.

    Attributes:
      reschedule: how far rescheduling has come, or what it waits for.
      actions: what actions wait for.
    """

    reschedule: str
    actions: str


NOTHING_ASKED = MovesTold("", "")


class RequestedMoves:
    """How far the moves of one shard have come. Kept in memory only: whoever owns the shard next begins anew."""

    def __init__(self, changelog: ChangelogPartition, table: Table) -> None:
        self._changelog, self._table = changelog, table
        self._rescheduling, self._acting, self._cancelling = Rescheduling(), Acting(changelog, table), Cancelling()
        self._holding = Holding(changelog, table)

    def quarantine_due_rows(self, writer: SweepProducer, rows: Sequence[DueRow], shard_context: ShardContext) -> None:
        """Move those of some entries that cannot be opened out of the way of others."""
        if self._holding.quarantine_entries(writer, rows, shard_context.codec, self._build_end_reader(shard_context)):
            self._held_moved()

    def explode_blocks(self, writer: SweepProducer, rows: Sequence[DueRow]) -> None:
        """Give each entry of some blocks a record of its own, since not all of a block may go."""
        move_entries.explode_blocks(writer, self._table, self._changelog, rows)
        self.entries_moved()

    def park_refused(
        self, writer: SweepProducer, rows: Sequence[DueRow], shard_context: ShardContext, now_ms: int
    ) -> None:
        """Park those of some entries that their topics refuse once more; hold those that cannot be parked.

        Does nothing while not all is folded that was moved before.
        """
        end = self._build_end_reader(shard_context)
        if not self._holding.is_settled(end):
            return
        context = _refused_context(writer, shard_context, now_ms)
        verdicts = park_refused.judge_refused(rows, move_entries.TakenKeys(self._table), self._changelog, context)
        if verdicts.moves or verdicts.rows:
            move_entries.commit(self._move_context(writer, shard_context, now_ms), verdicts.moves, verdicts.rows)
            put = [(each.packed.key, each.packed.envelope) for each in verdicts.moves]
            put += [(key, envelope) for key, envelope in verdicts.rows if envelope is not None]
            ended = [each.key for each in verdicts.moves] + [key for key, envelope in verdicts.rows if envelope is None]
            self._table.delete_rows(ended, put)
            self._holding.await_fold()
        if verdicts.moves:
            named = "; ".join(f"{name_letter(each.key)}, which {each.entry.destination} refuses" for each in verdicts.moves[:5])
            log.warning("shard %d: %d letters are parked: %s", self._changelog.partition, len(verdicts.moves), named)
        if verdicts.held:
            refused = [RefusedEntry(name_letter(key), to, why, now_ms) for (key, _), to, why in verdicts.held]
            self._holding.hold_refused(writer, [row for row, _, _ in verdicts.held], refused)
        for key in verdicts.settled:
            shard_context.admission.refused_entries.drop_entry(key)
        self._held_moved()

    def release(self, writer: SweepProducer, shard_context: ShardContext, now_ms: int) -> bool:
        """Move one batch of what was held and can be sent now; False where there is none."""
        context = _refused_context(writer, shard_context, now_ms)
        still_refused = partial(park_refused.find_refused, changelog=self._changelog, context=context)
        end = self._build_end_reader(shard_context)
        released = self._holding.release_entries(writer, shard_context.codec, now_ms, shard_context.rows_max, end, still_refused)
        if released:
            self._held_moved()
        return released > 0

    def _held_moved(self) -> None:
        """An action would take what is on its way for gone, and a ramp for sent."""
        self.entries_moved()
        self._acting.await_fold()

    @property
    def held(self) -> Held:
        """The entries of this shard that are held, counted."""
        return self._holding.held

    def move_batch(self, writer: SweepProducer, shard_context: ShardContext, now_ms: int) -> None:
        """Move one batch of what is to be rescheduled; what operators and nulls ask for only while none of that is moving."""
        limits, moving = (shard_context.rows_max, shard_context.bytes_now), self._move_context(writer, shard_context, now_ms)
        if self._rescheduling.reschedule_batch(moving, *limits):
            log.info("shard %d: rescheduled, %s", self._changelog.partition, self._rescheduling.describe_progress())
        if self._rescheduling.is_moving:
            self._cancelling.restart()
            return
        partition, end = self._changelog.partition, self._build_end_reader(shard_context)
        actions = EntryActions(shard_context.redecider, shard_context.discarded)
        context = ActContext(
            writer, shard_context.admission, actions, audit=shard_context.audit, outcomes=shard_context.outcomes, now_ms=now_ms,
            bytes_max=shard_context.bytes_now, end=end, ask=shard_context.ask_parked, passed=shard_context.ask_passed,
            shards=shard_context.shards,
        )  # fmt: skip
        if acted := self._acting.run_slice(context):
            # What was looked at for nulls may be elsewhere now.
            self._cancelling.restart()
            log.info("shard %d: %d letters acted on", partition, acted)
        if self._cancelling.cancel_batch(moving, *limits, end):
            log.info("shard %d: nulls followed, %s", partition, self._cancelling.describe_progress())

    def _move_context(self, writer: SweepProducer, shard_context: ShardContext, now_ms: int) -> MoveContext:
        return MoveContext(self._table, writer, self._changelog, shard_context.redecider, now_ms)

    def _build_end_reader(self, shard_context: ShardContext) -> Callable[[], int]:
        topic, partition = self._changelog
        return lambda: shard_context.log.fetch_bounds(topic, [partition])[partition].end

    def entries_moved(self) -> None:
        """Entries have another place, which only the fold tells: nulls are followed when it has come so far."""
        self._cancelling.await_fold()

    def describe(self, redecider: Redecider) -> MovesTold:
        """How far what operators asked for has come, or what it waits for."""
        waits = self._rescheduling.describe_waiting(self._table, redecider) or ""
        return MovesTold(waits, self._acting.describe_waiting(redecider.digest))


def _refused_context(writer: SweepProducer, shard_context: ShardContext, now_ms: int) -> RefusedContext:
    return RefusedContext(writer, shard_context.admission, shard_context.redecider, shard_context.discarded, now_ms)
