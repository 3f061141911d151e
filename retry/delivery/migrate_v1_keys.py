"""Entries that the version before lanes wrote, moved under keys of this one, a batch between two sweeps.

They wait in a lane of their own, from which nothing is delivered: a lane is of one team and one destination, and what ends
an entry in the changelog is a null under its own key. The effects of one batch, in their order, and what a crash after
each costs:

1. read the next of them                                               nothing
2. begin a transaction                                                 nothing
3. put each in the lane that its envelope tells, and a null for the old key   nothing: both are undone
4. commit                                                              nothing: both stand, and the fold finds both
5. forget the old rows                                                 nothing: the fold finds the nulls
"""

from __future__ import annotations

from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.entry_keys import DUE_MS_MAX, LANELESS
from retry.delay_queue.table.interface import Table
from retry.delivery.sweep import ChangelogPartition, SweepWriter


def migrate_batch(table: Table, writer: SweepWriter, changelog: ChangelogPartition, rows_max: int, bytes_max: int) -> int:
    """Move one batch, and say how many that were; 0 where there is nothing left.

    Raises:
      TableUnreadable, EntryUnreadable: as for a sweep; nothing was moved.
      TransactionFailed: nothing is known to be moved; merely aborted, the same batch is moved again.
    """
    rows = table.find_due(DUE_MS_MAX, rows_max, bytes_max, LANELESS)
    if not rows:
        return 0
    told: list[dict[str, bytes | None]] = []
    for key, envelope in rows:
        old, entry = entry_keys.without_lane(key), envelopes.routing(envelope)
        lane = entry_keys.lane(entry.team, entry_keys.source(key).topic, entry.destination)
        told += [{"key": entry_keys.with_lane(old, lane), "value": envelope}, {"key": old, "value": None}]
    writer.begin()
    writer.write(changelog.topic, changelog.partition, told)
    writer.commit()
    table.delete_scanned_rows([key for key, _ in rows])
    return len(rows)
