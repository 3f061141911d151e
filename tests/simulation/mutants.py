"""The product with one rule of its protocol switched off, patched from outside: the simulation must notice each. Those of
what operators ask for are in `action_mutants`, those of keys in `key_mutants`.

| mutant | what it does |
| --- | --- |
| no-proof | a sweep commits without the proof that its shards are still this worker's |
| proof-first | the proof is given before the records are written |
| no-wait-for-end | a shard is swept once it has folded all that can be read when it is opened, undecided records left out |
| two-transactions | a batch is published in one transaction, and deleted in the next |
| forget-before-commit | what is swept leaves the table before the commit |
| never-forgotten | what was swept stays in the table until the fold finds its nulls |
| offset-before-rows | the table's offset moves in one write, its rows in the next |
| positions-after-commit | positions and offsets of letters are committed after their transaction |
| positions-unkept | only the group knows how far letters were taken in |
| versions-unkept | whoever reads on does not know the last version that was given in a partition |
| positions-unread | nobody waits for the newest positions before reading begins |
| back-is-news | what a client brings again, when it goes back by itself, is taken in |
| stale-tables | a table is trusted at any age, when it is opened and from then on |
| folded-is-current | whatever is taken in makes a table current |
| beyond-the-end | a table is trusted though its offset lies beyond the end of the log |
| doubt-is-success | a commit in doubt counts as one that was made |
| no-epochs | batches that were read before a failure are taken in after it |
| back-to-life | what was put back ahead of the fold, and sent, is put again by the fold |
| superseded-stay | what was replaced or cancelled gets no null |
| superseded-later | more of it than a batch ends keeps nothing from being delivered |
| nulls-end-first | nulls that cancel are done with in a transaction before that of what they cancel |
| moved-unseen | what was moved, and is not folded yet, is not waited for before nulls are followed |
| moves-untold | the record of lineages is not told of entries that were moved |
| runs-told-late | the next run of what recurs is known only by the fold |
| doubt-is-abort | after a commit in doubt the other producer goes on with the same shards |
| next-not-aborted | a batch of letters that was written while the one before it failed is committed |
| offsets-not-waited-for | nobody waits until offsets of letters are accepted: not the next batch, and not the commit |
| records-not-waited-for | a batch of letters is begun before the records of the one before it have arrived |
| gathered-in-part | of batches that are written together only the last one says how far letters were taken in |
| gathered-from-before | what was read before a failure is written together with what was read after it |

Those of how attempts are counted are in `attempt_mutants`, those of blocks in `block_mutants`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from retry import clock
from retry.delay_queue.entry_keys import ORDERED
from retry.delay_queue.table.changelog_records import UnfoldedChanges
from retry.delay_queue.table.interface import ChangelogRow, UnreadableRow
from retry.delay_queue.table.table_state import Freshness
from retry.delivery import movers, sweep
from retry.delivery.cancel import Cancelling
from retry.errors import CommitInDoubt, TransactionAborted
from retry.intake import read_positions
from retry.intake.attempts.lineages import MOVED
from retry.intake.batch import LetterBatch
from retry.intake.consumer import LetterConsumer
from retry.intake.entry_source import RecordVersions
from retry.intake.overlapping_transactions import OverlappingTransactions
from retry.intake.read_cursors import ReadCursor
from retry.intake.read_positions import ReadPositions
from retry.kafka import sweep_producers
from retry.kafka.interface import CommittedOffset, OffsetBounds
from retry.testing import memory_table
from retry.testing.kafka import MemoryTransactionalProducer
from retry.testing.memory_table import MemoryTables
from retry.worker.shards import restore
from tests.simulation.action_mutants import ACTION_MUTANTS
from tests.simulation.attempt_mutants import ATTEMPT_MUTANTS
from tests.simulation.block_mutants import BLOCK_MUTANTS
from tests.simulation.key_mutants import KEY_MUTANTS
from tests.simulation.stepped import SteppedLog, SteppedTable, SteppedWriter

Patches = list[Any]
_FAR = 1 << 60
# How often offsets are still on their way when everything else goes on.
_SLOW = 0.5


def _no_proof() -> Patches:
    original = SteppedWriter.read_to

    def read_to(writer: SteppedWriter, positions: list[Any], member: Any) -> None:
        if writer._name != "sweep":
            original(writer, positions, member)

    return [patch.object(SteppedWriter, "read_to", read_to)]


def _proof_first() -> Patches:
    begin, commit = sweep_producers._Producer.begin, sweep_producers._Producer.commit

    def begin_after_proof(producer: Any) -> None:
        begin(producer)
        open_now = list(producer._prove.__self__._open)
        producer.read_to(*producer._prove(open_now))

    def commit_without_proof(producer: Any) -> None:
        producer._touched.clear()
        commit(producer)

    return [
        patch.object(sweep_producers._Producer, "begin", begin_after_proof),
        patch.object(sweep_producers._Producer, "commit", commit_without_proof),
    ]  # fmt: skip


def _no_wait_for_end() -> Patches:
    def bounds(log: SteppedLog, topic: str, partitions: Any) -> dict[int, OffsetBounds]:
        held = log._world.log.topics[topic]
        return {n: OffsetBounds(held[n].start, held[n].stable) for n in partitions}

    return [patch.object(SteppedLog, "fetch_bounds", bounds)]


def _committing(by: Callable[[Any, Any], Any]) -> Any:
    """Commit sweeps by another writer, made of the writer and the shards."""
    original = sweep._commit_shards

    def commit_by_other(shards: Any, context: Any) -> Any:
        return original(shards, context._replace(writer=by(context.writer, shards)))

    return patch.object(sweep, "_commit_shards", commit_by_other)


def _two_transactions() -> Patches:
    class Late:
        """Commits what is published before anything is deleted."""

        def __init__(self, writer: Any) -> None:
            self._writer = writer
            self.begin, self.write, self.commit = writer.begin, writer.write, writer.commit
            self.rehearse_entries, self.await_arrival, self.abort = writer.rehearse_entries, writer.await_arrival, writer.abort

        def publish(self, *records: Any) -> None:
            self._writer.publish(*records)
            self._writer.commit()
            self._writer.begin()

    return [_committing(lambda writer, _: Late(writer))]


def _forget_before_commit() -> Patches:
    class Early:
        def __init__(self, writer: Any, shards: Any) -> None:
            self._writer, self._shards = writer, shards
            self.begin, self.write, self.publish = writer.begin, writer.write, writer.publish
            self.rehearse_entries, self.await_arrival, self.abort = writer.rehearse_entries, writer.await_arrival, writer.abort

        def commit(self) -> None:
            for shard in self._shards:
                shard.table.delete_scanned_rows(shard.batch.list_ended())
            self._writer.commit()

    return [_committing(Early)]


def _offset_before_rows() -> Patches:
    def apply_records(
        table: SteppedTable, rows: Sequence[ChangelogRow], next_offset: int, now_ms: int
    ) -> Sequence[UnreadableRow]:
        table._world.at("table fold, before")
        table.table.next_offset = next_offset
        table._world.at("table fold, between")
        unreadable = table.table.apply_records(rows, next_offset, now_ms)
        table._world.at("table fold, after")
        return unreadable

    return [patch.object(SteppedTable, "apply_records", apply_records)]


def _positions_after_commit() -> Patches:
    def read_to(writer: SteppedWriter, positions: list[Any], member: Any) -> None:
        if writer._name == "intake":
            writer.late = positions, member  # type: ignore[attr-defined]

    original = SteppedWriter.commit

    def commit(writer: SteppedWriter) -> None:
        original(writer)
        if late := getattr(writer, "late", None):
            writer.late = None  # type: ignore[attr-defined]
            log, (positions, member) = writer._world.log, late
            for p in positions:
                log.committed_offsets[member.group, p.topic, p.partition] = CommittedOffset(p.offset, p.metadata)

    return [*_positions_unkept(), patch.object(SteppedWriter, "read_to", read_to), patch.object(SteppedWriter, "commit", commit)]


def _positions_unkept() -> Patches:
    return [patch.object(read_positions, "encode_positions", lambda _: [])]


def _back_is_news() -> Patches:
    return [patch.object(ReadCursor, "is_news", lambda *_: True)]


def _stale_tables() -> Patches:
    original = MemoryTables.__init__
    at_any_age = patch.object(MemoryTables, "__init__", lambda tables, _: original(tables, _FAR))
    return [at_any_age, patch.object(Freshness, "is_stale", lambda _: False)]


def _folded_is_current() -> Patches:
    now = property(lambda _: clock.wall_ms(), lambda _, at_ms: None)
    return [patch.object(Freshness, "current_at_ms", now, create=True)]


def _beyond_the_end() -> Patches:
    return [patch.object(restore, "is_within", lambda _table, _bounds: True)]


def _doubt_is_success() -> Patches:
    original = MemoryTransactionalProducer.commit

    def commit(writer: MemoryTransactionalProducer) -> None:
        try:
            original(writer)
        except CommitInDoubt:
            writer._broken = None

    return [patch.object(MemoryTransactionalProducer, "commit", commit)]


def _no_epochs() -> Patches:
    original = LetterConsumer._start_over

    def start_over(letters: LetterConsumer, why: str) -> None:
        original(letters, why)
        letters._epoch = letters._read_epoch

    return [patch.object(LetterConsumer, "_start_over", start_over)]


def _back_to_life() -> Patches:
    return [patch.object(UnfoldedChanges, "take_change", lambda *_: True)]


def _nulls_end_first() -> Patches:
    original, ended_early = Cancelling._commit, WeakKeyDictionary[Cancelling, list[Any]]()

    def commit(work: Cancelling, context: Any, moves: Any, ended: Any) -> None:
        if moves and ended_early.get(work) is not work._nulls:
            original(work, context, [], work._nulls)
            ended_early[work] = work._nulls
        original(work, context, moves, [] if ended_early.get(work) is work._nulls else ended)

    return [patch.object(Cancelling, "_commit", commit)]


def _superseded_later() -> Patches:
    superseded = SteppedTable.list_superseded
    return [patch.object(SteppedTable, "list_superseded", lambda table, rows_max: superseded(table, rows_max)[: rows_max - 1])]


def _doubt_is_abort() -> Patches:
    original = sweep_producers._Producer.commit

    def commit(producer: Any) -> None:
        try:
            original(producer)
        except CommitInDoubt as error:
            raise TransactionAborted(str(error)) from error

    return [patch.object(sweep_producers._Producer, "commit", commit)]


def _next_not_aborted() -> Patches:
    undo_others = OverlappingTransactions._undo_others

    def handed_over(_: OverlappingTransactions, transaction: Any) -> bool:
        transaction.is_held = False
        return True

    return [
        patch.object(OverlappingTransactions, "_undo_others", lambda _: None),
        # A worker that is stopped would wait for ever.
        patch.object(OverlappingTransactions, "end_transactions", undo_others),
        patch.object(OverlappingTransactions, "_handed_over", handed_over),
        patch.object(OverlappingTransactions, "_follows", lambda *_: True),
    ]


def _offsets_not_waited_for() -> Patches:
    original, commit = SteppedWriter.read_to, SteppedWriter.commit
    on_their_way = WeakKeyDictionary[SteppedWriter, tuple[list[Any], Any]]()

    def read_to(writer: SteppedWriter, positions: list[Any], member: Any) -> None:
        if writer._name == "intake" and writer._world.random.random() < _SLOW:
            on_their_way[writer] = positions, member
        else:
            original(writer, positions, member)

    def commit_at_once(writer: SteppedWriter) -> None:
        # They come while it is asked to commit: just before that, and behind those of the next batch.
        if late := on_their_way.pop(writer, None):
            original(writer, *late)
        commit(writer)

    return [patch.object(SteppedWriter, "read_to", read_to), patch.object(SteppedWriter, "commit", commit_at_once)]


def _records_not_waited_for() -> Patches:
    arrived = SteppedWriter.await_arrival
    return [patch.object(SteppedWriter, "await_arrival", lambda writer, s: writer._name == "intake" or arrived(writer, s))]


def _gathered_in_part() -> Patches:
    join = LetterBatch.join_later
    return [patch.object(LetterBatch, "join_later", lambda batch, later: join(batch, later)._replace(positions=later.positions))]


MUTANTS: dict[str, Callable[[], Patches]] = {
    "no-proof": _no_proof,
    "proof-first": _proof_first,
    "no-wait-for-end": _no_wait_for_end,
    "two-transactions": _two_transactions,
    "forget-before-commit": _forget_before_commit,
    "never-forgotten": lambda: [patch.object(SteppedTable, "delete_scanned_rows", lambda *_: None)],
    "offset-before-rows": _offset_before_rows,
    "positions-after-commit": _positions_after_commit,
    "positions-unkept": _positions_unkept,
    "versions-unkept": lambda: [patch.object(RecordVersions, "stamp", lambda _, positions: dict(positions))],
    "positions-unread": lambda: [patch.object(ReadPositions, "await_current", lambda _: None)],
    "back-is-news": _back_is_news,
    "stale-tables": _stale_tables,
    "folded-is-current": _folded_is_current,
    "beyond-the-end": _beyond_the_end,
    "doubt-is-success": _doubt_is_success,
    "no-epochs": _no_epochs,
    "back-to-life": _back_to_life,
    "superseded-stay": lambda: [patch.object(SteppedTable, "list_superseded", lambda _table, _rows_max: [])],
    "superseded-later": _superseded_later,
    "nulls-end-first": _nulls_end_first,
    "moved-unseen": lambda: [patch.object(Cancelling, name, lambda _: None) for name in ("expect_fold", "restart")],
    "moves-untold": lambda: [patch.object(movers, "make_lineage_row", lambda _: ("shop", (0, 0, 0, 0, 0, MOVED)))],
    "runs-told-late": lambda: [patch.object(memory_table, "_KNOWN_AHEAD", (ORDERED,))],
    **ATTEMPT_MUTANTS,
    **ACTION_MUTANTS,
    **KEY_MUTANTS,
    **BLOCK_MUTANTS,
    "doubt-is-abort": _doubt_is_abort,
    "next-not-aborted": _next_not_aborted,
    "offsets-not-waited-for": _offsets_not_waited_for,
    "records-not-waited-for": _records_not_waited_for,
    "gathered-in-part": _gathered_in_part,
    "gathered-from-before": lambda: [patch.object(LetterConsumer, "may_join", lambda *_: True)],
}


@contextmanager
def switched_off(mutant: str) -> Iterator[None]:
    """Switch a rule off; none where the name is empty."""
    patches = MUTANTS[mutant]() if mutant else []
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()
