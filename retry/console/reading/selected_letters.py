"""The letters of a selection for a preview: the replica says which they are, and of most of them what an action makes.

Kafka has the records of the others: of those that are shown as examples, of those of which only their bytes tell whether they are
meant, or what becomes of them, and of those that rest. So a preview of many letters takes a moment. What the replica does not
know yet is no part of the action, as little as what comes later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from sqlite3 import Connection
from typing import Any, NamedTuple, TypeVar

from retry import clock
from retry.console.folding.letter_record import LogPlace, build_resting_place
from retry.console.folding.sql import bind_ids, select_rows
from retry.console.reading import filter_sql
from retry.console.reading.letter_search import Position, apply_regrouping, build_scope_condition
from retry.console.reading.letters import LogRecord
from retry.console.reading.payloads import Payloads, drop_payload_terms, split_by_bytes
from retry.console.rows import Scope
from retry.delay_queue import blocks, entry_keys
from retry.delay_queue.entry_keys import Source
from retry.delivery.foreseen_acts import Foreseen, KnownEntry
from retry.delivery.letter_changes import Refusal
from retry.errors import ActionRefused, EntryUnreadable
from retry.kafka.interface import Message
from retry.kafka.record_fetch import UNREADABLE
from retry.operations.act.choose import EXAMPLES_MAX, describe_age
from retry.operations.act.letter_sources import Foresee, ForeseenRows, WaitingRow
from retry.operations.act.selection import RESTING, Selection
from retry.operations.explain.search import is_location, parse_location
from retry.operations.found_letter import FoundLetter, make_parked_letter
from retry.operations.letter_filter.syntax import Filter, Term, all_of, any_of, make_glob
from retry.operations.listing import Listing, ReturnedRecords

# So many letters are looked up at once; so many bytes of records are asked for at once, and held in memory meanwhile.
_BATCH, _BATCH_BYTES, _FETCH_S, _PROVE_S = 10_000, 64 << 20, 60.0, 30.0
_WAITING = frozenset({"waiting"})
_FAILED_AT = "c.topic || '/' || l.partition || '/' || l.\"offset\""
_NAME, _RESTS_AT = f"l.due_ms || '/' || {_FAILED_AT}", "t.name || '/' || l.log_partition || '/' || l.log_offset"
_GIVEN = "(SELECT value FROM json_each(?))"
_FROM = "FROM letters l JOIN cells c ON c.id = l.cell JOIN topics t ON t.number = l.log"
_PLACE = (
    "l.id", "t.name", "l.log_partition", "l.log_offset", "l.due_ms", "c.topic", "l.partition", 'l."offset"', "l.size",
)  # fmt: skip
_KNOWN = (
    "l.id", "l.cell", "l.log_partition", "hex(l.entry_key)", "l.size", "l.lineage IS NOT NULL", "l.first_failed_ms",
    "CASE WHEN l.ordered IS NOT NULL AND l.key IS NOT NULL THEN hex(coalesce(l.key_bytes, l.key)) END",
)  # fmt: skip
_CELL = ("id", "team", "topic", "target", "exception", "reason", "attempt")


class _Place(NamedTuple):
    """A letter whose record is to be read in `log`; `source` is None of one that rests, `size` is of key, value and headers."""

    log: LogRecord
    source: Source | None
    size: int


class _Cell(NamedTuple):
    team: str | None
    topic: str | None
    target: str
    exception: str | None
    reason: str | None
    attempt: int | None

    @property
    def tells_history(self) -> bool:
        """Whether its letters tell their past where they have an id, and do not park."""
        return self.reason is None and bool(self.attempt)


class _Page(NamedTuple):
    """Some letters that wait: those of which the replica tells all, and the others."""

    foreseen: ForeseenRows
    unread: list[_Place]


_Records = Mapping[LogRecord, Message | None]
_Loaded = TypeVar("_Loaded")


class SelectedLetters:
    """The letters of one selection, as the replica has them or read from the place where it says they lie; a `LetterSource`.

    Args:
      listing: looks up whether a letter that says so was parked by reference.
      note_progress: is called with how many letters were looked at; raises what ends it.
    """

    def __init__(
        self, payloads: Payloads, listing: Listing, selection: Selection, *, scope: Scope, shards: int, now_ms: int,
        note_progress: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._payloads, self._listing, self._selection, self._scope = payloads, listing, selection, scope
        self._now_ms, self._note_progress = now_ms, note_progress
        self._is_decided = not filter_sql.asks_payload(selection.letter_filter)
        self.shards, self.gone, self.foreseen, self._looked_at, self._examples_left = shards, 0, 0, 0, EXAMPLES_MAX

    def iterate_waiting(self, foresee: Foresee) -> Iterator[WaitingRow | ForeseenRows]:
        for page in self._iterate_pages(_WAITING & self._selection.states, partial(self._load_page, foresee=foresee)):
            for batch, records in self._iterate_read(page.unread):
                # Letters of one block have one record.
                opened = {log: _open_rows(record) for log, record in records.items() if record is not None}
                for each in batch:
                    found = None if each.source is None else opened.get(each.log, {}).get(each.source)
                    if found is not None:
                        yield WaitingRow(each.log.partition, *found)
            if foreseen := len(page.foreseen.members) + page.foreseen.refused.total():
                self.foreseen += foreseen
                self._note(foreseen)
                yield page.foreseen

    def iterate_resting(self) -> Iterator[FoundLetter]:
        deadline, discarded = clock.Deadline(_PROVE_S), self._listing.cluster.names.discarded
        for page in self._iterate_pages(self._selection.states & frozenset(RESTING), _load_places):
            for batch, records in self._iterate_read(page):
                found = [record for each in batch if (record := records[each.log]) is not None]
                registry = self._listing.registry
                letters = [make_parked_letter(each, registry, discarded=each.topic() == discarded) for each in found]
                self._listing.prove_references(letters, deadline)
                yield from letters

    @cached_property
    def returned(self) -> ReturnedRecords:
        # A block of them is asked for once, and not for each of its letters.
        return ReturnedRecords(self._listing.cluster, cache(self._payloads.find_returned_bitmap))

    def _iterate_read(self, letters: Sequence[_Place]) -> Iterator[tuple[list[_Place], _Records]]:
        for batch in split_by_bytes(letters, lambda each: each.size, _BATCH_BYTES):
            logs = list(dict.fromkeys(each.log for each in batch))
            answers = self._payloads.fetch_selected(logs, _FETCH_S)
            if unread := sum(answers.get(log, UNREADABLE) == UNREADABLE for log in logs):
                raise ActionRefused(
                    f"{unread:,} records could not be read: no broker answered in time, or the right to read their topics is"
                    " missing; ask again, or see `retry acls`"
                )
            records = {log: None if isinstance(found := answers[log], str) else found for log in logs}
            self.gone += sum(records[each.log] is None for each in batch)
            self._note(len(batch))
            yield batch, records

    def _note(self, letters: int) -> None:
        self._looked_at += letters
        self._note_progress(self._looked_at)

    def _load_page(self, connection: Connection, positions: Sequence[Position], foresee: Foresee) -> _Page:
        found, unknown = ForeseenRows([], Counter(), Counter(), Counter()), list[Position]()
        rows = _load_by_id(connection, _KNOWN, "FROM letters l WHERE l.id", [letter for _, letter in positions])
        of_letters = {row[1] for row in rows.values()}
        cells = {
            number: _Cell(*of_cell)
            for number, *of_cell in _load_by_id(connection, _CELL, "FROM cells WHERE id", of_letters).values()
        }
        groups = Counter[tuple[int, str]]()
        for position in positions:
            _, cell, shard, entry_key, size, has_id, first_failed_ms, record_key = rows[position[1]]
            about = cells[cell]
            result: Refusal | Foreseen = Foreseen.UNKNOWN
            if entry_key and self._is_decided:
                known = KnownEntry(bytes.fromhex(entry_key), about.target, bool(has_id) and about.tells_history, size)
                result = foresee(known)
            if result is Foreseen.DONE and self._examples_left:
                self._examples_left, result = self._examples_left - 1, Foreseen.UNKNOWN
            if result is Foreseen.UNKNOWN:
                unknown.append(position)
            elif isinstance(result, Refusal):
                found.refused[result.reason] += 1
            else:
                found.members.append((shard, known.key))
                groups[cell, describe_age(first_failed_ms, self._now_ms)] += 1
                if known.key[0] == entry_keys.ORDERED:
                    found.orders[about.topic or "", None if record_key is None else bytes.fromhex(record_key)] += 1
        for (cell, age), letters in groups.items():
            found.groups[(*cells[cell][:5], age)] += letters
        return _Page(found, _load_places(connection, unknown))

    def _iterate_pages(
        self, states: frozenset[str], load: Callable[[Connection, Sequence[Position]], _Loaded]
    ) -> Iterator[_Loaded]:
        if not states:
            return
        cheap = drop_payload_terms(self._selection.letter_filter)
        if self._selection.names:
            find = partial(self._find_named, states=states, cheap=cheap)
            yield self._payloads.load_found(find, load)
            return
        wanted = all_of([cheap, any_of([_state(each) for each in sorted(states)])])
        pages = self._payloads.iterate_pages(self._scope, wanted, None, self._now_ms, load=load, letters_max=_BATCH)
        for _, loaded, _ in pages:
            yield loaded

    def _find_named(self, connection: Connection, *, states: frozenset[str], cheap: Filter) -> list[Position]:
        """The letters that are named by due time and where they failed, by where they rest, or only by where they failed."""
        names = self._selection.names
        meant = filter_sql.build_condition(apply_regrouping(connection, cheap), self._now_ms)
        among = filter_sql.join_conditions("AND", [build_scope_condition(self._scope, states), meant])

        def find_positions(condition: str, *parameters: object) -> list[tuple[Position, str]]:
            rest = f"{_FROM} WHERE {among.sql} AND {condition}"
            found = select_rows(connection, ("l.sort", "l.id", _RESTS_AT), rest, (*among.parameters, *parameters))
            return [((sort, letter), place) for sort, letter, place in found]

        due = sorted({entry_keys.parse_source(name).due_at_ms for name in names if not is_location(name)})
        found = find_positions(f"l.sort IN {_GIVEN} AND {_NAME} IN {_GIVEN}", bind_ids(due), bind_ids(names)) if due else []
        if places := set(filter(is_location, names)):
            numbers = dict(connection.execute("SELECT name, number FROM topics").fetchall())
            logs = [parse_location(place) for place in sorted(places)]
            at_rest = [
                build_resting_place(LogPlace(numbers[log.topic], log.partition, log.offset))
                for log in logs
                if log.topic in numbers
            ]
            found += (there := find_positions(f"l.place IN {_GIVEN}", bind_ids(at_rest)))
            if failed_at := places - {place for _, place in there}:
                # No index has the offsets at which letters failed: all are walked over.
                offsets = bind_ids({log.offset for log in logs})
                found += find_positions(f'l."offset" IN {_GIVEN} AND {_FAILED_AT} IN {_GIVEN}', offsets, bind_ids(failed_at))
        return sorted({position for position, _ in found})


def _state(state: str) -> Filter:
    return Term("state", "", make_glob([state]))


def _load_by_id(connection: Connection, columns: Sequence[str], rest: str, ids: Iterable[int]) -> dict[int, list[Any]]:
    return {row[0]: row for row in select_rows(connection, columns, f"{rest} IN {_GIVEN}", (bind_ids(ids),))}


def _load_places(connection: Connection, positions: Sequence[Position]) -> list[_Place]:
    letters = [letter for _, letter in positions]
    rows = _load_by_id(connection, _PLACE, f"{_FROM} WHERE l.id", letters)
    places = list[_Place]()
    for letter in letters:
        _, log, log_partition, log_offset, due_ms, *failed_at, size = rows[letter]
        source = None if due_ms is None else Source(due_ms, *failed_at)
        places.append(_Place(LogRecord(log, log_partition, log_offset), source, size))
    return places


def _open_rows(record: Message) -> dict[Source, tuple[bytes, bytes]]:
    """Entries of a changelog record by their sources; none where it has become a delete."""
    key, value = record.key() or b"", record.value()
    if value is None:
        return {}
    try:
        rows = blocks.read_rows(key, value)
    except EntryUnreadable:
        # It was told when it was folded.
        return {}
    return {entry_keys.read_source(each): (each, envelope) for each, envelope in rows if envelope is not None}
