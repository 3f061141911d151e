"""Sweep: due entries out; publish, delete, commit, forget.

One batch is one transaction. Its steps, and what a crash after each costs:

1. select the first due rows that may go, and what was superseded       nothing
2. begin a transaction                                                  nothing
3. write into the changelog: nulls for what was superseded, rows that
   replace due ones, a null for each due row                            nothing: all are undone
4. publish the entries, and wait for their arrival                      nothing: the same
5. commit                                                               nothing: all stand, and a restored table has none
6. forget the rows in the table, in one write                           nothing: the fold finds the same nulls

A batch takes from every lane that the gate lets through, the teams in turn, so that whoever has much due leaves the others
on time. Where the transaction is aborted, steps 2 to 6 are done again with less, by these strategies in turn:

- everything: a single entry is deferred without being tried where its topic has refused one for its size before; see
  `retry.kafka.record_size_limits`.
- without what was refused: rows of a target that refuses stay where they are until the gate opens again. A single entry
  that its topic will not have is deferred: its key deleted and put again, due later, in the same transaction.
- only the deferred: more is refused than was found. What is known to be goes out of the way, the rest at the next sweep.

Entries with a name need three things more, all in that transaction. Nulls for what was superseded come first of all; while
there are more of them than a batch holds, nothing that has a name is delivered, or a fold of a log that compaction has
thinned could find the superseded one without the one that counts. What an entry publishes beside its delivery goes before it.
What recurs is put again, due at its next run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any, NamedTuple, Protocol

from retry.delay_queue import entry_keys
from retry.delay_queue.entry_keys import NAMED
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.table.interface import Table
from retry.delivery.due_batch import Admitting, DueRow, give_back, select_due_batch
from retry.delivery.refusals import Rehearsing, diagnose, too_large
from retry.delivery.transaction_batch import TransactionBatch, decoded, with_side_records
from retry.errors import TransactionAborted, TransactionFailed
from retry.kafka.refused_records import Anchor

# Records arrive in milliseconds. Where they do not, it is asked whether they can at all.
_LATE_S = 0.5
_ANCHORED_S = 2.0


class SweepWriter(Rehearsing, Protocol):
    """The part of a transaction that a sweep uses; see `retry.kafka.transactional_producer`."""

    def begin(self) -> None: ...
    def write(self, topic: str, partition: int, rows: list[dict[str, Any]]) -> None: ...
    def publish(self, entries: Sequence[Entry], now_ms: int, partitions: Sequence[int] | None = None) -> None: ...
    def arrived(self, within_s: float) -> bool: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...


class ChangelogPartition(NamedTuple):
    """The partition whose fold the table is."""

    topic: str
    partition: int


class Swept(NamedTuple):
    """How one batch went.

    Attributes:
      sent: the entries that were delivered.
      due_at_ms: when each of them was due.
      deferred: how many single entries each target refused; they wait `DEFER_MS` longer.
      errors: why they were refused; or their targets, where no target took anything.
      superseded: how many superseded entries got their nulls.
    """

    sent: list[Entry]
    due_at_ms: list[int]
    deferred: Counter[str]
    errors: list[str]
    superseded: int = 0


NOTHING = Swept([], [], Counter(), [])


class SweepContext(NamedTuple):
    """What one sweep works with."""

    table: Table
    writer: SweepWriter
    changelog: ChangelogPartition
    gate: Admitting
    now_ms: int

    def write(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write rows into the changelog."""
        self.writer.write(*self.changelog, [{"key": key, "value": value} for key, value in rows])


class _Attempt(NamedTuple):
    """What is tried in one transaction.

    Attributes:
      batch: what it is about.
      left: rows that it leaves where they are.
      refused: targets that take nothing, and why.
      forget: how the table lets go of the batch's rows.
    """

    batch: TransactionBatch
    left: list[DueRow]
    refused: dict[str, str]
    forget: Callable[[list[bytes], list[DueRow]], None]


def sweep(
    table: Table, writer: SweepWriter, changelog: ChangelogPartition, gate: Admitting, now_ms: int, rows_max: int, bytes_max: int
) -> Swept:
    """Deliver one batch of what is due at `now_ms`; the steps are those of the module's docstring.

    Raises:
      TableUnreadable: the table must be restored before anything is sent.
      EntryUnreadable: nothing was sent; the shard must not be swept by this version.
      TransactionFailed: nothing was forgotten; the shard must be opened again, unless it was merely aborted.
    """
    batch = _select(table, gate, now_ms, rows_max, bytes_max)
    if not batch.rows and not batch.superseded:
        return NOTHING
    try:
        swept, left = _deliver(SweepContext(table, writer, changelog, gate, now_ms), batch)
    except TransactionAborted:
        give_back(gate, batch.rows)
        raise
    except TransactionFailed:
        # Whoever opens the shard again shall know whom not to send to, or find out.
        gate.look({e.destination for e in batch.entries})
        gate.doubt(now_ms)
        raise
    give_back(gate, left)
    return swept


def _select(table: Table, gate: Admitting, now_ms: int, rows_max: int, bytes_max: int) -> TransactionBatch:
    """Step 1: what is due and may go, and what was superseded."""
    rows = select_due_batch(table, gate, now_ms, rows_max, bytes_max)
    # After what is due: whatever was superseded by that is found here.
    superseded = table.superseded(rows_max + 1)
    if superseded:
        # What was replaced since it was handed out does not go either.
        gone, no_names = set(superseded), len(superseded) > rows_max
        goes = [not (key in gone or (no_names and key[0] == NAMED)) for key, _ in rows]
        give_back(gate, [row for row, go in zip(rows, goes, strict=True) if not go])
        rows = list(compress(rows, goes))
    return decoded(superseded[:rows_max], rows)


def _deliver(context: SweepContext, batch: TransactionBatch) -> tuple[Swept, list[DueRow]]:
    """Try everything, and after an abort less; how it went, and the rows that did not go."""
    attempt = _everything(context, batch)
    for reduced in (_without_refused, _only_deferred):
        try:
            return _delivered(context, attempt)
        except TransactionAborted:
            smaller = reduced(context, attempt)
            if smaller is None:
                raise
        if not smaller.batch.rows:
            return NOTHING._replace(errors=sorted(smaller.refused.values())), smaller.left
        attempt = smaller
    return _delivered(context, attempt)


def _everything(context: SweepContext, batch: TransactionBatch) -> _Attempt:
    """All rows; entries that are known to be too large are deferred, since one that is refused undoes a whole transaction."""
    limits = context.gate.size_limits
    if limits.limited():
        oversized, skipped = too_large(batch.entries, limits.too_large), batch.skipped_runs(context.now_ms)
        batch = batch._replace(deferred={n: why for n, why in oversized.items() if n not in skipped})
    return _Attempt(batch, [], {}, context.table.forget)


def _without_refused(context: SweepContext, attempt: _Attempt) -> _Attempt | None:
    """The rows of targets that refuse nothing, single entries that were refused deferred; None where nothing was refused."""
    batch, gate, now_ms = attempt.batch, context.gate, context.now_ms
    unsent = batch.unsent(now_ms)
    tried = [n for n in range(len(batch.rows)) if n not in unsent]
    anchor = Anchor(*context.changelog, batch.rows[tried[0]][0]) if tried else None
    targets, entries = diagnose([batch.entries[n] for n in tried], context.writer, gate, now_ms, anchor)
    if not targets and not entries:
        return None
    for target, why in targets.items():
        gate.refused(target, why, now_ms)
    left = [row for row, e in zip(batch.rows, batch.entries, strict=True) if e.destination in targets]
    deferred = batch.deferred | {tried[n]: why for n, why in entries.items()}
    smaller = batch.select([n for n, e in enumerate(batch.entries) if e.destination not in targets], deferred)
    return attempt._replace(batch=smaller, left=left, refused=targets)


def _only_deferred(context: SweepContext, attempt: _Attempt) -> _Attempt | None:
    """The deferred alone, since more is refused than was found; the others have their turn at the next sweep."""
    batch = attempt.batch
    if not batch.deferred:
        return None
    left = attempt.left + [row for n, row in enumerate(batch.rows) if n not in batch.deferred]
    # Of their lanes something is left below what the scan has reached: `forget` would pass over it.
    return attempt._replace(batch=batch.select(sorted(batch.deferred), batch.deferred), left=left, forget=context.table.drop)


def _delivered(context: SweepContext, attempt: _Attempt) -> tuple[Swept, list[DueRow]]:
    """Steps 2 to 6; how it went, and the rows that did not go."""
    batch, now_ms = attempt.batch, context.now_ms
    replacements = _commit(context, batch)
    # Before those that count, which leave no others of their names behind then.
    context.table.drop(batch.superseded)
    attempt.forget([key for key, _ in batch.rows], replacements)
    unsent = batch.unsent(now_ms)
    sent = [n for n in range(len(batch.rows)) if n not in unsent]
    context.gate.delivered({batch.entries[n].destination for n in sent})
    swept = Swept(
        sent=[batch.entries[n] for n in sent],
        due_at_ms=[entry_keys.due_at_ms(batch.rows[n][0]) for n in sent],
        deferred=Counter(batch.entries[n].destination for n in batch.deferred),
        errors=sorted(set(batch.deferred.values())),
        superseded=len(batch.superseded),
    )
    return swept, attempt.left + [batch.rows[n] for n in sorted(unsent)]


def _commit(context: SweepContext, batch: TransactionBatch) -> list[DueRow]:
    """Steps 2 to 5: one transaction; the rows that it put in the place of others."""
    writer, gate, now_ms = context.writer, context.gate, context.now_ms
    unsent, replacements = batch.unsent(now_ms), batch.replacements(now_ms)
    published = [e for n, e in enumerate(batch.entries) if n not in unsent] if unsent else batch.entries
    writer.begin()
    context.write((key, None) for key in batch.superseded)
    # Put before deleted: an entry that keeps its place in a queue must not leave it in between.
    context.write(replacements)
    context.write((key, None) for key, _ in batch.rows)
    if gate.doubts(now_ms):
        # The coordinator has a transaction then, which can be undone, before a target is refused.
        writer.arrived(_ANCHORED_S)
    records, partitions = with_side_records(published)
    writer.publish(records, now_ms, partitions)
    _await_arrival(published, writer, gate)
    writer.commit()
    return replacements


def _await_arrival(published: list[Entry], writer: SweepWriter, gate: Admitting) -> None:
    """Wait until everything is where it belongs, but not for a target that went away meanwhile: the others cannot wait for it.

    Raises:
      TransactionAborted: a target cannot be written to any more.
    """
    while not writer.arrived(_LATE_S):
        if gone := gate.look({e.destination for e in published}):
            writer.abort()
            raise TransactionAborted("; ".join(gone.values()))
