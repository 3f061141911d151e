"""What a shard is opened with, and the first three of its steps; see `retry.worker.shards.shard`."""

from __future__ import annotations

import logging
from typing import NamedTuple

from retry import clock
from retry.delivery.redecide import Judge
from retry.delivery.webhooks.in_flight import Calls
from retry.delivery.admission import Gate
from retry.kafka.interface import Bounds, Log, Writer
from retry.kafka.topics import DELETE_RETENTION_MS
from retry.delivery.sweep import Changelog
from retry.delay_queue.table.interface import Table, Tables

log = logging.getLogger(__name__)


class Surroundings(NamedTuple):
    """What all shards of a process share; batches are bounded by rows and by bytes."""

    log: Log
    tables: Tables
    gate: Gate
    judge: Judge
    rows_max: int
    bytes_max: int
    stale_ms: int = DELETE_RETENTION_MS // 2
    calls: Calls | None = None


def fenced(changelog: Changelog, around: Surroundings) -> tuple[Writer, Bounds]:
    """Steps 1 and 3: a producer, open, and the bounds of the partition then.

    Raises:
      TransactionFailed: the broker did not answer; nothing is held, try again later.
    """
    writer = around.log.writer(f"shard-{changelog.partition}")
    try:
        writer.open()
        return writer, around.log.bounds(changelog.topic, [changelog.partition])[changelog.partition]
    except BaseException:
        writer.close()
        raise


def table(changelog: Changelog, around: Surroundings, bounds: Bounds) -> Table:
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


def is_within(table: Table, bounds: Bounds) -> bool:
    """Whether the log goes on where a table ends."""
    return table.next_offset == 0 or bounds.start <= table.next_offset <= bounds.end
