"""What one transaction of a sweep is about: which rows end, what is published, and what is put in the place of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from backoff.recurrence import is_passed_over
from retry.dead_letters.retry_headers import TIMESTAMP_MS, RetryLabels, read_labels_of_retries, set_in
from retry.delay_queue import blocks, entry_keys, envelopes
from retry.delay_queue.blocks import Block
from retry.delay_queue.entry_keys import NAMED
from retry.delay_queue.envelope_codec import EnvelopeCodec
from retry.delay_queue.envelopes import Entry, Named, Recurrence
from retry.delay_queue.table.interface import ChangelogRow
from retry.delivery.due_batch import DueRow

DEFER_MS = 30_000
_ANY_PARTITION = -1
_TOGETHER = 512


class TransactionBatch(NamedTuple):
    """Due rows of one shard, and what becomes of each.

    Attributes:
      superseded: keys of entries that were replaced or cancelled; their nulls go first.
      rows, entries: keys and envelopes of due entries, and the entries in these; as long as each other. Those of blocks come
        last, without their envelopes.
      deferred: by position in `rows`, why an entry is to wait a while longer.
      in_blocks: how many of the entries are in these.
      is_split: whether some entries of the blocks may be left out.
    """

    superseded: list[bytes]
    rows: list[DueRow]
    entries: list[Entry]
    deferred: dict[int, str]
    labels: list[RetryLabels | None]
    blocks: Sequence[DueRow] = ()
    in_blocks: int = 0
    is_split: bool = False
    size: int = 0

    def list_ended(self) -> list[bytes]:
        """List the keys of the rows that end in the table; for split blocks, the keys of their entries."""
        if self.is_split:
            return [key for key, _ in self.rows]
        alone = len(self.rows) - self.in_blocks
        return [key for key, _ in [*self.rows[:alone], *self.blocks]]

    def list_nulls(self) -> list[ChangelogRow]:
        """List the records that end its rows: of split blocks the whole block, and a put for each entry that stays."""
        if not self.is_split:
            return [(key, None) for key in self.list_ended()]
        alone = len(self.rows) - self.in_blocks
        leaving = {key for key, _ in self.rows[alone:]}
        return [*((key, None) for key, _ in self.rows[:alone]), *blocks.split_blocks(self.blocks, leaving)]

    def find_blocks(self, rows: Sequence[DueRow]) -> list[DueRow]:
        keys = {key for key, _ in rows}
        if not keys:
            return []
        return [block for block in self.blocks if not keys.isdisjoint(blocks.list_keys(block[0]))]

    def _find_deferred(self) -> dict[bytes, bytes]:
        rows = [self.rows[n] for n in self.deferred]
        in_blocks = dict(chain.from_iterable(blocks.list_rows(*block) for block in self.find_blocks(rows)))
        return {key: envelope or in_blocks[key] or b"" for key, envelope in rows}

    def select(self, positions: list[int], deferred: dict[int, str]) -> TransactionBatch:
        moved = {new: deferred[old] for new, old in enumerate(positions) if old in deferred}
        rows, entries = [self.rows[n] for n in positions], [self.entries[n] for n in positions]
        alone = len(self.rows) - self.in_blocks
        in_blocks = sum(n >= alone for n in positions)
        # Of a block of which nothing goes nothing is written.
        found = self.find_blocks([self.rows[n] for n in positions if n >= alone]) if in_blocks else []
        return TransactionBatch(
            self.superseded, rows, entries, moved, [self.labels[n] for n in positions], blocks=found, in_blocks=in_blocks,
            is_split=bool(found), size=_measure([*rows, *found]),
        )  # fmt: skip

    def recurring(self) -> list[tuple[int, Recurrence]]:
        """List the recurring entries by their positions in `rows`, each with its plan."""
        if not _any_named(self.entries):
            return []
        return [(n, e.plan) for n, e in enumerate(self.entries) if isinstance(e, Named) and e.plan is not None]

    def named_keys(self) -> list[bytes]:
        return [key for key, _ in self.rows if key[0] == NAMED] if _any_named(self.entries) else []

    def find_skipped_runs(self, now_ms: int) -> set[int]:
        """Find runs that were missed and are not made up for: nothing is published, and the next one is put."""
        due_at_ms, rows = entry_keys.due_at_ms, self.rows
        return {n for n, plan in self.recurring() if is_passed_over(plan, due_at_ms(rows[n][0]), now_ms)}

    def list_unpublished(self, now_ms: int) -> set[int]:
        """List the positions of rows that end in the changelog without being published: deferred ones and skipped runs."""
        return self.deferred.keys() | self.find_skipped_runs(now_ms)

    def make_replacements(self, now_ms: int, codec: EnvelopeCodec, is_taken: Callable[[bytes], bool]) -> list[DueRow]:
        """Make the rows that replace others: deferred entries with a later due time, and the next runs of recurring entries.

        Letters with the same coordinates, which returned ones may have, stay apart by their due times: these keep their
        milliseconds within a second, and one that `is_taken` is due a second later.
        """
        deferred, full_s = dict[bytes, bytes](), -(-(now_ms + DEFER_MS) // 1_000)
        for key, envelope in self._find_deferred().items():
            due_at_ms = full_s * 1_000 + entry_keys.due_at_ms(key) % 1_000
            later = entry_keys.make_key_due_at(key, due_at_ms)
            later = entry_keys.find_untaken_key(later, lambda each: each in deferred or is_taken(each), step_ms=1_000)
            deferred[later] = envelope
        next_runs = (self._next_run(n, plan, now_ms, codec) for n, plan in self.recurring() if n not in self.deferred)
        return [*deferred.items(), *(row for row in next_runs if row)]

    def _next_run(self, n: int, plan: Recurrence, now_ms: int, codec: EnvelopeCodec) -> DueRow | None:
        key, entry = self.rows[n][0], self.entries[n]
        if (run := envelopes.find_next_run(plan, entry_keys.due_at_ms(key), now_ms)) is None:
            return None
        due_at_ms, number = run
        plan, headers = msgspec.structs.replace(plan, run=number), envelopes.make_run_headers(entry.headers, due_at_ms, number)
        key = entry_keys.make_key_due_at(key, due_at_ms)
        return key, codec.encode(key, msgspec.structs.replace(entry, plan=plan, headers=headers))


def renew_timestamp(entry: Entry) -> Entry:
    """Return an entry without its timestamp, so that it is sent with the time of sending.

    Its own timestamp stays in a header: the first one where it had several.
    """
    if entry.timestamp_ms is None:
        return entry
    headers = entry.headers
    if not any(name == TIMESTAMP_MS for name, _ in headers):
        headers = set_in(headers, (TIMESTAMP_MS, b"%d" % entry.timestamp_ms))
    return msgspec.structs.replace(entry, timestamp_ms=None, headers=headers)


def decode_batch(superseded: list[bytes], rows: list[DueRow], codec: EnvelopeCodec) -> TransactionBatch:
    """Read due rows into a batch in which everything goes; raises SealUnopened, EntryUnreadable."""
    entries, labels, size = list[Entry](), list[RetryLabels | None](), _measure(rows)
    found = [row for row in rows if blocks.is_block(row[0])]
    if found:
        rows = [row for row in rows if not blocks.is_block(row[0])]
    for begin in range(0, len(rows), _TOGETHER):
        some = codec.decode_all(rows[begin : begin + _TOGETHER])
        entries += some
        # While these are at hand: to touch all headers of a batch once more takes twice as long.
        labels += read_labels_of_retries([entry.headers for entry in some])
    if _any_named(entries):
        # What has a name came in by another entry source.
        labels = [None if isinstance(entry, Named) else each for entry, each in zip(entries, labels, strict=True)]
    if not found:
        return TransactionBatch(superseded, rows, entries, {}, labels, size=size)
    alone = len(entries)
    for key, value in found:
        block, keys = blocks.decode(value), blocks.list_keys(key)
        rows += [(each, b"") for each in keys]
        if isinstance(block, Block):
            entries += blocks.list_entries(key, block)
            labels += [(block.policy, block.attempt)] * len(keys)
        else:
            some = codec.decode_all(list(zip(keys, block.envelopes, strict=True)))
            entries += some
            labels += read_labels_of_retries([entry.headers for entry in some])
    return TransactionBatch(superseded, rows, entries, {}, labels, blocks=found, in_blocks=len(entries) - alone, size=size)


def _measure(rows: Sequence[DueRow]) -> int:
    return sum([blocks.measure_entries(key, value) for key, value in rows])


# Of a shard that has nothing in a transaction.
EMPTY = TransactionBatch([], [], [], {}, [])


def _any_named(entries: list[Entry]) -> bool:
    # Most batches have none, and this looks at all in one call.
    return Named in {*map(type, entries)}


def list_published(entries: list[Entry]) -> tuple[list[Entry], list[int] | None]:
    """List all records to publish for some entries, and their partitions: first the side records, then the entries.

    The partitions are None where no entry has side records.
    """
    beside = [(e, also) for e in entries if isinstance(e, Named) for also in e.also] if _any_named(entries) else []
    if not beside:
        return entries, None
    records = [
        Entry(a.topic, a.key, e.value, e.headers + a.headers, None, e.team) if a.copies_entry
        else Entry(a.topic, a.key, a.value, a.headers, None, e.team)
        for e, a in beside
    ]  # fmt: skip
    partitions = [_ANY_PARTITION if a.partition is None else a.partition for _, a in beside]
    return records + entries, partitions + [_ANY_PARTITION] * len(entries)
