"""The letters of a selection for a preview: the replica says which they are, and Kafka has their records.

Only these records are read, so that the preview of one letter among millions takes a moment. What the replica does not know
yet is no part of the action, as little as what comes later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property, partial
from sqlite3 import Connection

from retry import clock
from retry.console.folding.letter_record import LogPlace, resting_place
from retry.console.folding.sql import bind_ids, select_rows
from retry.console.reading.letter_search import Position, build_scope_condition
from retry.console.reading.letters import LogRecord
from retry.console.reading.payloads import Payloads, without_payload
from retry.console.rows import LetterRow, Scope
from retry.delay_queue import blocks, entry_keys
from retry.errors import ActionRefused, EntryUnreadable
from retry.kafka.interface import Message
from retry.kafka.record_fetch import UNREADABLE
from retry.operations.act.choose import WaitingRow
from retry.operations.act.selection import RESTING, Selection
from retry.operations.explain.search import is_location, parse_location
from retry.operations.found_letter import FoundLetter, make_parked_letter
from retry.operations.letter_filter.syntax import Filter, Term, all_of, any_of, glob
from retry.operations.listing import Listing, ReturnedRecords

# Records of so many letters, or of so many bytes, are asked for at once, and held in memory meanwhile.
_BATCH, _BATCH_BYTES, _FETCH_S, _PROVE_S = 10_000, 64 << 20, 60.0, 30.0
_WAITING = frozenset({"waiting"})
_FAILED_AT = "c.topic || '/' || l.partition || '/' || l.\"offset\""
_NAME, _RESTS_AT = f"l.due_ms || '/' || {_FAILED_AT}", "t.name || '/' || l.log_partition || '/' || l.log_offset"
_GIVEN = "(SELECT value FROM json_each(?))"
_FROM = "FROM letters l JOIN cells c ON c.id = l.cell JOIN topics t ON t.number = l.log"


class SelectedLetters:
    """The letters of one selection, each read from the place where the replica says it lies; a `LetterSource`.

    Args:
      listing: looks up whether a letter that says so was parked by reference.
      scope: the teams whose letters are looked at; None for all.
      note_progress: is called with how many letters were read; raises what ends it.
    """

    def __init__(
        self, payloads: Payloads, listing: Listing, selection: Selection, scope: Scope, shards: int,
        note_progress: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._payloads, self._listing, self._selection, self._scope = payloads, listing, selection, scope
        self.shards, self.gone, self._read, self._note_progress = shards, 0, 0, note_progress

    def iterate_waiting(self) -> Iterator[WaitingRow]:
        for batch, records in self._iterate_batches(_WAITING & self._selection.states):
            # Letters of one block have one record.
            opened = {place: _open_rows(record) for place, record in records.items() if record is not None}
            for letter, place in batch:
                if (row := opened.get(place, {}).get(letter.name)) is not None:
                    yield WaitingRow(place.partition, *row)

    def iterate_resting(self) -> Iterator[FoundLetter]:
        deadline, discarded = clock.Deadline(_PROVE_S), self._listing.cluster.names.discarded
        for batch, records in self._iterate_batches(self._selection.states & frozenset(RESTING)):
            found = [record for _, place in batch if (record := records[place]) is not None]
            registry = self._listing.registry
            letters = [make_parked_letter(each, registry, discarded=each.topic() == discarded) for each in found]
            self._listing.prove_references(letters, deadline)
            yield from letters

    @cached_property
    def returned(self) -> ReturnedRecords:
        # A block of them is asked for once, and not for each of its letters.
        return ReturnedRecords(self._listing.cluster, cache(self._payloads.find_returned_bitmap))

    def _iterate_batches(
        self, states: frozenset[str]
    ) -> Iterator[tuple[list[tuple[LetterRow, LogRecord]], Mapping[LogRecord, Message | None]]]:
        """Letters in these states with their records; None for a record that is gone."""
        for batch in self._iterate_candidates(states) if states else ():
            places = list(dict.fromkeys(place for _, place in batch))
            answers = self._payloads.fetch_selected(places, _FETCH_S)
            if unread := sum(answers.get(place, UNREADABLE) == UNREADABLE for place in places):
                raise ActionRefused(
                    f"{unread:,} records could not be read: no broker answered in time, or the right to read their topics is"
                    " missing; ask again, or see `retry acls`"
                )
            records = {place: None if isinstance(found := answers[place], str) else found for place in places}
            self.gone += sum(records[place] is None for _, place in batch)
            self._read += len(batch)
            self._note_progress(self._read)
            yield batch, records

    def _iterate_candidates(self, states: frozenset[str]) -> Iterator[list[tuple[LetterRow, LogRecord]]]:
        if self._selection.names:
            find = partial(_find_named, scope=self._scope, states=states, selection=self._selection)
            yield from self._payloads.load_named(find, _BATCH)
            return
        wanted = all_of([without_payload(self._selection.letter_filter), any_of([_state(each) for each in sorted(states)])])
        batches = self._payloads.iterate_candidates(
            self._scope, wanted, None, clock.wall_ms(), letters_max=_BATCH, bytes_max=_BATCH_BYTES
        )
        for batch, _ in batches:
            yield [(row, record) for _, row, record in batch]


def _state(state: str) -> Filter:
    return Term("state", "", glob([state]))


def _open_rows(record: Message) -> dict[str, tuple[bytes, bytes]]:
    """Entries of a changelog record by the names of their letters; none where it has become a delete."""
    key, value = record.key() or b"", record.value()
    if value is None:
        return {}
    try:
        rows = blocks.read_rows(key, value)
    except EntryUnreadable:
        # It was told when it was folded.
        return {}
    return {str(entry_keys.source(each)): (each, envelope) for each, envelope in rows if envelope is not None}


def _find_named(connection: Connection, *, scope: Scope, states: frozenset[str], selection: Selection) -> list[Position]:
    """The letters that are named by due time and where they failed, by where they rest, or only by where they failed."""
    among = build_scope_condition(scope, states)

    def find_positions(condition: str, *parameters: object) -> list[tuple[Position, str]]:
        rest = f"{_FROM} WHERE {among.sql} AND {condition}"
        found = select_rows(connection, ("l.sort", "l.id", _RESTS_AT), rest, (*among.parameters, *parameters))
        return [((sort, letter), place) for sort, letter, place in found]

    due = sorted({entry_keys.source_from_text(name).due_at_ms for name in selection.names if not is_location(name)})
    found = find_positions(f"l.sort IN {_GIVEN} AND {_NAME} IN {_GIVEN}", bind_ids(due), bind_ids(selection.names)) if due else []
    if places := set(filter(is_location, selection.names)):
        numbers = dict(connection.execute("SELECT name, number FROM topics").fetchall())
        logs = [parse_location(place) for place in sorted(places)]
        at_rest = [resting_place(LogPlace(numbers[log.topic], log.partition, log.offset)) for log in logs if log.topic in numbers]
        found += (there := find_positions(f"l.place IN {_GIVEN}", bind_ids(at_rest)))
        if failed_at := places - {place for _, place in there}:
            # No index has the offsets at which letters failed: all are walked over.
            offsets = bind_ids({log.offset for log in logs})
            found += find_positions(f'l."offset" IN {_GIVEN} AND {_FAILED_AT} IN {_GIVEN}', offsets, bind_ids(failed_at))
    return sorted({position for position, _ in found})
