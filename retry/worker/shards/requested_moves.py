"""What moves waiting entries of one shard between two sweeps: the upgrade of old keys, rescheduling, actions,
and nulls that cancel."""

from __future__ import annotations

import logging

from retry.delay_queue.table.interface import Table
from retry.delivery import migrate_v1_keys
from retry.delivery.act import Acting
from retry.delivery.acted_entry import EntryActions
from retry.delivery.cancel import Cancelling
from retry.delivery.redecide import Redecider
from retry.delivery.reschedule import Rescheduling
from retry.delivery.slice_work import ActContext
from retry.delivery.sweep import ChangelogPartition
from retry.kafka.interface import TransactionalProducer
from retry.worker.shards.restore import ShardContext

log = logging.getLogger(__name__)


class RequestedMoves:
    """How far the moves of one shard have come. Kept in memory only: whoever owns the shard next begins anew."""

    def __init__(self, changelog: ChangelogPartition, table: Table) -> None:
        self._changelog, self._table = changelog, table
        self._rescheduling, self._acting, self._cancelling = Rescheduling(), Acting(changelog, table), Cancelling()

    def migrate(self, writer: TransactionalProducer, around: ShardContext) -> bool:
        """Move one batch of entries of the version before lanes; False where there is none left."""
        moved = migrate_v1_keys.step(self._table, writer, self._changelog, around.rows_max, around.bytes_max)
        if moved:
            self.entries_moved()
            log.info("shard %d: %d entries of the version before lanes moved", self._changelog.partition, moved)
        return moved > 0

    def step(self, writer: TransactionalProducer, around: ShardContext, now_ms: int) -> None:
        """Move one batch of what is to be rescheduled; what operators and nulls ask for only while none of that is moving."""
        limits = around.rows_max, around.bytes_max
        if self._rescheduling.step(self._table, writer, self._changelog, around.judge, *limits):
            log.info("shard %d: rescheduled, %s", self._changelog.partition, self._rescheduling.told())
        if self._rescheduling.is_moving:
            self._cancelling.restart()
            return
        topic, partition = self._changelog
        end = lambda: around.log.bounds(topic, [partition])[partition].end  # noqa: E731
        actions = EntryActions(around.judge, around.discarded)
        context = ActContext(writer, around.gate, actions, around.audit, now_ms, around.bytes_max, end, around.ask_parked,
                             around.ask_passed)  # fmt: skip
        if acted := self._acting.step(context):
            # What was looked at for nulls may be elsewhere now.
            self._cancelling.restart()
            log.info("shard %d: %d letters acted on", partition, acted)
        if self._cancelling.step(self._table, writer, self._changelog, around.judge, now_ms, *limits, end):
            log.info("shard %d: nulls followed, %s", partition, self._cancelling.told())

    def entries_moved(self) -> None:
        """Entries have another place, which only the fold tells: nulls are followed when it has come so far."""
        self._cancelling.settle()

    def about(self, judge: Redecider) -> str | None:
        """How far what is to be rescheduled has come, or what it waits for; None where there is nothing."""
        return self._rescheduling.about(self._table, judge)
