"""What one transaction of a sweep is about: which rows end, what is published, and what is put in the place of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from retry.dead_letters.retry_headers import TIMESTAMP_MS, RetryLabels, labels_of_retries, set_in
from retry.delay_queue import entry_keys, recurrence
from retry.delay_queue.entry_keys import NAMED
from retry.delay_queue.envelope_codec import EnvelopeCodec
from retry.delay_queue.envelopes import Entry, Named
from retry.delay_queue.recurrence import Recurrence
from retry.delivery.due_batch import DueRow

DEFER_MS = 30_000
_ANY_PARTITION = -1
_TOGETHER = 512


class TransactionBatch(NamedTuple):
    """Due rows of one shard, and what becomes of each.

    Attributes:
      superseded: keys of entries that were replaced or cancelled; their nulls go first.
      rows, entries: keys and envelopes of due entries, and the entries in these; as long as each other.
      deferred: by position in `rows`, why an entry is to wait a while longer.
      labels: of each entry, policy and attempt where it is the retry of a letter.
    """

    superseded: list[bytes]
    rows: list[DueRow]
    entries: list[Entry]
    deferred: dict[int, str]
    labels: list[RetryLabels | None]

    def select(self, positions: list[int], deferred: dict[int, str]) -> TransactionBatch:
        """Some of its rows; `deferred` goes by the positions that they have in this one."""
        moved = {new: deferred[old] for new, old in enumerate(positions) if old in deferred}
        rows, entries, labels = ([column[n] for n in positions] for column in (self.rows, self.entries, self.labels))
        return TransactionBatch(self.superseded, rows, entries, moved, labels)  # type: ignore[arg-type]

    def recurring(self) -> list[tuple[int, Recurrence]]:
        """What recurs, by position."""
        if not _any_named(self.entries):
            return []
        return [(n, e.plan) for n, e in enumerate(self.entries) if isinstance(e, Named) and e.plan is not None]

    def named_keys(self) -> list[bytes]:
        """Keys of the entries that have a name."""
        return [key for key, _ in self.rows if key[0] == NAMED] if _any_named(self.entries) else []

    def skipped_runs(self, now_ms: int) -> set[int]:
        """Runs that were missed and are not made up for: nothing is published, and the next one is put."""
        due_at_ms, rows = entry_keys.due_at_ms, self.rows
        return {n for n, plan in self.recurring() if recurrence.passed_over(plan, due_at_ms(rows[n][0]), now_ms)}

    def unsent(self, now_ms: int) -> set[int]:
        """Positions of rows that end in the changelog without being published."""
        return self.deferred.keys() | self.skipped_runs(now_ms)

    def replacements(self, now_ms: int, codec: EnvelopeCodec, is_leaving: Callable[[bytes], bool]) -> list[DueRow]:
        """What is put in the place of rows: those that are deferred, due later, and the next runs of what recurs.

        Letters with the same coordinates, which parked ones that were returned may have, stay apart by their due times: these
        keep their milliseconds within a second, whichever sweep defers which of them.

        Args:
          is_leaving: see `Table.is_leaving`.
        """
        deferred, full_s = dict[bytes, bytes](), -(-(now_ms + DEFER_MS) // 1_000)
        for n in self.deferred:
            key, envelope = self.rows[n]
            due_at_ms = full_s * 1_000 + entry_keys.due_at_ms(key) % 1_000
            later = entry_keys.postponed(key, due_at_ms)
            later = entry_keys.untaken(later, lambda each: each in deferred or is_leaving(each), step_ms=1_000)
            deferred[later] = envelope
        next_runs = (self._next_run(n, plan, now_ms, codec) for n, plan in self.recurring() if n not in self.deferred)
        return [*deferred.items(), *(row for row in next_runs if row)]

    def _next_run(self, n: int, plan: Recurrence, now_ms: int, codec: EnvelopeCodec) -> DueRow | None:
        """What recurs, due at its next run; None where this was the last."""
        key, entry = self.rows[n][0], self.entries[n]
        if (run := recurrence.following(plan, entry_keys.due_at_ms(key), now_ms)) is None:
            return None
        due_at_ms, number = run
        plan, headers = msgspec.structs.replace(plan, run=number), recurrence.headers_of_run(entry.headers, due_at_ms, number)
        key = entry_keys.postponed(key, due_at_ms)
        return key, codec.encode(key, msgspec.structs.replace(entry, plan=plan, headers=headers))


def renew_timestamp(entry: Entry) -> Entry:
    """An entry that is sent with the time of sending; its own time stays in a header, the first one where it had several."""
    if entry.timestamp_ms is None:
        return entry
    headers = entry.headers
    if not any(name == TIMESTAMP_MS for name, _ in headers):
        headers = set_in(headers, (TIMESTAMP_MS, b"%d" % entry.timestamp_ms))
    return msgspec.structs.replace(entry, timestamp_ms=None, headers=headers)


def decoded(superseded: list[bytes], rows: list[DueRow], codec: EnvelopeCodec) -> TransactionBatch:
    """A batch in which everything goes.

    Raises:
      SealUnopened: one of them cannot be opened here.
      EntryUnreadable: this version cannot read one of them.
    """
    entries, labels = list[Entry](), list[RetryLabels | None]()
    for begin in range(0, len(rows), _TOGETHER):
        some = codec.decode_all(rows[begin : begin + _TOGETHER])
        entries += some
        # While these are at hand: to touch all headers of a batch once more takes twice as long.
        labels += labels_of_retries([entry.headers for entry in some])
    if _any_named(entries):
        # What has a name came in by another entry source.
        labels = [None if isinstance(entry, Named) else each for entry, each in zip(entries, labels, strict=True)]
    return TransactionBatch(superseded, rows, entries, {}, labels)


# Of a shard that has nothing in a transaction.
EMPTY = TransactionBatch([], [], [], {}, [])


def _any_named(entries: list[Entry]) -> bool:
    # Most batches have none, and this looks at all in one call.
    return Named in {*map(type, entries)}


def with_side_records(entries: list[Entry]) -> tuple[list[Entry], list[int] | None]:
    """All that is published for some entries, and to which partitions: first what goes beside them, then they themselves."""
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
