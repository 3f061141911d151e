"""What a shard is opened with, and the steps of opening one.

1. open the producers    they fence the former owner and end the transaction that it left open
2. open the table        what cannot be trusted is wiped
3. ask for the end of the changelog partition, undecided records included
4. fold from the table's offset on; only when that end is passed may the shard be swept

Step 3 matters: a read_committed reader stops at the first transaction that is still open, whoever began it. An intake
of another worker may hold one open in this partition while deletes of the former owner lie behind it, committed and
unseen.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from retry import clock
from retry.delay_queue.table.interface import Table, TableDirectory
from retry.delivery.admission import Admission
from retry.delivery.redecide import Redecider
from retry.delivery.sweep import ChangelogPartition
from retry.delivery.webhooks.in_flight import WebhooksInFlight
from retry.kafka.interface import Log, OffsetBounds, TransactionalProducer
from retry.kafka.spare_producer import SparedProducer
from retry.kafka.topics import DELETE_RETENTION_MS

log = logging.getLogger(__name__)


class ShardContext(NamedTuple):
    """What all shards of a process share; batches are bounded by rows and by bytes."""

    log: Log
    tables: TableDirectory
    gate: Admission
    judge: Redecider
    rows_max: int
    bytes_max: int
    stale_ms: int = DELETE_RETENTION_MS // 2
    calls: WebhooksInFlight | None = None


def fenced(changelog: ChangelogPartition, around: ShardContext) -> tuple[TransactionalProducer, OffsetBounds]:
    """Steps 1 and 3: a producer, open, and the bounds of the partition then.

    Raises:
      TransactionFailed: the broker did not answer; nothing is open, try again later.
    """
    writer = SparedProducer(around.log.writer, f"shard-{changelog.partition}")
    try:
        writer.open()
        return writer, around.log.bounds(changelog.topic, [changelog.partition])[changelog.partition]
    except BaseException:
        writer.close()
        raise


def table(changelog: ChangelogPartition, around: ShardContext, bounds: OffsetBounds) -> Table:
    """Step 2; before or after step 3 is the same, since nobody else writes to the table."""
    tables, partition = around.tables, changelog.partition
    found = tables.open(partition, clock.wall_ms())
    if not is_within(found, bounds):
        lost = ", Kafka lost acknowledged writes" if found.next_offset > bounds.end else ""
        log.error("shard %d: table at %d, log from %d to %d%s: wiped", partition, found.next_offset, *bounds, lost)
        found.close()
        tables.wipe(partition)
        found = tables.open(partition, clock.wall_ms())
    return found


def is_within(table: Table, bounds: OffsetBounds) -> bool:
    """Whether the log goes on where a table ends."""
    return table.next_offset == 0 or bounds.start <= table.next_offset <= bounds.end
