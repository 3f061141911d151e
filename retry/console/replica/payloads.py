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
from retry.errors import EntryUnreadable
from retry.kafka import client_config, topics
from retry.kafka.record_fetch import RecordFetcher
from retry.operations.letter_filter import predicate
from retry.operations.letter_filter.syntax import EVERYTHING, AllOf, Filter, Not, Term, all_of, any_of, negated
from retry.operations.letters.found_letter import FoundLetter, parked, waiting
from retry.policies.registry import Registry
from retry.settings import Settings

LETTERS_MAX, SCAN_S = 10_000, 10.0
_BATCH, _FETCH_S = 200, 5.0


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


class Payloads:
    """Reads records of letters by offset; of `Replica.payloads`."""

    def __init__(
        self, settings: Settings, registry: Callable[[], Registry], reading: Callable[[], AbstractContextManager[Connection]],
        file_id: Callable[[], str],
    ) -> None:
        self._settings, self._registry, self._reading, self._file_id = settings, registry, reading, file_id
        self._own = topics.names(settings.app_id)
        self._lock = threading.Lock()
        self._fetcher: RecordFetcher | None = None

    def found(self, scope: Scope, name: str) -> FoundLetter | None:
        """The letter with headers and payload: from the changelog where it waits, from its topic where it rests.

        None where it waits or rests no more, or is another team's; or where nobody answers in time.
        """
        with self._reading() as connection:
            there = letter_rows.named(connection, name)
        if there is None or (scope is not None and there[0].team not in scope):
            return None
        return self._read([there[1]]).get(there[1])

    def scan(
        self, scope: Scope, meant: Filter, after: str | None = None, limit: int = 100,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> Scanned:
        """Letters that a filter means that asks for payloads too: stops at 10,000 letters, after 10 s, or when cancelled."""
        deadline, now_ms = Deadline(SCAN_S), clock.wall_ms()
        question = f"scan {meant} {sorted(scope) if scope is not None else None}"
        position = cursors.decode(self._file_id(), question, after)
        fits, cheap = predicate.predicate(meant, now_ms), without_payload(meant)
        rows: list[LetterRow] = []
        looked_at, why_ended = 0, "all"
        for batch, behind in self._batches(scope, cheap, position, now_ms):
            if is_cancelled() or deadline.passed() or looked_at >= LETTERS_MAX:
                why_ended = "cancelled" if is_cancelled() else "time" if deadline.passed() else "letters"
                break
            letters = self._read([place for _, place in batch])
            looked_at += len(batch)
            rows += [row for row, place in batch if place in letters and fits(letters[place])]
            position = behind
            if len(rows) >= limit:
                why_ended = "page"
                break
        end = None if why_ended == "all" or position is None else cursors.encode(self._file_id(), question, position)
        return Scanned(rows, looked_at, why_ended, end)

    def close(self) -> None:
        """Let go of the client."""
        with self._lock:
            if self._fetcher is not None:
                self._fetcher.close()
                self._fetcher = None

    def _batches(
        self, scope: Scope, cheap: Filter, position: Position | None, now_ms: int
    ) -> Iterator[tuple[list[tuple[LetterRow, LogRecord]], Position | None]]:
        """Letters that may be meant, some at a time, and the position behind them."""
        while True:
            with self._reading() as connection:
                found = LetterSearch(connection, scope, cheap, now_ms).page(position, _BATCH)
                batch = letter_rows.with_records(connection, found.letters)
            if batch or found.looked_to is not None:
                yield batch, found.looked_to
            if found.looked_to is None:
                return
            position = found.looked_to

    def _read(self, places: Sequence[LogRecord]) -> dict[LogRecord, FoundLetter]:
        """The letters of these records, without those that are gone."""
        with self._lock:
            if self._fetcher is None:
                self._fetcher = RecordFetcher(client_config.reader_config(self._settings))
            records = self._fetcher.fetch(list(places), _FETCH_S)
        found = {}
        for place, record in records.items():
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

