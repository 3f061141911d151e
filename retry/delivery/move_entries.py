"""Entries that are moved while they wait, and what is to be remembered of that.

Two letters have the same coordinates where a dead-letter topic was deleted and made anew. Moved to the same time they would share
a key, and only one would be left: so nothing is moved under a key that is taken.

A letter that comes back without headers is known by the time its send was due. So the record of lineages is told of the
new time, in the transaction of the move. All that is recorded of a team lies in one partition, so that this comes behind the
row of the send for every worker.
"""

from __future__ import annotations

from collections.abc import Sequence

from retry.delay_queue import entry_keys
from retry.delay_queue.table.interface import ChangelogRow, Table
from retry.delivery.redecide import Redecider, Redecision
from retry.delivery.sweep import ChangelogPartition, SweepWriter
from retry.intake import attempts


class TakenKeys:
    """Keys under which entries wait, or will by the transaction at hand."""

    def __init__(self, table: Table) -> None:
        self._table, self._put = table, set[bytes]()

    def __call__(self, key: bytes) -> bool:
        """Whether one does, or one that has left it is not gone from the changelog as far as that was read."""
        return key in self._put or self._table.get(key) is not None or self._table.is_leaving(key)

    def add(self, move: Redecision) -> None:
        """An entry that is to be moved."""
        self._put.add(move.packed.key)

    def claim(self, key: bytes) -> bytes:
        """The key for an entry that is to be put under this one, or at the next time at which it is free."""
        key = entry_keys.untaken(key, self)
        self._put.add(key)
        return key


def commit(
    writer: SweepWriter,
    changelog: ChangelogPartition,
    judge: Redecider,
    moves: Sequence[Redecision],
    ended: Sequence[ChangelogRow],
) -> None:
    """Move entries, and write what ends with that, in one transaction.

    Raises:
      TransactionFailed: nothing is known to be moved.
    """
    writer.begin()
    rows = [{"key": key, "value": value} for key, value in [*replaced(moves), *ended]]
    writer.write(changelog.topic, changelog.partition, rows)
    for lineage_partition, rows in judge.lineages.pack_by_partition(map(remembered, moves), moves=True).items():
        writer.write(judge.lineages.name, lineage_partition, rows)
    writer.commit()


def replaced(moves: Sequence[Redecision]) -> list[ChangelogRow]:
    """The rows of the changelog that move entries."""
    rows: list[ChangelogRow] = []
    for each in moves:
        # Put before deleted: an entry that keeps its place in a queue must not leave it in between.
        rows += [(each.packed.key, each.packed.envelope), (each.key, None)]
    return rows


def remembered(move: Redecision) -> tuple[str, attempts.LineageFields]:
    """What the record of lineages is told of an entry that has another due time, or none any more: its team, and the row."""
    topic, entry = entry_keys.source(move.key).topic, move.entry
    fingerprint = attempts.fingerprint(topic, attempts.payload(entry.key, entry.value))
    due_ms = None if move.packed.reason else entry_keys.due_at_ms(move.packed.key)
    return entry.team, attempts.moved(move.history.number, fingerprint, due_ms, (move.history.made or 0) + 1)
