"""Payloads, read from Kafka when they are asked for: of one letter, or of many that a filter looks into."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from sqlite3 import Connection
from typing import Any, NamedTuple, TypeVar

from retry import clock
from retry.clock import Deadline
from retry.console.reading import filter_sql, letters
from retry.console.reading.letter_search import LetterSearch, Position
from retry.console.reading.letters import LogRecord
from retry.console.rows import LetterRow, Scope
from retry.delay_queue import blocks, entry_keys
from retry.delay_queue.envelope_codec import make_codec
from retry.errors import EntryUnreadable, FilterInvalid
from retry.kafka import client_config, topics
from retry.kafka.interface import Message
from retry.kafka.record_fetch import HOLE_RECORDS, UNREADABLE, RecordFetcher
from retry.operations.explain import search
from retry.operations.found_letter import FoundLetter, make_parked_letter, make_waiting_letter
from retry.operations.letter_filter import predicate
from retry.operations.letter_filter.syntax import EVERYTHING, AllOf, Filter, Not, Term, all_of, any_of, negate
from retry.policies.registry import Registry
from retry.record import RecordLocation
from retry.settings import Settings

LETTERS_MAX, SCAN_S = 10_000, 10.0
_BATCH, _BATCH_BYTES, _FETCH_S, _LEAST_S = 1_000, 16 << 20, 5.0, 0.1
# Of many letters that are selected most lie close together: to read over others costs less than to ask again.
_HOLE_RECORDS = 2_000


class Scanned(NamedTuple):
    """The result of one scan through payloads.

    Attributes:
      why_ended: `all` where every letter was looked at; else `page`, `letters`, `time` or `cancelled`.
      after: the cursor behind the last letter that was looked at; None at the end.
      unread: how many of these could not be read: for want of a right, or because a broker did not answer.
    """

    rows: list[LetterRow]
    looked_at: int
    why_ended: str
    after: str | None
    unread: int = 0


Candidate = tuple[Position, LetterRow, LogRecord]
Row = TypeVar("Row")
Loaded = TypeVar("Loaded")


class _Look:
    """How far somebody has looked, letter by letter, up to `position`, and what was found."""

    def __init__(self, rows_max: int, position: Position | None) -> None:
        self._rows_max, self.position = rows_max, position
        self.rows: list[LetterRow] = []
        self.looked_at, self.unread, self.why_ended = 0, 0, ""

    def through(
        self, batch: Sequence[Candidate], answers: Mapping[RecordLocation, Message | str],
        fits: Callable[[Message | str, str], bool], *, is_over: bool,
    ) -> None:
        """Look at the next letters. Where the time is over, those that nobody has answered for come first the next time."""
        for position, row, place in batch:
            answer = answers.get(place, UNREADABLE)
            if self.looked_at == LETTERS_MAX or (answer == UNREADABLE and is_over):
                self.why_ended = "letters" if self.looked_at == LETTERS_MAX else "time"
                return
            self.looked_at, self.position = self.looked_at + 1, position
            self.unread += answer == UNREADABLE
            if fits(answer, row.name):
                self.rows.append(row)
            if len(self.rows) == self._rows_max:
                self.why_ended = "page"
                return


class _Fetcher:
    """Reads records for one thread after another."""

    def __init__(self, settings: Settings, hole_records: int = HOLE_RECORDS) -> None:
        self._settings, self._hole_records, self._lock = settings, hole_records, threading.Lock()
        self._fetcher: RecordFetcher | None = None

    def fetch(self, places: Sequence[LogRecord], within_s: float) -> dict[RecordLocation, Message | str]:
        """Fetch records from Kafka by their places: for each the record, or a text that says why there is none.

        Return an empty dict where another thread reads for all of `within_s` seconds.
        """
        deadline = Deadline(within_s)
        if not self._lock.acquire(timeout=within_s):
            return {}
        try:
            self._fetcher = self._fetcher or RecordFetcher(client_config.build_reader_config(self._settings), self._hole_records)
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
        file_id: Callable[[], str], in_group: predicate.InGroup,
    ) -> None:
        self._settings, self._registry, self._reading, self._file_id = settings, registry, reading, file_id
        self._in_group = in_group
        self._own, self._codec = topics.build_topic_names(settings.app_id), make_codec(settings)
        # Whoever looks at one letter does not wait for those who look through thousands.
        self._single, self._many, self._selected = _Fetcher(settings), _Fetcher(settings), _Fetcher(settings, _HOLE_RECORDS)

    def find_letter(self, scope: Scope, name: str) -> FoundLetter | None:
        """Find a letter by its name, with headers and payload.

        Return None where the letter is gone or is another team's, or where Kafka does not answer in time.
        """
        with self._reading() as connection:
            there = letters.find_letter(connection, name)
        if there is None or (scope is not None and there[0].team not in scope):
            return None
        return self._open_letter(self._single.fetch([there[1]], _FETCH_S).get(there[1], UNREADABLE), there[0].name)

    def find_rested(self, scope: Scope, name: str) -> FoundLetter | None:
        """Find the letter in a record of a topic where letters rest, though it was returned or moved since.

        Return None where the name is of no such record, where it is another team's, or where Kafka does not answer in time.
        """
        try:
            where = search.parse_location(name)
        except ValueError:
            return None
        if where.topic not in self._own.list_resting(self._registry().parking()):
            return None
        found = self._open_letter(self._single.fetch([LogRecord(*where)], _FETCH_S).get(where, UNREADABLE), name)
        return None if found is None or (scope is not None and found.team not in scope) else found

    def load_found(
        self, find_positions: Callable[[Connection], list[Position]], load: Callable[[Connection, Sequence[Position]], Loaded]
    ) -> Loaded:
        """Load what is wanted of the letters at the positions that are found."""
        with self._reading() as connection:
            return load(connection, find_positions(connection))

    def fetch_selected(self, places: Sequence[LogRecord], within_s: float) -> dict[RecordLocation, Message | str]:
        """Fetch the records of letters that an action selects: for each the record, or a text that says why there is none.

        Return an empty dict where another thread reads for all of `within_s` seconds.
        """
        return self._selected.fetch(places, within_s)

    def find_returned_bitmap(self, block: bytes) -> bytes | None:
        """Find the bitmap that says which letters of a block were returned from a parking topic; None where none was.

        A block is a range of offsets, and `block` is its key; see `retry.delay_queue.returned_offsets`.
        """
        with self._reading() as connection:
            found = connection.execute("SELECT bitmap FROM returned WHERE block = ?", (block,)).fetchone()
        return None if found is None else bytes(found[0])

    def position(self, scope: Scope, letter_filter: Filter, after: str | None) -> tuple[str, Position | None]:
        """Return the question of a scan as text, and where it goes on: None at the beginning. Raises CursorStale."""
        question = f"scan {letter_filter} {sorted(scope) if scope is not None else None}"
        return question, letters.decode_cursor(self._file_id(), question, after)

    def scan(
        self, scope: Scope, letter_filter: Filter, after: str | None = None, limit: int = 100,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> Scanned:
        """Search letters by a filter that also asks for payloads; stop at 10,000 letters, after 10 s, or when cancelled."""
        deadline, now_ms = Deadline(SCAN_S), clock.wall_ms()
        question, position = self.position(scope, letter_filter, after)
        if (known := self._scan_known(scope, letter_filter, position, limit, question, now_ms)) is not None:
            return known
        fits, cheap = predicate.build_predicate(letter_filter, now_ms, self._in_group), drop_payload_terms(letter_filter)
        look = _Look(limit, position)
        for batch, behind in self._iterate_batches(scope, cheap, position, now_ms):
            if is_cancelled() or deadline.has_passed():
                look.why_ended = "cancelled" if is_cancelled() else "time"
            else:
                # Letters of one block have one record.
                places = list(dict.fromkeys(place for _, _, place in batch))
                answers = self._many.fetch(places, max(_LEAST_S, deadline.remaining_s()))
                opened = lambda record, name: (  # noqa: E731
                    (letter := self._open_letter(record, name)) is not None and fits(letter)
                )
                look.through(batch, answers, opened, is_over=deadline.has_passed())
            if look.why_ended:
                break
            look.position = behind
        ended = look.why_ended or "all"
        end = None if ended == "all" or look.position is None else letters.encode_cursor(self._file_id(), question, look.position)
        return Scanned(look.rows, look.looked_at, ended, end, look.unread)

    def close(self) -> None:
        self._single.close()
        self._many.close()
        self._selected.close()

    def _scan_known(
        self, scope: Scope, letter_filter: Filter, position: Position | None, limit: int, question: str, now_ms: int
    ) -> Scanned | None:
        """Scan the replica alone; None where the filter asks for payloads, or for headers that the replica does not keep."""
        try:
            with self._reading() as connection:
                found = LetterSearch(connection, scope, letter_filter, now_ms).find_page(position, limit)
                rows = letters.read_letters_at(connection, found.letters)
        except FilterInvalid:
            return None
        ended = "all" if found.looked_to is None else "page" if len(rows) >= limit else "time"
        return Scanned(rows, len(rows), ended, letters.encode_cursor(self._file_id(), question, found.looked_to))

    def _iterate_batches(
        self, scope: Scope, cheap: Filter, position: Position | None, now_ms: int
    ) -> Iterator[tuple[list[Candidate], Position | None]]:
        """Letters that may be meant, some at a time, and the position behind them."""
        pages = self.iterate_pages(scope, cheap, position, now_ms, load=letters.add_records, letters_max=_BATCH)
        for positions, found, behind in pages:
            candidates: list[Candidate] = [(at, *each) for at, each in zip(positions, found, strict=True)]
            for batch in split_by_bytes(candidates, lambda each: each[1].size_bytes, _BATCH_BYTES):
                yield batch, batch[-1][0] if batch[-1] is not candidates[-1] else behind
            if not candidates:
                yield [], behind

    def iterate_pages(
        self, scope: Scope, cheap: Filter, position: Position | None, now_ms: int, *,
        load: Callable[[Connection, Sequence[Position]], Loaded], letters_max: int,
    ) -> Iterator[tuple[Sequence[Position], Loaded, Position | None]]:  # fmt: skip
        """Yield pages of letters that a filter may select: their positions, what `load` returns for them, the next position.

        The filter `cheap` asks for no payloads, see `drop_payload_terms`.
        """
        while True:
            with self._reading() as connection:
                found = LetterSearch(connection, scope, cheap, now_ms).find_page(position, letters_max)
                loaded = load(connection, found.letters)
            yield found.letters, loaded, found.looked_to
            if found.looked_to is None:
                return
            position = found.looked_to

    def _open_letter(self, record: Any, name: str) -> FoundLetter | None:
        """The letter of this name in a record; None where there is a reason in its place, or it is none any more."""
        if isinstance(record, str):
            return None
        if record.topic() != self._own.changelog:
            return make_parked_letter(record, self._registry(), discarded=record.topic() == self._own.discarded)
        key, value = record.key(), record.value()
        if value is None:
            return None
        try:
            rows = ((entry_keys.read_source(each), each, envelope) for each, envelope in blocks.read_rows(key, value))
            where, entry, envelope = next(row for row in rows if not blocks.is_block(key) or str(row[0]) == name)
            return make_waiting_letter(where, self._codec.decode_to_show(entry, envelope or b""), self._registry(), "")
        except (EntryUnreadable, StopIteration):
            # It was told when it was folded.
            return None


def split_by_bytes(rows: Sequence[Row], size_of: Callable[[Row], int], bytes_max: int) -> Iterator[list[Row]]:
    """Yield lists of rows, in their order, of at most `bytes_max` bytes each; a larger row makes a list of its own.

    >>> list(split_by_bytes([3, 4, 9, 1], lambda row: row, 8))
    [[3, 4], [9], [1]]
    """
    batch, size = list[Row](), 0
    for row in rows:
        of_row = size_of(row)
        if batch and size + of_row > bytes_max:
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += of_row
    if batch:
        yield batch


def drop_payload_terms(letter_filter: Filter, *, holds: bool = True) -> Filter:
    """Drop the terms on payloads and headers: every letter that matches the filter (not `holds`: fails it) matches the result."""
    if isinstance(letter_filter, Term):
        # Which headers the replica keeps depends on how long they are: they are looked at with the payload.
        if letter_filter.field in filter_sql.OF_PAYLOAD:
            return EVERYTHING
        return letter_filter if holds else negate(letter_filter)
    if isinstance(letter_filter, Not):
        return drop_payload_terms(letter_filter.of, holds=not holds)
    parts = [drop_payload_terms(each, holds=holds) for each in letter_filter.of]
    return all_of(parts) if isinstance(letter_filter, AllOf) == holds else any_of(parts)
