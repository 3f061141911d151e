"""Sweep: due entries out; publish, delete, commit, forget. One transaction for several shards.

One batch is one transaction. Its steps, and what a crash after each costs:

1. select the first due rows of each shard that may go, what was
   superseded, and cancels that are remembered no more                  nothing
2. begin a transaction                                                  nothing
3. write into the changelog: nulls for what was superseded and for
   those cancels, rows that replace due ones, a null for each due row   nothing: all are undone
4. publish the entries, and wait for their arrival                      nothing: the same
5. commit                                                               nothing: all stand, and a restored table has none
6. forget the rows in each shard's table, in one write for each         nothing: the fold finds the same nulls

A batch takes from every lane that admission lets through, the teams in turn, so that whoever has much due leaves the others
on time. Where the transaction is aborted, steps 2 to 6 are done again with less, by these strategies in turn:

- everything: a single entry is deferred without being tried where its topic has refused one like it before; see
  `retry.kafka.record_limits`. Where one is taken only compressed, a producer that compresses carries the whole transaction.
- without what was refused: rows of a target that refuses stay where they are until admission opens again. A single entry
  that its topic will not have is deferred: its key deleted and put again, due later, in the same transaction. One that is
  too old is sent with the time of now, unless its policy says otherwise.
- only the deferred: more is refused than was found. What is known to be goes out of the way, the rest at the next sweep.

Entries with a name need three things more, all in that transaction. Nulls for what was superseded come first of all; while
there are more of them than a batch holds, nothing that has a name is delivered, or a fold of a log that compaction has
thinned could find the superseded one without the one that counts. What an entry publishes beside its delivery goes before it.
What recurs is put again, due at its next run.

An entry that cannot be opened here is never sent, and holds up no other: all of a batch are moved out of the way, by
`retry.delivery.hold`, and the others go at the next turn. So it is with entries that were deferred for what they are, when they
are due again: `retry.delivery.park_refused`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain, compress
from typing import Any, NamedTuple

from retry.clock import Deadline
from retry.dead_letters.retry_headers import RetryLabels
from retry.delay_queue import blocks, entry_keys
from retry.delay_queue.entry_keys import NAMED
from retry.delay_queue.envelope_codec import PLAIN, EnvelopeCodec
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.interface import Table, is_taken
from retry.delivery.admission import Admission
from retry.delivery.disregarded_changes import OverruledPair, find_overruled
from retry.delivery.due_batch import DueRow, find_foreign_rows, give_back, select_due_batch
from retry.delivery.refusals import diagnose, find_refused_entries
from retry.delivery.transaction_batch import DEFER_MS, EMPTY, TransactionBatch, decode_batch, list_published, renew_timestamp
from retry.errors import SealUnopened, TransactionAborted, TransactionFailed, TransactionSlow
from retry.kafka.interface import SweepProducer
from retry.kafka.record_limits import RecordRefusal, RefusedFor
from retry.kafka.refused_records import Anchor

# Records arrive in milliseconds. Where they do not, it is asked whether they can at all.
_LATE_S = 0.5
# Less than a transaction lives, so that it is undone by whoever has begun it.
_ARRIVE_S = 4.5
_ANCHORED_S = 2.0
# Of entries that are deferred, so many are named in the log.
_NAMED_MAX = 5


class ChangelogPartition(NamedTuple):
    """The changelog partition of a shard, whose fold its table is."""

    topic: str
    partition: int


class SweepResult(NamedTuple):
    """How one batch went.

    Attributes:
      due_at_ms, labels: of each entry that was sent, when it was due, and of retries policy and attempt.
      deferred: how many single entries each target refused; they wait `DEFER_MS` longer.
      errors: why they were refused, and `letters` where the first of them came from.
    """

    sent: list[Entry]
    due_at_ms: list[int]
    labels: list[RetryLabels | None]
    deferred: Counter[str]
    errors: list[str]
    superseded: int = 0
    letters: Sequence[str] = ()
    named: Sequence[bytes] = ()
    overruled: Sequence[OverruledPair] = ()


NOTHING = SweepResult([], [], [], Counter(), [])


class ShardBatch(NamedTuple):
    """The part of one shard in a transaction.

    Attributes:
      forget: how the table lets go of the batch's rows.
      replacements: what was committed in the place of some of them.
      unopened, refused: due rows of which some cannot be opened, or that were refused before; the batch is empty then.
      to_explode: blocks of which not all may go.
    """

    table: Table
    changelog: ChangelogPartition
    batch: TransactionBatch
    left: list[DueRow]
    forget: Callable[[Sequence[bytes], Sequence[DueRow]], None]
    replacements: Sequence[DueRow] = ()
    unopened: Sequence[DueRow] = ()
    refused: Sequence[DueRow] = ()
    overruled: Sequence[OverruledPair] = ()
    to_explode: Sequence[DueRow] = ()

    def reduce_to(self, goes: Collection[int], deferred: dict[int, str]) -> ShardBatch:
        """Return a copy in which only the rows at these positions go; the others stay where they are."""
        stays = [row for n, row in enumerate(self.batch.rows) if n not in goes]
        return self._replace(batch=self.batch.select(sorted(goes), deferred), left=self.left + stays)

    def set_aside(self, refused: Mapping[int, RecordRefusal], context: SweepContext) -> ShardBatch:
        """Defer the rows at the positions in `refused`, and return the batch; what is merely too old gets another timestamp."""
        admission, now_ms, batch = context.admission, context.now_ms, self.batch
        entries, deferred = list(batch.entries), dict(batch.deferred)
        for n, (cause, why) in refused.items():
            key = batch.rows[n][0]
            if cause is RefusedFor.TIME and admission.renews_timestamp(admission.lanes[entry_keys.lane_of(key)]):
                entries[n] = renew_timestamp(entries[n])
                continue
            deferred[n] = why
            if cause in (RefusedFor.TIME, RefusedFor.CONTENT):
                admission.refused_entries.note_refusal(key, entries[n].destination, why, now_ms)
        return self._replace(batch=batch._replace(entries=entries, deferred=deferred))

    def clear(self) -> ShardBatch:
        return self._replace(batch=EMPTY, overruled=())


class SweepContext(NamedTuple):
    """The tools and the time of one sweep."""

    writer: SweepProducer
    admission: Admission
    now_ms: int
    codec: EnvelopeCodec = PLAIN


def select(
    table: Table, changelog: ChangelogPartition, admission: Admission, now_ms: int, rows_max: int, bytes_max: int,
    codec: EnvelopeCodec = PLAIN,
) -> ShardBatch | None:  # fmt: skip
    """Step 1, for one shard; None where nothing is to be done there.

    Raises TableUnreadable: it must be restored first; EntryUnreadable: the shard must not be swept by this version.
    """
    foreign, to_explode = list[bytes](), list[DueRow]()
    rows = select_due_batch(table, admission, now_ms, rows_max, bytes_max, foreign=foreign, limited=to_explode)
    if foreign and (no_entries := find_foreign_rows(table, foreign, now_ms, rows_max)):
        give_back(admission, rows)
        return ShardBatch(table, changelog, EMPTY, [], table.delete_scanned_rows, unopened=no_entries)
    # Before what is superseded, and after what is due: the fold goes on in another thread. Whatever these superseded when they
    # were read is found below. With the null of a cancel alone, the entry that it cancelled would count again.
    expired = table.expired_cancels(now_ms, rows_max)
    superseded = table.list_superseded(rows_max + 1)
    if superseded:
        # What was replaced since it was handed out does not go either.
        gone, no_names = set(superseded), len(superseded) > rows_max
        goes = [not (key in gone or (no_names and key[0] == NAMED)) for key, _ in rows]
        give_back(admission, [row for row, go in zip(rows, goes, strict=True) if not go])
        rows = list(compress(rows, goes))
    # A cancel may have been superseded since it was read. The same key twice is one null.
    ended = list(dict.fromkeys([*superseded, *expired]))[:rows_max]
    if not rows and not ended and not to_explode:
        return None
    try:
        batch, unopened = decode_batch(ended, rows, codec), list[DueRow]()
    except SealUnopened:
        give_back(admission, rows)
        # What cannot be opened is held from a record of its own.
        sealed = [row for row in rows if blocks.is_block(row[0]) and blocks.is_of_envelopes(row[1])]
        to_explode += sealed
        batch, unopened = EMPTY, [] if sealed else [row for row in rows if not blocks.is_block(row[0])]
    refused = admission.refused_entries.select_known(batch.rows, now_ms - DEFER_MS)
    if refused:
        give_back(admission, rows)
        # What was refused in a block is parked from a record of its own.
        to_explode, batch = [*to_explode, *batch.find_blocks(refused)], EMPTY
    overruled = find_overruled(table, batch.superseded)
    return ShardBatch(
        table, changelog, batch, [], table.delete_scanned_rows, unopened=unopened, refused=refused, overruled=overruled,
        to_explode=to_explode,
    )  # fmt: skip


def deliver(shards: Sequence[ShardBatch], context: SweepContext) -> list[ShardBatch]:
    """Deliver the batches of some shards in one transaction, try less after an abort, and return what was committed of each.

    Takes steps 2 to 5 of the module's list, and tries everything first.

    Raises TransactionFailed: nothing must be forgotten; the shards must be opened again, unless it was merely aborted.
    """
    admission = context.admission
    try:
        return _deliver(shards, context)
    except TransactionAborted:
        for shard in shards:
            give_back(admission, shard.batch.rows)
        raise
    except TransactionFailed:
        # Whoever opens the shards again shall know whom not to send to, or find out.
        admission.probe_targets({e.destination for shard in shards for e in shard.batch.entries})
        admission.note_doubt(context.now_ms)
        raise


def _deliver(shards: Sequence[ShardBatch], context: SweepContext) -> list[ShardBatch]:
    trying = [_everything(shard, context) for shard in shards]
    strategies, compresses = iter(_STRATEGIES), False
    while True:
        if not compresses and _needs_compression(trying, context):
            # What is refused compressed has still to be found out.
            strategies, compresses = iter(_STRATEGIES), True
        try:
            writer = context.writer.open_compressing() if compresses else context.writer
            return _commit_shards(trying, context._replace(writer=writer))
        except TransactionSlow:
            # No record is to blame, and to try them once more would take as long.
            raise
        except TransactionAborted:
            strategy = next(strategies, None)
            smaller = strategy(trying, context) if strategy is not None else None
            if smaller is None and (compresses or not _needs_compression(trying, context)):
                raise
        trying = trying if smaller is None else smaller
        if not any(shard.batch.rows for shard in trying):
            return [shard.clear() for shard in trying]


def _needs_compression(shards: Sequence[ShardBatch], context: SweepContext) -> bool:
    """Whether the topic of anything that is to be published takes it only compressed."""
    limits, now_ms = context.admission.record_limits, context.now_ms
    if not limits.has_limits():
        return False
    records, _ = list_published(list(chain.from_iterable(_list_published(shard.batch, now_ms) for shard in shards)))
    return limits.needs_compression(records)


def _everything(shard: ShardBatch, context: SweepContext) -> ShardBatch:
    limits, batch = context.admission.record_limits, shard.batch
    if not limits.has_limits():
        return shard
    find_refused = partial(limits.find_refused, may_compress=True)
    refused = find_refused_entries(batch.entries, find_refused, context.now_ms)
    skipped = batch.find_skipped_runs(context.now_ms) if refused else ()
    return shard.set_aside({n: why for n, why in refused.items() if n not in skipped}, context)


def _without_refused(shards: Sequence[ShardBatch], context: SweepContext) -> list[ShardBatch] | None:
    """Try the rows of targets that refuse nothing, and defer single entries that were refused; None where nothing was."""
    admission, now_ms = context.admission, context.now_ms
    unsent = [shard.batch.list_unpublished(now_ms) for shard in shards]
    tried = [(at, n) for at, shard in enumerate(shards) for n in range(len(shard.batch.rows)) if n not in unsent[at]]
    anchor = None
    if tried:
        first = shards[tried[0][0]]
        anchor = Anchor(*first.changelog, first.batch.rows[tried[0][1]][0])
    entries = [shards[at].batch.entries[n] for at, n in tried]
    targets, single = diagnose(entries, context.writer, admission, now_ms, anchor, compressing=context.writer.open_compressing)
    if not targets and not single:
        return None
    for target, why in targets.items():
        admission.note_refused(target, why, now_ms)
    refused = [dict[int, RecordRefusal]() for _ in shards]
    for position, refusal in single.items():
        at, n = tried[position]
        refused[at][n] = refusal
    smaller = [shard.set_aside(refused[at], context) for at, shard in enumerate(shards)]
    goes = [{n for n, e in enumerate(shard.batch.entries) if e.destination not in targets} for shard in shards]
    return [shard.reduce_to(goes[at], shard.batch.deferred) for at, shard in enumerate(smaller)]


def _only_deferred(shards: Sequence[ShardBatch], _context: SweepContext) -> list[ShardBatch] | None:
    if not any(shard.batch.deferred for shard in shards):
        return None
    smaller = [shard.reduce_to(shard.batch.deferred.keys(), shard.batch.deferred) for shard in shards]
    # Of their lanes something is left below what the scan has reached: `forget` would pass over it.
    return [shard._replace(forget=shard.table.delete_rows) for shard in smaller]


_STRATEGIES = (_without_refused, _only_deferred)


def _commit_shards(shards: list[ShardBatch], context: SweepContext) -> list[ShardBatch]:
    writer, admission, now_ms, codec = context
    shards = [
        shard._replace(replacements=shard.batch.make_replacements(now_ms, codec, partial(is_taken, shard.table)))
        for shard in shards
    ]
    published = list(chain.from_iterable(_list_published(shard.batch, now_ms) for shard in shards))
    writer.begin()
    for shard in shards:
        # Put before deleted: an entry that keeps its place in a queue must not leave it in between.
        rows: list[dict[str, Any]] = [{"key": key, "value": None} for key in shard.batch.superseded]
        rows += [{"key": key, "value": value} for key, value in shard.replacements]
        rows += [{"key": key, "value": value} for key, value in shard.batch.list_nulls()]
        writer.write(*shard.changelog, rows)
    if admission.has_doubts(now_ms):
        # The coordinator has a transaction then, which can be undone, before a target is refused.
        writer.await_arrival(_ANCHORED_S)
    records, partitions = list_published(published)
    writer.publish(records, now_ms, partitions)
    await_arrival(published, writer, admission)
    writer.commit()
    return shards


def _list_published(batch: TransactionBatch, now_ms: int) -> list[Entry]:
    unsent = batch.list_unpublished(now_ms)
    return [e for n, e in enumerate(batch.entries) if n not in unsent] if unsent else batch.entries


def await_arrival(published: Sequence[Entry], writer: SweepProducer, admission: Admission) -> None:
    """Wait until everything is where it belongs, but not for a target that went away meanwhile: the others cannot wait for it.

    Raises TransactionAborted: a target cannot be written to any more; TransactionSlow: its time is nearly over.
    """
    deadline = Deadline(_ARRIVE_S)
    while not writer.await_arrival(_LATE_S):
        if deadline.has_passed():
            writer.abort()
            raise TransactionSlow("records do not arrive in time")
        if gone := admission.probe_targets({e.destination for e in published}):
            writer.abort()
            raise TransactionAborted("; ".join(gone.values()))


def finish_sweep(shard: ShardBatch, context: SweepContext) -> SweepResult:
    """Step 6, for one shard, after the commit; raises `TableUnreadable` where its table must be restored before all else."""
    batch, admission, now_ms = shard.batch, context.admission, context.now_ms
    # Before those that count, which leave no others of their names behind then.
    shard.table.delete_rows(batch.superseded)
    if batch.is_split:
        # `forget` would pass over entries that stay.
        shard.table.delete_rows(batch.list_ended(), shard.replacements)
    else:
        shard.forget(batch.list_ended(), shard.replacements)
    unsent = batch.list_unpublished(now_ms)
    sent = batch if not unsent else batch.select([n for n in range(len(batch.rows)) if n not in unsent], {})
    admission.note_delivered({entry.destination for entry in sent.entries})
    give_back(admission, shard.left + [batch.rows[n] for n in sorted(unsent)])
    return SweepResult(
        sent=sent.entries, due_at_ms=entry_keys.read_due_times_ms([key for key, _ in sent.rows]), labels=sent.labels,
        deferred=Counter(batch.entries[n].destination for n in batch.deferred), errors=sorted(set(batch.deferred.values())),
        letters=[entry_keys.read_source(batch.rows[n][0]).letter for n in sorted(batch.deferred)[:_NAMED_MAX]],
        superseded=len(batch.superseded), named=sent.named_keys(), overruled=shard.overruled,
    )  # fmt: skip
