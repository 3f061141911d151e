"""Sweep: due entries out; publish, delete, commit, forget.

The effects of one batch, in their order, and what a crash after each costs:

1. read the first due entries of the shard                        nothing
2. begin a transaction                                            nothing
3. publish them, and a null for each key of theirs in the changelog   nothing: both are undone
4. commit                                                         nothing: both stand, and a restored table has neither
5. forget them in the table, in one write                         nothing: the fold finds the same nulls

A batch takes from every lane that the gate lets through, the teams in turn, so that whoever has much due leaves the others
on time. What a destination as a whole refuses stays where it is until the gate opens again. A single record that its
topic will not have is put back: its key deleted and put again, due later, in the same transaction.

Entries with a name need three things more, all in that transaction. Nulls for what was superseded come first of all; while
there are more of them than a batch holds, nothing that has a name is delivered, or a fold of a log that compaction has
thinned could find the superseded one without the one that counts. What an entry publishes beside its delivery goes before it.
What recurs is put again, due at its next run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any, NamedTuple, Protocol

import msgspec
from confluent_kafka import KafkaError

from retry.delay_queue import entry as entries
from retry.delay_queue.entry import NAMED, Entry, Named
from retry.errors import TransactionAborted
from retry.delivery.due_batch import Gate, Row, gathered, give_back
from retry.delay_queue.recurrence import Plan, following, passed_over, told
from retry.delay_queue.table.interface import Table

PUT_BACK_MS = 30_000
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE,)
_ANY_PARTITION = -1


class Writer(Protocol):
    """The part of a transaction that a sweep uses; see `retry.kafka.transactional_producer`."""

    def begin(self) -> None: ...
    def write(self, topic: str, partition: int, rows: list[dict[str, Any]]) -> None: ...
    def publish(self, entries: Iterable[Entry], now_ms: int, partitions: Sequence[int] | None = None) -> None: ...
    def rehearse(
        self, entries: Iterable[Entry], now_ms: int, partitions: Sequence[int] | None = None
    ) -> dict[int, KafkaError]: ...
    def commit(self) -> None: ...


class Changelog(NamedTuple):
    """The partition whose fold the table is."""

    topic: str
    partition: int


class Swept(NamedTuple):
    """How one batch went.

    Attributes:
      sent: the entries that were delivered.
      due_at_ms: when each of them was due.
      put_back: how many each destination refused one by one; they wait on.
      trouble: what the destinations said.
      ended: how many superseded entries got their nulls.
    """

    sent: list[Entry]
    due_at_ms: list[int]
    put_back: Counter[str]
    trouble: list[str]
    ended: int = 0


NOTHING = Swept([], [], Counter(), [])


class Batch(NamedTuple):
    """What one transaction is about.

    Attributes:
      ended: keys of superseded entries.
      rows, sending: keys and envelopes of due entries, and the entries in these; as long as each other.
      alone: by position in `rows`, why it is to be put back.
    """

    ended: list[bytes]
    rows: list[Row]
    sending: list[Entry]
    alone: dict[int, str]

    def only(self, kept: list[int], alone: dict[int, str]) -> Batch:
        """Some of it; `alone` by the positions that they have now."""
        told = {at: alone[n] for at, n in enumerate(kept) if n in alone}
        return Batch(self.ended, [self.rows[n] for n in kept], [self.sending[n] for n in kept], told)

    def passed_over(self, now_ms: int) -> set[int]:
        """Runs that were missed and are not made up for: nothing is published, and the next one is put."""
        rows = self.rows
        return {n for n, plan in self.planned() if passed_over(plan, entries.due_at_ms(rows[n][0]), now_ms)}

    def planned(self) -> list[tuple[int, Plan]]:
        """What recurs, by position."""
        return [(n, e.plan) for n, e in enumerate(self.sending) if isinstance(e, Named) and e.plan is not None]


def sweep(
    table: Table, writer: Writer, changelog: Changelog, gate: Gate, now_ms: int, rows_max: int, bytes_max: int
) -> Swept:
    """Deliver one batch of what is due at `now_ms`; the steps are those of the module's docstring.

    Raises:
      TableUnreadable: the table must be restored before anything is sent.
      EntryUnreadable: nothing was sent; the shard must not be swept by this version.
      TransactionFailed: nothing was forgotten; the shard must be opened again, unless it was merely aborted.
    """
    rows = gathered(table, gate, now_ms, rows_max, bytes_max)
    # After what is due: whatever was superseded by that is found here.
    ended = table.superseded(rows_max + 1)
    if ended:
        # What was replaced since it was handed out does not go either.
        gone, every = set(ended), len(ended) > rows_max
        goes = [not (row[0] in gone or (every and row[0][0] == NAMED)) for row in rows]
        give_back(gate, [row for row, go in zip(rows, goes, strict=True) if not go])
        ended, rows = ended[:rows_max], list(compress(rows, goes))
    if not rows and not ended:
        return NOTHING
    try:
        batch = Batch(ended, rows, [entries.decode_as(*row) for row in rows], {})
        swept, left = _swept(batch, table, writer, changelog, gate, now_ms)
    except TransactionAborted:
        give_back(gate, rows)
        raise
    give_back(gate, left)
    return swept


def _swept(
    batch: Batch, table: Table, writer: Writer, changelog: Changelog, gate: Gate, now_ms: int
) -> tuple[Swept, list[Row]]:
    """How it went, and the rows that did not go."""
    left: list[Row] = []
    forget = table.forget
    try:
        again = _deliver(batch, writer, changelog, now_ms)
    except TransactionAborted:
        closed, alone = _diagnosed(batch.sending, writer, now_ms)
        if not closed and not alone:
            raise
        for destination, why in closed.items():
            gate.refused(destination, why, now_ms)
        left = [row for row, e in zip(batch.rows, batch.sending, strict=True) if e.destination in closed]
        batch = batch.only([n for n, e in enumerate(batch.sending) if e.destination not in closed], alone)
        if not batch.rows:
            return Swept([], [], Counter(), sorted(closed.values())), left
        try:
            again = _deliver(batch, writer, changelog, now_ms)
        except TransactionAborted:
            if not batch.alone:
                raise
            # There are more than were found. These go out of the way; the others have their turn at the next sweep.
            left += [row for n, row in enumerate(batch.rows) if n not in batch.alone]
            batch = batch.only(sorted(batch.alone), batch.alone)
            # Of their lanes something is left below what the scan has reached.
            forget = table.drop
            again = _deliver(batch, writer, changelog, now_ms)
    # Before those that count, which leave no others of their names behind then.
    table.drop(batch.ended)
    forget([key for key, _ in batch.rows], again)
    unsent = batch.alone.keys() | batch.passed_over(now_ms)
    sent = [n for n in range(len(batch.rows)) if n not in unsent]
    gate.delivered({batch.sending[n].destination for n in sent})
    due_at_ms = [entries.due_at_ms(batch.rows[n][0]) for n in sent]
    put_back = Counter(batch.sending[n].destination for n in batch.alone)
    trouble = sorted(set(batch.alone.values()))
    swept = Swept([batch.sending[n] for n in sent], due_at_ms, put_back, trouble, len(batch.ended))
    return swept, left + [batch.rows[n] for n in sorted(unsent)]


def _deliver(batch: Batch, writer: Writer, changelog: Changelog, now_ms: int) -> list[Row]:
    """Publish all but those that are to be put back; what was put in the place of these, and of what recurs."""
    unsent = batch.alone.keys() | batch.passed_over(now_ms)
    again = [(entries.postponed(batch.rows[n][0], now_ms + PUT_BACK_MS), batch.rows[n][1]) for n in batch.alone]
    again += [row for n, _ in batch.planned() if n not in batch.alone and (row := _next_run(batch, n, now_ms))]
    writer.begin()
    _write(writer, changelog, [(key, None) for key in batch.ended])
    sending = [e for n, e in enumerate(batch.sending) if n not in unsent] if unsent else batch.sending
    writer.publish(*_records(sending, now_ms))
    # Put before deleted: an entry that keeps its place in a queue must not leave it in between.
    _write(writer, changelog, again)
    _write(writer, changelog, [(key, None) for key, _ in batch.rows])
    writer.commit()
    return again


def _write(writer: Writer, changelog: Changelog, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
    writer.write(changelog.topic, changelog.partition, [{"key": key, "value": value} for key, value in rows])


def _next_run(batch: Batch, n: int, now_ms: int) -> Row | None:
    """What recurs, due at its next run; None where it does not, or was the last."""
    key, e = batch.rows[n][0], batch.sending[n]
    if not isinstance(e, Named) or e.plan is None or (run := following(e.plan, entries.due_at_ms(key), now_ms)) is None:
        return None
    due_at_ms, number = run
    plan = msgspec.structs.replace(e.plan, run=number)
    planned = msgspec.structs.replace(e, plan=plan, headers=told(e.headers, due_at_ms, number))
    return entries.postponed(key, due_at_ms), entries.encode(planned)


def _records(sending: list[Entry], now_ms: int) -> tuple[list[Entry], int, list[int] | None]:
    """What is published for some entries, and to which partitions: first what goes beside them, then they themselves."""
    beside = [(e, also) for e in sending if isinstance(e, Named) for also in e.also]
    if not beside:
        return sending, now_ms, None
    records = [
        Entry(a.topic, a.key, e.value, e.headers + a.headers, None, e.team) if a.whole
        else Entry(a.topic, a.key, a.value, a.headers, None, e.team)
        for e, a in beside
    ]  # fmt: skip
    partitions = [_ANY_PARTITION if a.partition is None else a.partition for _, a in beside]
    return records + sending, now_ms, partitions + [_ANY_PARTITION] * len(sending)


def _diagnosed(sending: list[Entry], writer: Writer, now_ms: int) -> tuple[dict[str, str], dict[int, str]]:
    """Which destinations refuse, and which single entries: publish again in a transaction that is thrown away, listening.

    One record can be too large while its topic takes others; any other refusal counts for its whole destination. Where the
    topic of what goes beside refuses, it counts for every entry that has something for it.
    """
    records, _, partitions = _records(sending, now_ms)
    beside = len(records) - len(sending)
    told = writer.rehearse(records, now_ms, partitions)
    refused = {n - beside: error for n, error in told.items() if n >= beside}
    closed = {sending[n].destination: error.str() for n, error in refused.items() if error.code() not in _TOO_LARGE}
    alone = {n: error.str() for n, error in refused.items() if sending[n].destination not in closed}
    if any(n < beside for n in told):
        alone |= _refused_beside(sending, told)
    return closed, {n: why for n, why in alone.items() if sending[n].destination not in closed}


def _refused_beside(sending: list[Entry], told: dict[int, KafkaError]) -> dict[int, str]:
    """Entries of which something that goes beside them was refused, by position."""
    beside = [(n, also.topic) for n, e in enumerate(sending) if isinstance(e, Named) for also in e.also]
    closed = {beside[at][1]: error.str() for at, error in told.items() if at < len(beside) and error.code() not in _TOO_LARGE}
    alone = {beside[at][0]: error.str() for at, error in told.items() if at < len(beside)}
    return {n: closed[topic] for n, topic in beside if topic in closed} | alone
