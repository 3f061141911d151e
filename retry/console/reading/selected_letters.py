"""The letters of a selection for a preview: the replica says which they are, and of most of them what an action makes.

Kafka has the records of the others: of those that are shown as examples, of those of which only their bytes tell whether they are
meant, or what becomes of them, and of those that rest. So a preview of many letters takes a moment. What the replica does not
know yet is no part of the action, as little as what comes later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from operator import itemgetter
from sqlite3 import Connection
from typing import Any, NamedTuple

from retry import clock
from retry.console.folding.letter_record import LogPlace, resting_place
from retry.console.folding.sql import bind_ids, select_rows
from retry.console.reading import filter_sql
from retry.console.reading.letter_search import Position, apply_regrouping, build_scope_condition
from retry.console.reading.letters import LogRecord
from retry.console.reading.payloads import Payloads, split_by_bytes, without_payload
from retry.console.rows import Scope
from retry.delay_queue import blocks, entry_keys
from retry.delay_queue.entry_keys import Source
from retry.delivery.acted_entry import Refusal
from retry.delivery.foreseen_acts import Foreseen, KnownEntry
from retry.errors import ActionRefused, EntryUnreadable
from retry.kafka.interface import Message
from retry.kafka.record_fetch import UNREADABLE
from retry.operations.act.choose import EXAMPLES_MAX
from retry.operations.act.letter_sources import CountedLetter, Foresee, ForeseenRow, WaitingRow
from retry.operations.act.selection import RESTING, Selection
from retry.operations.explain.search import is_location, parse_location
from retry.operations.found_letter import FoundLetter, make_parked_letter
from retry.operations.letter_filter.syntax import Filter, Term, all_of, any_of, glob
from retry.operations.listing import Listing, ReturnedRecords

# So many letters are looked up at once; so many bytes of records are asked for at once, and held in memory meanwhile.
_BATCH, _BATCH_BYTES, _FETCH_S, _PROVE_S = 10_000, 64 << 20, 60.0, 30.0
_WAITING = frozenset({"waiting"})
_FAILED_AT = "c.topic || '/' || l.partition || '/' || l.\"offset\""
_NAME, _RESTS_AT = f"l.due_ms || '/' || {_FAILED_AT}", "t.name || '/' || l.log_partition || '/' || l.log_offset"
_GIVEN = "(SELECT value FROM json_each(?))"
_FROM = "FROM letters l JOIN cells c ON c.id = l.cell JOIN topics t ON t.number = l.log"
_COLUMNS = (
    "l.sort", "l.id", "t.name", "l.log_partition", "l.log_offset", "l.due_ms", "c.topic", "l.partition", 'l."offset"', "l.size",
    "hex(l.entry_key)", "c.team", "c.target", "c.exception", "c.reason", "l.first_failed_ms", "l.key", "hex(l.key_bytes)",
    "c.attempt", "l.lineage IS NOT NULL",
)  # fmt: skip


class _SelectedRow(NamedTuple):
    """A letter as the replica has it.

    Attributes:
      place: of its record.
      source: of its entry; None of one that rests.
      size: of key, value and headers together.
      entry: None where the row does not tell what an action makes of it.
    """

    place: LogRecord
    source: Source | None
    size: int
    letter: CountedLetter
    entry: KnownEntry | None


_Records = Mapping[LogRecord, Message | None]


class SelectedLetters:
    """The letters of one selection, as the replica has them or read from the place where it says they lie; a `LetterSource`.

    Args:
      listing: looks up whether a letter that says so was parked by reference.
      scope: the teams whose letters are looked at; None for all.
      now_ms: as of when the selection is meant.
      note_progress: is called with how many letters were looked at; raises what ends it.

    Attributes:
      foreseen: how many letters were counted without their records.
    """

    def __init__(
        self, payloads: Payloads, listing: Listing, selection: Selection, *, scope: Scope, shards: int, now_ms: int,
        note_progress: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._payloads, self._listing, self._selection, self._scope = payloads, listing, selection, scope
        self._now_ms, self._note_progress = now_ms, note_progress
        self.shards, self.gone, self.foreseen, self._looked_at = shards, 0, 0, 0

    def iterate_waiting(self, foresee: Foresee) -> Iterator[WaitingRow | ForeseenRow]:
        examples, is_decided = EXAMPLES_MAX, not filter_sql.asks_payload(self._selection.letter_filter)
        for page in self._iterate_pages(_WAITING & self._selection.states):
            results: list[Refusal | Foreseen] = [
                foresee(row.entry) if is_decided and row.entry is not None else Foreseen.UNKNOWN for row in page
            ]
            shown = [n for n, result in enumerate(results) if result is Foreseen.DONE][:examples]
            examples -= len(shown)
            for n in shown:
                results[n] = Foreseen.UNKNOWN
            unknown = [row for row, result in zip(page, results, strict=True) if result is Foreseen.UNKNOWN]
            opened = self._iterate_opened(unknown)
            for row, result in zip(page, results, strict=True):
                if result is Foreseen.UNKNOWN:
                    yield from next(opened)
                elif row.entry is not None:
                    self.foreseen += 1
                    refusal = result if isinstance(result, Refusal) else None
                    yield ForeseenRow(row.place.partition, row.entry.key, row.letter, refusal)
            if len(unknown) < len(page):
                self._note(len(page) - len(unknown))

    def iterate_resting(self) -> Iterator[FoundLetter]:
        deadline, discarded = clock.Deadline(_PROVE_S), self._listing.cluster.names.discarded
        for page in self._iterate_pages(self._selection.states & frozenset(RESTING)):
            for batch, records in self._iterate_read(page):
                found = [record for row in batch if (record := records[row.place]) is not None]
                registry = self._listing.registry
                letters = [make_parked_letter(each, registry, discarded=each.topic() == discarded) for each in found]
                self._listing.prove_references(letters, deadline)
                yield from letters

    @cached_property
    def returned(self) -> ReturnedRecords:
        # A block of them is asked for once, and not for each of its letters.
        return ReturnedRecords(self._listing.cluster, cache(self._payloads.find_returned_bitmap))

    def _iterate_opened(self, rows: Sequence[_SelectedRow]) -> Iterator[list[WaitingRow]]:
        """Each of these letters with its envelope; an empty list for one that is gone, or is another one by now."""
        for batch, records in self._iterate_read(rows):
            # Letters of one block have one record.
            opened = {place: _open_rows(record) for place, record in records.items() if record is not None}
            for row in batch:
                found = None if row.source is None else opened.get(row.place, {}).get(row.source)
                yield [] if found is None else [WaitingRow(row.place.partition, *found)]

    def _iterate_read(self, rows: Sequence[_SelectedRow]) -> Iterator[tuple[list[_SelectedRow], _Records]]:
        """Letters with their records, some at a time; None for a record that is gone."""
        for batch in split_by_bytes(rows, lambda row: row.size, _BATCH_BYTES):
            places = list(dict.fromkeys(row.place for row in batch))
            answers = self._payloads.fetch_selected(places, _FETCH_S)
            if unread := sum(answers.get(place, UNREADABLE) == UNREADABLE for place in places):
                raise ActionRefused(
                    f"{unread:,} records could not be read: no broker answered in time, or the right to read their topics is"
                    " missing; ask again, or see `retry acls`"
                )
            records = {place: None if isinstance(found := answers[place], str) else found for place in places}
            self.gone += sum(records[row.place] is None for row in batch)
            self._note(len(batch))
            yield batch, records

    def _note(self, letters: int) -> None:
        self._looked_at += letters
        self._note_progress(self._looked_at)

    def _iterate_pages(self, states: frozenset[str]) -> Iterator[list[_SelectedRow]]:
        if not states:
            return
        cheap = without_payload(self._selection.letter_filter)
        if self._selection.names:
            find = partial(self._find_named, states=states, cheap=cheap)
            yield self._payloads.load_found(find, _load_rows)
            return
        wanted = all_of([cheap, any_of([_state(each) for each in sorted(states)])])
        pages = self._payloads.iterate_pages(self._scope, wanted, None, self._now_ms, load=_load_rows, letters_max=_BATCH)
        for _, rows, _ in pages:
            yield rows

    def _find_named(self, connection: Connection, *, states: frozenset[str], cheap: Filter) -> list[Position]:
        """The letters that are named by due time and where they failed, by where they rest, or only by where they failed."""
        names = self._selection.names
        meant = filter_sql.condition(apply_regrouping(connection, cheap), self._now_ms)
        among = filter_sql.join_conditions("AND", [build_scope_condition(self._scope, states), meant])

        def find_positions(condition: str, *parameters: object) -> list[tuple[Position, str]]:
            rest = f"{_FROM} WHERE {among.sql} AND {condition}"
            found = select_rows(connection, ("l.sort", "l.id", _RESTS_AT), rest, (*among.parameters, *parameters))
            return [((sort, letter), place) for sort, letter, place in found]

        due = sorted({entry_keys.source_from_text(name).due_at_ms for name in names if not is_location(name)})
        found = find_positions(f"l.sort IN {_GIVEN} AND {_NAME} IN {_GIVEN}", bind_ids(due), bind_ids(names)) if due else []
        if places := set(filter(is_location, names)):
            numbers = dict(connection.execute("SELECT name, number FROM topics").fetchall())
            logs = [parse_location(place) for place in sorted(places)]
            at_rest = [
                resting_place(LogPlace(numbers[log.topic], log.partition, log.offset)) for log in logs if log.topic in numbers
            ]
            found += (there := find_positions(f"l.place IN {_GIVEN}", bind_ids(at_rest)))
            if failed_at := places - {place for _, place in there}:
                # No index has the offsets at which letters failed: all are walked over.
                offsets = bind_ids({log.offset for log in logs})
                found += find_positions(f'l."offset" IN {_GIVEN} AND {_FAILED_AT} IN {_GIVEN}', offsets, bind_ids(failed_at))
        return sorted({position for position, _ in found})


def _state(state: str) -> Filter:
    return Term("state", "", glob([state]))


def _load_rows(connection: Connection, positions: Sequence[Position]) -> list[_SelectedRow]:
    rest = f"{_FROM} WHERE l.id IN {_GIVEN}"
    found = select_rows(connection, _COLUMNS, rest, (bind_ids(letter for _, letter in positions),))
    return [_build_row(row) for row in sorted(found, key=itemgetter(0, 1))]


def _build_row(row: Sequence[Any]) -> _SelectedRow:
    (
        _, _, log, log_partition, log_offset, due_ms, topic, partition, offset, size, entry_key, team, target, exception, reason,
        first_failed_ms, key, key_bytes, attempt, has_id,
    ) = row  # fmt: skip
    source = None if due_ms is None else Source(due_ms, topic, partition, offset)
    raw = bytes.fromhex(key_bytes) if key_bytes else None if key is None else key.encode()
    entry = None
    if entry_key:
        entry = KnownEntry(bytes.fromhex(entry_key), target, bool(reason is None and has_id and attempt), size)
    letter = CountedLetter(team, topic, target, exception, reason, first_failed_ms=first_failed_ms, key=raw)
    return _SelectedRow(LogRecord(log, log_partition, log_offset), source, size, letter, entry)


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
    return {entry_keys.source(each): (each, envelope) for each, envelope in rows if envelope is not None}
