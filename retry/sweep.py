"""Sweep: due entries out; publish, delete, commit, forget.

The effects of one batch, in their order, and what a crash after each costs:

1. read the first due entries of the shard                        nothing
2. begin a transaction                                            nothing
3. publish them, and a null for each key of theirs in the changelog   nothing: both are undone
4. commit                                                         nothing: both stand, and a restored table has neither
5. forget them in the table, in one write                         nothing: the fold finds the same nulls

An entry that a topic refuses is put back in the same way: its key deleted and put again, due later, in one transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from confluent_kafka import KafkaError

from retry import entry as entries
from retry.entry import Entry
from retry.errors import TransactionAborted
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
      put_back: how many each destination refused; they wait on.
      trouble: what the destinations said.
    """

    sent: list[Entry]
    due_at_ms: list[int]
    put_back: Counter[str]
    trouble: list[str]


NOTHING = Swept([], [], Counter(), [])

Closed = Callable[[set[str]], dict[str, str]]


def sweep(
    table: Table, writer: Writer, changelog: Changelog, closed: Closed, now_ms: int, rows_max: int, bytes_max: int
) -> Swept:
    """Deliver one batch of what is due at `now_ms`, oldest first; the steps are those of the module's docstring.

    Args:
      closed: asked which of some destinations cannot be written to now, and why.

    Raises:
      TableUnreadable: the table must be restored before anything is sent.
      EntryUnreadable: nothing was sent; the shard must not be swept by this version.
      TransactionFailed: nothing was forgotten; the shard must be opened again, unless it was merely aborted.
    """
    rows = table.due(now_ms, rows_max, bytes_max)
    if not rows:
        return NOTHING
    batch = [entries.decode(envelope) for _, envelope in rows]
    refused = _unreachable(batch, closed({entry.destination for entry in batch}))
    try:
        _deliver(rows, batch, refused, writer, changelog, now_ms)
    except TransactionAborted:
        found = _diagnosed(batch, refused, writer, now_ms)
        if not found:
            raise
        refused |= found
        _deliver(rows, batch, refused, writer, changelog, now_ms)
    keys = [key for key, _ in rows]
    table.forget(keys)
    sent = [n for n in range(len(batch)) if n not in refused] if refused else range(len(batch))
    due_at_ms = [entries.due_at_ms(keys[n]) for n in sent]
    put_back = Counter(batch[n].destination for n in refused)
    return Swept([batch[n] for n in sent], due_at_ms, put_back, sorted(set(refused.values())))


def _unreachable(batch: list[Entry], closed: dict[str, str]) -> dict[int, str]:
    return {n: closed[e.destination] for n, e in enumerate(batch) if e.destination in closed} if closed else {}


def _deliver(
    rows: list[tuple[bytes, bytes]], batch: list[Entry], refused: dict[int, str],
    writer: Writer, changelog: Changelog, now_ms: int,
) -> None:  # fmt: skip
    writer.begin()
    writer.publish([e for n, e in enumerate(batch) if n not in refused] if refused else batch, now_ms)
    writer.write(changelog.topic, changelog.partition, [{"key": key, "value": None} for key, _ in rows])
    again = [{"key": entries.postponed(rows[n][0], now_ms + PUT_BACK_MS), "value": rows[n][1]} for n in refused]
    writer.write(changelog.topic, changelog.partition, again)
    writer.commit()


def _diagnosed(batch: list[Entry], refused: dict[int, str], writer: Writer, now_ms: int) -> dict[int, str]:
    """Which entries the brokers refuse: publish again in a transaction that is thrown away, this time listening.

    One record can be too large while its topic takes others; any other refusal counts for its whole destination.
    """
    reachable = [n for n in range(len(batch)) if n not in refused]
    told = {reachable[n]: error for n, error in writer.rehearse([batch[n] for n in reachable], now_ms).items()}
    closed = {batch[n].destination: error.str() for n, error in told.items() if error.code() not in _TOO_LARGE}
    alone = {n: error.str() for n, error in told.items() if error.code() in _TOO_LARGE}
    return _unreachable(batch, closed) | alone
