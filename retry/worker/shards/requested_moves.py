"""What moves waiting entries of one shard between two sweeps: rescheduling, actions, nulls that cancel, keys that are lost and
found, and entries that their topics refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from retry.delay_queue.table.interface import Table
from retry.delivery import movers
from retry.delivery.act import Acting
from retry.delivery.cancel import Cancelling
from retry.delivery.due_batch import DueRow
from retry.delivery.hold import Held, Holding
from retry.delivery.movers import Effect, MoveContext, Mover
from retry.delivery.reschedule import Rescheduling
from retry.delivery.sweep import ChangelogPartition
from retry.kafka.interface import SweepProducer
from retry.worker.shards.restore import ShardContext


class MovesTold(NamedTuple):
    """The progress of one shard's moves, as health shows it; empty where there is nothing to show."""

    reschedule: str
    actions: str


NOTHING_ASKED = MovesTold("", "")


class RequestedMoves:
    """The movers of one shard, in the order in which they have their turns."""

    def __init__(self, changelog: ChangelogPartition, table: Table) -> None:
        self._changelog, self._table = changelog, table
        self._holding, self._rescheduling = Holding(changelog, table), Rescheduling(changelog, table)
        self._acting, self._cancelling = Acting(changelog, table), Cancelling(changelog, table)
        self._movers: list[Mover] = [self._holding, self._rescheduling, self._acting, self._cancelling]

    @property
    def held(self) -> Held:
        """The entries of this shard that are held, counted."""
        return self._holding.held

    def move_batch(self, writer: SweepProducer, shard_context: ShardContext, now_ms: int) -> bool:
        """Move one batch of waiting entries as operators and null values ask, and return whether this sweep has to end here.

        What cannot be opened, rescheduling, actions and cancelling have their turns in this order. While one moves on, the
        others wait.
        """
        context = self._build_context(writer, shard_context, now_ms)
        for at, mover in enumerate(self._movers):
            effect = mover.move_batch(context).effect
            if effect is Effect.HELD:
                self._held_moved()
                return True
            if effect is not Effect.NONE:
                for behind in self._movers[at + 1 :]:
                    behind.restart()
            if effect is Effect.MOVES_ON:
                break
        return False

    def quarantine_due_rows(
        self, writer: SweepProducer, rows: Sequence[DueRow], shard_context: ShardContext, now_ms: int
    ) -> None:
        """Move those of some entries that cannot be opened out of the way of others."""
        if self._holding.quarantine_entries(rows, self._build_context(writer, shard_context, now_ms)):
            self._held_moved()

    def park_refused(
        self, writer: SweepProducer, rows: Sequence[DueRow], shard_context: ShardContext, now_ms: int
    ) -> None:
        if self._holding.park_refused(rows, self._build_context(writer, shard_context, now_ms)):
            self._held_moved()

    def explode_blocks(self, writer: SweepProducer, rows: Sequence[DueRow]) -> None:
        """Give each entry of some blocks a record of its own, since not all of a block may go."""
        movers.explode_blocks(writer, self._table, self._changelog, rows)
        self.note_entries_moved()

    def note_entries_moved(self) -> None:
        """Note that entries have another place, which only the fold tells; nulls are followed when it has come so far."""
        self._cancelling.expect_fold()

    def _held_moved(self) -> None:
        """An action would take what is on its way for gone, and a ramp for sent."""
        self.note_entries_moved()
        self._acting.expect_fold()

    def _build_context(self, writer: SweepProducer, shard_context: ShardContext, now_ms: int) -> MoveContext:
        topic, partition = self._changelog
        return MoveContext(
            writer, shard_context.redecider, shard_context.admission, now_ms, shard_context.rows_max,
            bytes_max=shard_context.bytes_now, end=lambda: shard_context.log.fetch_bounds(topic, [partition])[partition].end,
            discarded=shard_context.discarded, audit=shard_context.audit, outcomes=shard_context.outcomes,
            ask_parked=shard_context.ask_parked, ask_passed=shard_context.ask_passed, shards=shard_context.shards,
        )  # fmt: skip

    def describe(self, digest: str) -> MovesTold:
        """Describe how far what operators asked for has come, or what it waits for."""
        return MovesTold(self._rescheduling.describe_waiting(digest), self._acting.describe_waiting(digest))
