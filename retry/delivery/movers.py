"""What movers of one shard have in common: they let go of what is held, reschedule, act, and cancel, in turn between two sweeps.

Each moves one batch of entries in one transaction, and keeps in memory only how far it has come: whoever owns the shard next
begins anew. Between its null and its put, in our own transaction, and the fold of that put an entry may be in no table. So who
must not miss one looks at nothing until all is folded that was moved before.

Two letters have the same coordinates where a dead-letter topic was deleted and made anew: moved to the same time they would share
a key, so nothing is moved under a key that is taken. A letter that comes back without headers is known by the time its send was
due: so the record of lineages is told of the new time, in the transaction of the move, and behind the row of the send.

A block of which not all entries may go is exploded: afterwards each of them has a record of its own. The effects, in their
order, and what a crash after each costs:

1. begin a transaction                                               nothing
2. put each entry under its key, then a null for the block           nothing: all are undone
3. commit                                                            nothing: all stand, and the fold finds both
4. drop the blocks from the table, which has the entries at once     nothing: the fold finds the puts and the nulls
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, cast

from retry.delay_queue import blocks, entry_keys
from retry.delay_queue.envelope_codec import EnvelopeCodec
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.interface import ChangelogRow, Table, is_taken
from retry.delivery.admission import Admission
from retry.delivery.due_batch import DueRow
from retry.delivery.letter_changes import GONE
from retry.delivery.redecide import Move, Redecider, Redecision
from retry.delivery.sweep import ChangelogPartition
from retry.intake import attempts
from retry.kafka.interface import SweepProducer

# A parked record, and the whole letter where that lies elsewhere; or why there is none.
FoundRecord = tuple[Any, Any] | str
# Asks for parked records by their places, the names of their topics given: None while they are being read, else those of the
# first places, as many as fit into memory.
AskParked = Callable[[Mapping[str, str], Sequence[bytes]], Mapping[bytes, FoundRecord] | None]


def find_no_records(_parking: Mapping[str, str], places: Sequence[bytes]) -> Mapping[bytes, FoundRecord]:
    """Return `GONE` for each place of a parked record; for a worker without parking topics."""
    return dict.fromkeys(places, GONE)


class ConsumerProgress(NamedTuple):
    """Whether named consumer groups have `reached` the end of letters that were sent, and topics of which nobody knows."""

    reached: bool
    silent: list[str]


# Asks what consumer groups have passed of what lies in some topics now; by a name, under which it is asked again until it is so.
# None while nobody knows.
AskPassed = Callable[[bytes, Sequence[str]], ConsumerProgress | None]


def name_no_group(_name: bytes, targets: Sequence[str]) -> ConsumerProgress:
    """Return a progress in which no consumer group is known, and each topic counts as silent."""
    return ConsumerProgress(reached=True, silent=list(targets))


class MoveContext(NamedTuple):
    """Everything that movers of a shard are given for one batch.

    Attributes:
      rows_max, bytes_max: no more entries are looked at, or taken, once so many, or so many bytes of them, are reached.
      discarded, audit, outcomes: topics: of letters that operators discard, of who did what, and of what was decided of letters.
      shards: how many there are, by which intake puts entries; 0 where that is not known.
    """

    writer: SweepProducer
    redecider: Redecider
    admission: Admission
    now_ms: int
    rows_max: int
    bytes_max: int
    end: Callable[[], int]
    discarded: str
    audit: str
    outcomes: str
    ask_parked: AskParked
    ask_passed: AskPassed
    shards: int

    @property
    def codec(self) -> EnvelopeCodec:
        return self.redecider.entry_builder.codec


class Effect(Enum):
    """The meaning of a batch for the movers whose turn comes after it.

    Attributes:
      NONE: nothing that they have to know.
      HELD: entries that keep their due times are held, or are held no more. They wait for the fold, and for the next turn.
      MOVED: entries are at other places, so that whoever goes by places begins anew.
      MOVES_ON: the same, and they wait until what was asked for is done.
    """

    NONE = "none"
    HELD = "held"
    MOVED = "moved"
    MOVES_ON = "moves on"


class MovedBatch(NamedTuple):
    """One batch of a mover: how many entries it has moved, and whether all is done with it that was asked for."""

    effect: Effect = Effect.NONE
    entries: int = 0
    has_ended: bool = False


class Mover(ABC):
    """Moves entries of one shard that wait, one batch at a time."""

    def __init__(self, changelog: ChangelogPartition, table: Table) -> None:
        self._changelog, self._table = changelog, table
        # The fold must have come so far before anything is looked at; None where that is to be asked for.
        self._settled_at: int | None = 0

    @abstractmethod
    def move_batch(self, context: MoveContext) -> MovedBatch:
        """Move one batch of what is to be moved, if anything is, and log what is worth that.

        Raises TableUnreadable, EntryUnreadable as a sweep does; TransactionFailed, merely aborted, is tried again.
        """

    def expect_fold(self) -> None:
        """Note that entries were moved, so that the mover waits until the fold tells where they are now."""
        self._settled_at = None

    def is_settled(self, end: Callable[[], int]) -> bool:
        """Whether all is folded that was moved before; `end` tells where the changelog partition ends now."""
        if self._settled_at is None:
            self._settled_at = end()
        return self._table.next_offset >= self._settled_at

    def restart(self) -> None:
        """Begin anew, since another mover put entries at other places; a mover that goes by keys alone does nothing."""
        return


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
        """Reserve a key for an entry, and return it: the given key, or the key at the next time at which it is free."""
        key = entry_keys.find_untaken_key(key, self)
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
    """Remove moved entries from their old keys in a table at once, before the fold has read the moves."""
    puts = [(each.packed.key, each.packed.envelope) for each in moves if _stays(each, changelog)]
    table.delete_rows([each.key for each in moves], puts)


def _stays(move: Redecision, changelog: ChangelogPartition) -> bool:
    return move.shard in (None, changelog.partition)


def list_replacements(table: Table, moves: Sequence[Redecision], stay: Sequence[Redecision] | None = None) -> list[ChangelogRow]:
    """List the changelog rows that move entries: each entry under its new key, then a null for its old key.

    `stay` has the moves that put entries in the same shard; where it is left out, all do.
    """
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
    topic, entry = entry_keys.read_source(move.key).topic, move.entry
    fingerprint = attempts.make_fingerprint(topic, attempts.hash_payload(entry.key, entry.value))
    due_ms = None if move.packed.reason else entry_keys.due_at_ms(move.packed.key)
    return entry.team, attempts.make_move_row(move.history.number, fingerprint, due_ms, (move.history.made or 0) + 1)


def list_nulls(table: Table, keys: Sequence[bytes]) -> list[ChangelogRow]:
    """List a null for each entry; of blocks that they are in one for the block, behind a put for each entry that stays."""
    found = table.find_blocks(keys)
    inside = {key for block, _ in found for key in blocks.list_keys(block)}
    return [*((key, None) for key in keys if key not in inside), *blocks.split_blocks(found, set(keys))]


def explode_blocks(writer: SweepProducer, table: Table, changelog: ChangelogPartition, rows: Sequence[DueRow]) -> None:
    """Give each entry of some blocks a record of its own, in one transaction; raises TransactionFailed."""
    writer.begin()
    writer.write(*changelog, [{"key": key, "value": value} for key, value in blocks.split_blocks(rows, ())])
    writer.commit()
    table.explode([key for key, _ in rows])
