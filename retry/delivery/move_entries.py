"""Entries that are moved while they wait, and what is to be remembered of that.

Two letters have the same coordinates where a dead-letter topic was deleted and made anew. Moved to the same time they would share
a key, and only one would be left: so nothing is moved under a key that is taken.

A letter that comes back without headers is known by the time its send was due. So the record of lineages is told of the
new time, in the transaction of the move. All that is recorded of a team lies in one partition, so that this comes behind the
row of the send for every worker.

A block of which not all entries may go is exploded: afterwards each of them has a record of its own. The effects, in their
order, and what a crash after each costs:

1. begin a transaction                                               nothing
2. put each entry under its key, then a null for the block           nothing: all are undone
3. commit                                                            nothing: all stand, and the fold finds both
4. drop the blocks from the table, which has the entries at once     nothing: the fold finds the puts and the nulls
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from retry.delay_queue import blocks, entry_keys
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.interface import ChangelogRow, Table, is_taken
from retry.delivery.due_batch import DueRow
from retry.delivery.movers import MoveContext
from retry.delivery.redecide import Move, Redecision
from retry.delivery.sweep import ChangelogPartition, SweepWriter
from retry.intake import attempts


class TakenKeys:
    """Keys under which entries wait, or will by the transaction at hand."""

    def __init__(self, table: Table) -> None:
        self._table, self._put = table, set[bytes]()

    def __call__(self, key: bytes) -> bool:
        """Whether one does, or one that has left it is not gone from the changelog as far as that was read."""
        return key in self._put or is_taken(self._table, key)

    def add_key(self, key: bytes) -> None:
        self._put.add(key)

    def claim(self, key: bytes) -> bytes:
        """The key for an entry that is to be put under this one, or at the next time at which it is free."""
        key = entry_keys.untaken(key, self)
        self._put.add(key)
        return key


def commit(
    context: MoveContext, changelog: ChangelogPartition, table: Table, moves: Sequence[Redecision], ended: Sequence[ChangelogRow]
) -> None:
    """Move entries, and write what ends with that, in one transaction; raises TransactionFailed."""
    writer, lineages = context.writer, context.redecider.lineages
    leave = [each for each in moves if not _stays(each, changelog)]
    changes = [*list_replacements(table, moves, [each for each in moves if _stays(each, changelog)]), *ended]
    writer.begin()
    writer.write(changelog.topic, changelog.partition, [{"key": key, "value": value} for key, value in changes])
    if leave:
        # Published and not written, see `retry.delivery.slice_members.list_puts`: others may own those shards.
        puts = [Entry(changelog.topic, each.packed.key, each.packed.envelope, [], None, each.entry.team) for each in leave]
        writer.publish(puts, context.now_ms, [cast(int, each.shard) for each in leave])
    for lineage_partition, rows in lineages.pack_by_partition(map(make_lineage_row, moves), moves=True).items():
        writer.write(lineages.name, lineage_partition, rows)
    writer.commit()


def is_moving(move: Redecision, changelog: ChangelogPartition) -> bool:
    """Whether an entry gets another key, or another shard."""
    return move.move is not Move.UNCHANGED or not _stays(move, changelog)


def drop_moved(table: Table, changelog: ChangelogPartition, moves: Sequence[Redecision]) -> None:
    """Have a table know at once of entries that were moved, ahead of the fold."""
    puts = [(each.packed.key, each.packed.envelope) for each in moves if _stays(each, changelog)]
    table.delete_rows([each.key for each in moves], puts)


def _stays(move: Redecision, changelog: ChangelogPartition) -> bool:
    return move.shard in (None, changelog.partition)


def list_replacements(table: Table, moves: Sequence[Redecision], stay: Sequence[Redecision] | None = None) -> list[ChangelogRow]:
    """The rows of the changelog that move entries; `stay` are those that are put in the same shard, all where it is left out."""
    ended = list_nulls(table, [each.key for each in moves])
    alone, here = {key for key, _ in ended}, moves if stay is None else stay
    rows: list[ChangelogRow] = []
    for each in here:
        # Put before deleted: an entry that keeps its place in a queue must not leave it in between.
        rows.append((each.packed.key, each.packed.envelope))
        if each.key in alone:
            rows.append((each.key, None))
    told = {key for key, _ in rows}
    return [*rows, *(row for row in ended if row[0] not in told)]


def make_lineage_row(move: Redecision) -> tuple[str, attempts.LineageFields]:
    """Make the row that tells the record of lineages of an entry's new due time, or of none; return it with the team."""
    topic, entry = entry_keys.source(move.key).topic, move.entry
    fingerprint = attempts.fingerprint(topic, attempts.payload(entry.key, entry.value))
    due_ms = None if move.packed.reason else entry_keys.due_at_ms(move.packed.key)
    return entry.team, attempts.make_move_row(move.history.number, fingerprint, due_ms, (move.history.made or 0) + 1)


def list_nulls(table: Table, keys: Sequence[bytes]) -> list[ChangelogRow]:
    """List a null for each entry; of blocks that they are in one for the block, behind a put for each entry that stays."""
    found = table.find_blocks(keys)
    inside = {key for block, _ in found for key in blocks.list_keys(block)}
    return [*((key, None) for key in keys if key not in inside), *blocks.split_blocks(found, set(keys))]


def explode_blocks(writer: SweepWriter, table: Table, changelog: ChangelogPartition, rows: Sequence[DueRow]) -> None:
    """Give each entry of some blocks a record of its own, in one transaction; raises TransactionFailed."""
    writer.begin()
    writer.write(*changelog, [{"key": key, "value": value} for key, value in blocks.split_blocks(rows, ())])
    writer.commit()
    table.explode([key for key, _ in rows])
