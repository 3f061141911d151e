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
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from confluent_kafka import KafkaError

from retry import entry as entries
from retry.entry import Entry
from retry.errors import TransactionAborted
from retry.gather import Gate, Row, gathered, give_back
from retry.table.base import Table

PUT_BACK_MS = 30_000
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE,)



class Writer(Protocol):
    """The part of a transaction that a sweep uses; see `retry.kafka.transactions`."""

    def begin(self) -> None: ...
    def write(self, topic: str, partition: int, rows: list[dict[str, Any]]) -> None: ...
    def publish(self, entries: Iterable[Entry], now_ms: int) -> None: ...
    def rehearse(self, entries: Iterable[Entry], now_ms: int) -> dict[int, KafkaError]: ...
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
    """

    sent: list[Entry]
    due_at_ms: list[int]
    put_back: Counter[str]
    trouble: list[str]


NOTHING = Swept([], [], Counter(), [])


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
    if not rows:
        return NOTHING
    try:
        swept, left = _swept(rows, table, writer, changelog, gate, now_ms)
    except TransactionAborted:
        give_back(gate, rows)
        raise
    give_back(gate, left)
    return swept


def _swept(
    rows: list[Row], table: Table, writer: Writer, changelog: Changelog, gate: Gate, now_ms: int
) -> tuple[Swept, list[Row]]:
    """How it went, and the rows that did not go."""
    batch = [entries.decode(envelope) for _, envelope in rows]
    alone: dict[int, str] = {}
    left: list[Row] = []
    try:
        again = _deliver(rows, batch, alone, writer, changelog, now_ms)
    except TransactionAborted:
        closed, alone = _diagnosed(batch, writer, now_ms)
        if not closed and not alone:
            raise
        for destination, why in closed.items():
            gate.refused(destination, why, now_ms)
        kept = [n for n in range(len(batch)) if batch[n].destination not in closed]
        alone = {at: alone[n] for at, n in enumerate(kept) if n in alone}
        left = [rows[n] for n in range(len(batch)) if batch[n].destination in closed]
        rows, batch = [rows[n] for n in kept], [batch[n] for n in kept]
        if not rows:
            return Swept([], [], Counter(), sorted(closed.values())), left
        try:
            again = _deliver(rows, batch, alone, writer, changelog, now_ms)
        except TransactionAborted:
            if not alone:
                raise
            # There are more than were found. These go out of the way; the others have their turn at the next sweep.
            left += [rows[n] for n in range(len(rows)) if n not in alone]
            rows, batch = [rows[n] for n in sorted(alone)], [batch[n] for n in sorted(alone)]
            alone = dict(enumerate(alone[n] for n in sorted(alone)))
            again = _deliver(rows, batch, alone, writer, changelog, now_ms)
    table.forget([key for key, _ in rows], again)
    sent = [n for n in range(len(batch)) if n not in alone]
    gate.delivered({batch[n].destination for n in sent})
    due_at_ms = [entries.due_at_ms(rows[n][0]) for n in sent]
    put_back = Counter(batch[n].destination for n in alone)
    swept = Swept([batch[n] for n in sent], due_at_ms, put_back, sorted(set(alone.values())))
    return swept, left + [rows[n] for n in alone]


def _deliver(
    rows: list[Row], batch: list[Entry], alone: dict[int, str], writer: Writer, changelog: Changelog, now_ms: int
) -> list[Row]:
    """Publish all but those that are to be put back; what was put in the place of these."""
    writer.begin()
    writer.publish([e for n, e in enumerate(batch) if n not in alone] if alone else batch, now_ms)
    # Put before deleted: an entry that keeps its place in a queue must not leave it in between.
    again = [(entries.postponed(rows[n][0], now_ms + PUT_BACK_MS), rows[n][1]) for n in alone]
    writer.write(changelog.topic, changelog.partition, [{"key": key, "value": envelope} for key, envelope in again])
    writer.write(changelog.topic, changelog.partition, [{"key": key, "value": None} for key, _ in rows])
    writer.commit()
    return again


def _diagnosed(batch: list[Entry], writer: Writer, now_ms: int) -> tuple[dict[str, str], dict[int, str]]:
    """Which destinations refuse, and which single entries: publish again in a transaction that is thrown away, listening.

    One record can be too large while its topic takes others; any other refusal counts for its whole destination.
    """
    told = writer.rehearse(batch, now_ms)
    closed = {batch[n].destination: error.str() for n, error in told.items() if error.code() not in _TOO_LARGE}
    alone = {n: error.str() for n, error in told.items() if batch[n].destination not in closed}
    return closed, alone
