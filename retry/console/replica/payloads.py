"""Payloads, read from Kafka when they are asked for: of one letter, or of many that a filter looks into."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from sqlite3 import Connection
from typing import Any, NamedTuple

from retry import clock
from retry.clock import Deadline
from retry.console.replica import cursors, letter_rows
from retry.console.replica.letter_rows import LogRecord
from retry.console.replica.letter_search import LetterSearch, Position
from retry.console.replica.rows import LetterRow, Scope
from retry.delay_queue import entry_keys, envelopes
from retry.errors import EntryUnreadable, FilterInvalid
from retry.kafka import client_config, topics
from retry.kafka.interface import Message
from retry.kafka.record_fetch import RecordFetcher
from retry.operations.letter_filter import predicate
from retry.operations.letter_filter.syntax import EVERYTHING, AllOf, Filter, Not, Term, all_of, any_of, negated
from retry.operations.letters.found_letter import FoundLetter, parked, waiting
from retry.policies.registry import Registry
from retry.record import RecordLocation
from retry.settings import Settings

LETTERS_MAX, SCAN_S = 10_000, 10.0
_BATCH, _BATCH_BYTES, _FETCH_S, _LEAST_S = 1_000, 16 << 20, 5.0, 0.1


class Scanned(NamedTuple):
    """What a look into payloads has found.

    Attributes:
      looked_at: letters whose payloads were read.
      why_ended: `all` where every letter was looked at; else `page`, `letters`, `time` or `cancelled`.
      after: the cursor behind the last letter that was looked at; None at the end.
    """

    rows: list[LetterRow]
    looked_at: int
    why_ended: str
    after: str | None


class _Fetcher:
    """Reads records for one thread after another."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._lock = settings, threading.Lock()
        self._fetcher: RecordFetcher | None = None

    def fetch(self, places: Sequence[LogRecord], within_s: float) -> dict[RecordLocation, Message | str]:
        """The records, or why there is none; nothing where others are read for so long."""
        deadline = Deadline(within_s)
        if not self._lock.acquire(timeout=within_s):
            return {}
        try:
            self._fetcher = self._fetcher or RecordFetcher(client_config.reader_config(self._settings))
            return self._fetcher.fetch(list(places), max(_LEAST_S, deadline.remaining_s()))
        finally:
            self._lock.release()

    def close(self) -> None:
        """Let go of the client."""
        with self._lock:
            if self._fetcher is not None:
                self._fetcher.close()
                self._fetcher = None


class Payloads:
    """Reads records of letters by offset; of `Replica.payloads`."""

    def __init__(
        self, settings: Settings, registry: Callable[[], Registry], reading: Callable[[], AbstractContextManager[Connection]],
        file_id: Callable[[], str],
    ) -> None:
        self._settings, self._registry, self._reading, self._file_id = settings, registry, reading, file_id
        self._own = topics.names(settings.app_id)
        # Whoever looks at one letter does not wait for those who look through thousands.
        self._single, self._many = _Fetcher(settings), _Fetcher(settings)

    def found(self, scope: Scope, name: str) -> FoundLetter | None:
        """The letter with headers and payload: from the changelog where it waits, from its topic where it rests.

        None where it waits or rests no more, or is another team's; or where nobody answers in time.
        """
        with self._reading() as connection:
            there = letter_rows.named(connection, name)
        if there is None or (scope is not None and there[0].team not in scope):
            return None
        return self._read([there[1]], self._single, _FETCH_S).get(there[1])

    def scan(
        self, scope: Scope, meant: Filter, after: str | None = None, limit: int = 100,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> Scanned:
        """Letters that a filter means that asks for payloads too: stops at 10,000 letters, after 10 s, or when cancelled."""
        deadline, now_ms = Deadline(SCAN_S), clock.wall_ms()
        question = f"scan {meant} {sorted(scope) if scope is not None else None}"
        position = cursors.decode(self._file_id(), question, after)
        if (known := self._known(scope, meant, position, limit, question, now_ms)) is not None:
            return known
        fits, cheap = predicate.predicate(meant, now_ms), without_payload(meant)
        rows: list[LetterRow] = []
        looked_at, why_ended = 0, "all"
        for batch, behind in self._batches(scope, cheap, position, now_ms):
            if is_cancelled() or deadline.passed() or looked_at >= LETTERS_MAX:
                why_ended = "cancelled" if is_cancelled() else "time" if deadline.passed() else "letters"
                break
            letters = self._read([place for _, place in batch], self._many, max(_LEAST_S, deadline.remaining_s()))
            looked_at += len(batch)
            rows += [row for row, place in batch if place in letters and fits(letters[place])]
            position = behind
            if len(rows) >= limit:
                why_ended = "page"
                break
        end = None if why_ended == "all" or position is None else cursors.encode(self._file_id(), question, position)
        return Scanned(rows, looked_at, why_ended, end)

    def close(self) -> None:
        """Let go of the clients."""
        self._single.close()
        self._many.close()

    def _known(
        self, scope: Scope, meant: Filter, position: Position | None, limit: int, question: str, now_ms: int
    ) -> Scanned | None:
        """The same without a payload, where the replica keeps the headers that are asked for; None where it does not."""
        try:
            with self._reading() as connection:
                found = LetterSearch(connection, scope, meant, now_ms).page(position, limit)
                rows = letter_rows.at(connection, found.letters)
        except FilterInvalid:
            return None
        ended = "all" if found.looked_to is None else "page" if len(rows) >= limit else "time"
        return Scanned(rows, len(rows), ended, cursors.encode(self._file_id(), question, found.looked_to))

    def _batches(
        self, scope: Scope, cheap: Filter, position: Position | None, now_ms: int
    ) -> Iterator[tuple[list[tuple[LetterRow, LogRecord]], Position | None]]:
        """Letters that may be meant, some at a time, and the position behind them."""
        size = _BATCH
        while True:
            with self._reading() as connection:
                found = LetterSearch(connection, scope, cheap, now_ms).page(position, size)
                batch = letter_rows.with_records(connection, found.letters)
            if size > 1 and sum(row.size_bytes for row, _ in batch) > _BATCH_BYTES:
                # What is read is held at once.
                size //= 2
                continue
            if batch or found.looked_to is not None:
                yield batch, found.looked_to
            if found.looked_to is None:
                return
            position = found.looked_to

    def _read(self, places: Sequence[LogRecord], fetcher: _Fetcher, within_s: float) -> dict[LogRecord, FoundLetter]:
        """The letters of these records, without those that are gone."""
        found = {}
        for place, record in fetcher.fetch(places, within_s).items():
            if not isinstance(record, str) and (letter := self._letter(record)) is not None:
                found[LogRecord(*place)] = letter
        return found

    def _letter(self, record: Any) -> FoundLetter | None:
        if record.topic() != self._own.changelog:
            return parked(record, self._registry(), discarded=record.topic() == self._own.discarded)
        key, value = record.key(), record.value()
        if value is None:
            return None
        try:
            return waiting(entry_keys.source(key), envelopes.decode_as(key, value), self._registry(), "")
        except EntryUnreadable:
            # It was told when it was folded.
            return None


def without_payload(meant: Filter, *, holds: bool = True) -> Filter:
    """What must hold of a letter for a filter to hold (or not to), as far as the replica knows."""
    if isinstance(meant, Term):
        # Which headers the replica keeps depends on how long they are: they are looked at with the payload.
        if meant.field in ("value", "header"):
            return EVERYTHING
        return meant if holds else negated(meant)
    if isinstance(meant, Not):
        return without_payload(meant.of, holds=not holds)
    parts = [without_payload(each, holds=holds) for each in meant.of]
    return all_of(parts) if isinstance(meant, AllOf) == holds else any_of(parts)

