"""What a shard is opened with, the steps of opening one, and how it gets on from then to its end.

1. be given the partition    from then on brokers refuse what the former owner has not proved to be its own by then
2. open the table            what cannot be trusted is wiped
3. ask for the end of the changelog partition, undecided records included
4. fold from the table's offset on; only when that end is passed may the shard be swept

Step 3 matters: a read_committed reader stops at the first transaction that is still open, whoever began it. It may be one of
the former owner, which still counts, or one of an intake, with deletes of the former owner behind it, committed and unseen.
"""

from __future__ import annotations

import logging
from enum import Enum
from itertools import count
from typing import NamedTuple

from retry import clock
from retry.delay_queue.envelope_codec import EnvelopeCodec
from retry.delay_queue.table.interface import Table, TableDirectory
from retry.delivery import movers
from retry.delivery.admission import Admission
from retry.delivery.disregarded_changes import DisregardedChanges
from retry.delivery.movers import AskParked, AskPassed
from retry.delivery.redecide import Redecider
from retry.delivery.sweep import ChangelogPartition
from retry.delivery.webhooks_in_flight import WebhooksInFlight
from retry.kafka.interface import Log, OffsetBounds, Partition
from retry.kafka.topics import DELETE_RETENTION_MS
from retry.kafka.transaction_pace import TransactionPace
from retry.telemetry.health import HealthProbe, Reason

log = logging.getLogger(__name__)

# A table that lacks more than so many records is filled in bulk.
_BULK_RECORDS = 100_000


class ShardContext(NamedTuple):
    """The parts and limits that all shards of a process share; batches are bounded by rows and by bytes.

    Attributes:
      shards: how many there are, by which intake puts entries; 0 where that is not known.
      disregarded: is told of changes by name that have no effect; None where nobody counts them.
    """

    log: Log
    tables: TableDirectory
    admission: Admission
    redecider: Redecider
    rows_max: int
    bytes_max: int
    stale_ms: int = DELETE_RETENTION_MS // 2
    calls: WebhooksInFlight | None = None
    discarded: str = ""
    audit: str = ""
    outcomes: str = ""
    ask_parked: AskParked = movers.find_no_records
    ask_passed: AskPassed = movers.name_no_group
    shards: int = 0
    pace: TransactionPace | None = None
    disregarded: DisregardedChanges | None = None

    @property
    def codec(self) -> EnvelopeCodec:
        """Reads and writes envelopes."""
        return self.redecider.entry_builder.codec

    @property
    def bytes_now(self) -> int:
        """How many bytes a transaction may have just now."""
        return self.bytes_max if self.pace is None else self.pace.bytes_max

    def note_failure(self, begun_s: float, size: int = 0) -> None:
        """Note that a transaction that was begun at this monotonic time was not committed; see `TransactionPace`."""
        if self.pace is not None:
            self.pace.note_failure(begun_s, size)

    def note_commit(self, begun_s: float, size: int) -> None:
        if self.pace is not None:
            self.pace.note_commit(begun_s, size)


def fetch_bounds(changelog: ChangelogPartition, shard_context: ShardContext) -> OffsetBounds:
    """Step 3: ask where the partition begins and ends; raises KafkaException, TimeoutError: nothing is open, try again later."""
    return shard_context.log.fetch_bounds(changelog.topic, [changelog.partition])[changelog.partition]


def table(changelog: ChangelogPartition, shard_context: ShardContext, bounds: OffsetBounds) -> Table:
    """Step 2; before or after step 3 is the same, since nobody else writes to the table."""
    tables, partition = shard_context.tables, changelog.partition
    found = tables.open(partition, clock.wall_ms())
    if not is_within(found, bounds):
        lost = ", Kafka lost acknowledged writes" if found.next_offset > bounds.end else ""
        log.error("shard %d: table at %d, log from %d to %d%s: wiped", partition, found.next_offset, *bounds, lost)
        found.close()
        tables.delete_table(partition)
        found = tables.open(partition, clock.wall_ms())
    return found


def is_within(table: Table, bounds: OffsetBounds) -> bool:
    """Whether the log goes on where a table ends."""
    return table.next_offset == 0 or bounds.start <= table.next_offset <= bounds.end


class RestoreProgress:
    """How far a table is from `end_offset`, where its partition ended, undecided records included; far off it is filled in bulk.
    """

    def __init__(self, table: Table, end_offset: int) -> None:
        self._table, self._begun_at, self.end_offset = table, table.next_offset, end_offset
        self._in_bulk = self.unread() > _BULK_RECORDS

    def unread(self) -> int:
        """Count the offsets that are to be read yet."""
        return max(0, self.end_offset - self._table.next_offset)

    def share(self) -> float:
        """Return how much is read of what was to be read; 1 where that was nothing."""
        to_read = self.end_offset - self._begun_at
        return 1.0 - self.unread() / to_read if to_read > 0 else 1.0

    def end_bulk(self) -> None:
        """End filling the table in bulk, since no other shard waits to be read; a table not read to its end goes on.

        What the table has put off is made up for once it is read itself.
        """
        self._in_bulk = self._in_bulk and self.unread() > 0

    def update_bulk_load(self) -> None:
        """Tell the table, before each fold, whether it is filled in bulk; raises `TableUnreadable` if its files are gone."""
        self._table.bulk_load(on=self._in_bulk)


class Phase(Enum):
    """A shard is opened as restoring or as a standby, and ends as closed."""

    STANDBY = "standby"
    RESTORING = "restoring"
    READY = "ready"
    # A newer version has written here: the entries stay in the changelog for it.
    READ_ONLY = "read-only"
    HALTED = "halted"
    BROKEN = "broken"
    CLOSED = "closed"


# What health calls a shard that is not ready.
REASONS = {Phase.RESTORING: Reason.RESTORING, Phase.READ_ONLY: Reason.READ_ONLY, Phase.HALTED: Reason.HALTED}


# From 1, so that a shard that was swept first of all comes behind those that never were.
_sweeps = count(1)


class SweepProgress:
    """The results of one shard's sweeps. Read without a lock: a watchdog must never wait for whoever hangs.

    Attributes:
      overlooked: whether the last sweep found nothing to send though something is due and nothing blocks it.
      failing: what the last sweep failed with, if it is simply tried again.
      last_sweep: numbers the sweeps of all shards; 0 before the first of this one.
    """

    def __init__(self, changelog: Partition) -> None:
        self._changelog = changelog
        self._tries = self._good_sweeps = self.last_sweep = 0
        self.restart()

    def restart(self) -> None:
        """Forget what sweeps failed with: the shard has begun anew."""
        self.overlooked, self.failing, self._failures = False, "", 0

    def note_try(self) -> None:
        """Count a sweep of the shard that has ended, whether it succeeded or failed."""
        self._tries += 1
        self.last_sweep = next(_sweeps)

    def note_rest(self) -> None:
        """Count a turn in which nothing may be swept, for a reason that is not the shard's; nothing counts as overlooked."""
        self._tries += 1
        self.overlooked = False

    def note_move(self) -> None:
        self._good_sweeps += 1

    def swept(self, *, overlooked: bool) -> None:
        self.overlooked, self.failing, self._failures = overlooked, "", 0
        self._good_sweeps += not overlooked

    def note_failure(self, why: str) -> None:
        """Note why a sweep failed; the next sweep tries again, and failures are logged once until a sweep succeeds."""
        if not self.failing:
            log.warning("shard %d: %s; again at every sweep until it succeeds", self._changelog[1], why)
        self.failing, self._failures = why, self._failures + 1

    def keeps_failing(self) -> bool:
        """Whether sweeps of it were undone again and again, so that the next one had better not be that of other shards too."""
        return self._failures > 1

    def probes(self, *, ready: bool, next_offset: int) -> list[HealthProbe]:
        """List what must go on in a shard that is restored or swept, for the watchdog."""
        shard = self._changelog[1]
        name = f"shard {shard}"
        return [
            # Behind a transaction that somebody left open there is nothing to read, for a new process either.
            HealthProbe(
                f"{name}: folding", next_offset, place=self._changelog, offset=next_offset, shard=shard, thread="changelog"
            ),
            HealthProbe(f"{name}: sweeping", self._tries, ready, shard=shard, thread="sweeps"),
            HealthProbe(f"{name}: delivering", self._good_sweeps, self.overlooked, trouble=self.failing, shard=shard),
        ]
