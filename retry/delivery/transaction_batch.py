"""What one transaction of a sweep is about: which rows end, what is published, and what is put in the place of rows."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from retry.delay_queue import entry_keys, envelopes, recurrence
from retry.delay_queue.envelopes import Entry, Named
from retry.delay_queue.recurrence import Recurrence
from retry.delivery.due_batch import DueRow

DEFER_MS = 30_000
_ANY_PARTITION = -1


class TransactionBatch(NamedTuple):
    """Due rows of one shard, and what becomes of each.

    Attributes:
      superseded: keys of entries that were replaced or cancelled; their nulls go first.
      rows, entries: keys and envelopes of due entries, and the entries in these; as long as each other.
      deferred: by position in `rows`, why an entry is to wait a while longer.
    """

    superseded: list[bytes]
    rows: list[DueRow]
    entries: list[Entry]
    deferred: dict[int, str]

    def select(self, positions: list[int], deferred: dict[int, str]) -> TransactionBatch:
        """Some of its rows; `deferred` goes by the positions that they have in this one."""
        moved = {new: deferred[old] for new, old in enumerate(positions) if old in deferred}
        rows, entries = [self.rows[n] for n in positions], [self.entries[n] for n in positions]
        return TransactionBatch(self.superseded, rows, entries, moved)

    def recurring(self) -> list[tuple[int, Recurrence]]:
        """What recurs, by position."""
        return [(n, e.plan) for n, e in enumerate(self.entries) if isinstance(e, Named) and e.plan is not None]

    def skipped_runs(self, now_ms: int) -> set[int]:
        """Runs that were missed and are not made up for: nothing is published, and the next one is put."""
        due_at_ms, rows = entry_keys.due_at_ms, self.rows
        return {n for n, plan in self.recurring() if recurrence.passed_over(plan, due_at_ms(rows[n][0]), now_ms)}

    def unsent(self, now_ms: int) -> set[int]:
        """Positions of rows that end in the changelog without being published."""
        return self.deferred.keys() | self.skipped_runs(now_ms)

    def replacements(self, now_ms: int) -> list[DueRow]:
        """What is put in the place of rows: those that are deferred, due later, and the next runs of what recurs."""
        deferred = [(entry_keys.postponed(self.rows[n][0], now_ms + DEFER_MS), self.rows[n][1]) for n in self.deferred]
        next_runs = (self._next_run(n, plan, now_ms) for n, plan in self.recurring() if n not in self.deferred)
        return deferred + [row for row in next_runs if row]

    def _next_run(self, n: int, plan: Recurrence, now_ms: int) -> DueRow | None:
        """What recurs, due at its next run; None where this was the last."""
        key, entry = self.rows[n][0], self.entries[n]
        if (run := recurrence.following(plan, entry_keys.due_at_ms(key), now_ms)) is None:
            return None
        due_at_ms, number = run
        plan, headers = msgspec.structs.replace(plan, run=number), recurrence.headers_of_run(entry.headers, due_at_ms, number)
        return entry_keys.postponed(key, due_at_ms), envelopes.encode(msgspec.structs.replace(entry, plan=plan, headers=headers))


def decoded(superseded: list[bytes], rows: list[DueRow]) -> TransactionBatch:
    """A batch in which everything goes.

    Raises:
      EntryUnreadable: this version cannot read one of them.
    """
    return TransactionBatch(superseded, rows, [envelopes.decode_as(*row) for row in rows], {})


def with_side_records(entries: list[Entry]) -> tuple[list[Entry], list[int] | None]:
    """All that is published for some entries, and to which partitions: first what goes beside them, then they themselves."""
    beside = [(e, also) for e in entries if isinstance(e, Named) for also in e.also]
    if not beside:
        return entries, None
    records = [
        Entry(a.topic, a.key, e.value, e.headers + a.headers, None, e.team) if a.copies_entry
        else Entry(a.topic, a.key, a.value, a.headers, None, e.team)
        for e, a in beside
    ]  # fmt: skip
    partitions = [_ANY_PARTITION if a.partition is None else a.partition for _, a in beside]
    return records + entries, partitions + [_ANY_PARTITION] * len(entries)
