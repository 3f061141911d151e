"""The orders that failures are listed in: by each column, either way; and where a page of one goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from retry.console.folding import notes
from retry.console.folding.attempts import HOUR_MS
from retry.console.folding.sql import select_rows
from retry.console.reading.groups import FAILED_CELLS, HOURS
from retry.console.reading.lists import select_teams
from retry.console.rows import Scope
from retry.errors import CursorStale

# So many characters of a text decide its place; of texts that begin alike the ids of their groups decide.
_TEXT_CHARS_MAX = 60
Key = int | float | str
Keys = Mapping[str, Key | None]


class Place(NamedTuple):
    """The place of a group in a list, which a cursor holds; with `is_unknown` it comes last, whichever way."""

    is_unknown: bool
    key: Key
    id: str


class Order(NamedTuple):
    """A column to order by, one of `COLUMNS`, and which way."""

    column: str
    is_descending: bool

    def __str__(self) -> str:
        return f"{'-' if self.is_descending else ''}{self.column}"

    def sort_places(self, groups: Iterable[str], keys: Keys) -> list[Place]:
        """Build the places of groups, in this order."""
        found = [Place(keys.get(group) is None, _fold_key(keys.get(group)), group) for group in groups]
        # Sorting keeps the order of what is equal, so that it goes by id either way.
        known = sorted((each for each in found if not each.is_unknown), key=lambda each: each.id)
        known.sort(key=lambda each: each.key, reverse=self.is_descending)
        return known + sorted((each for each in found if each.is_unknown), key=lambda each: each.id)

    def find_begin(self, places: list[Place], last: Place) -> int:
        """Find where a page begins behind the last row of another, which may be gone; raises CursorStale where the order differs.
        """
        if any(isinstance(each.key, str) != isinstance(last.key, str) for each in places[:1] if not last.is_unknown):
            raise CursorStale
        return next((n for n, each in enumerate(places) if self._comes_after(each, last)), len(places))

    def _comes_after(self, each: Place, last: Place) -> bool:
        if each.is_unknown != last.is_unknown:
            return each.is_unknown
        if each.key != last.key:
            return (each.key < last.key) == self.is_descending  # type: ignore[operator]
        return each.id > last.id


MOST_LETTERS = Order("letters", True)
# Columns, and which way each goes when it is chosen: texts from A on, figures and times from the greatest on.
COLUMNS: Mapping[str, Order] = {
    each.column: each for each in (
        MOST_LETTERS, Order("failure", False), Order("state", False), Order("team", False), Order("consumer-group", False),
        Order("day", True), Order("waiting", True), Order("parked", True), Order("recovered", False), Order("last", True),
        Order("owner", False),
    )
}  # fmt: skip
# The columns whose keys are read from the file; those of the others are known when the list is.
READ_COLUMNS = frozenset({"failure", "team", "consumer-group", "day", "recovered", "owner"})
decode_place = msgspec.msgpack.Decoder(tuple[str, bool, int | float | str, str]).decode


def parse_order(text: str) -> Order | None:
    """Parse an order as addresses have it, `team` or `-last`; None where there is no such column."""
    column = text.removeprefix("-")
    return Order(column, text.startswith("-")) if column in COLUMNS else None


def read_keys(connection: sqlite3.Connection, scope: Scope, column: str, now_ms: int) -> Keys:
    """Read by what each group is ordered in one of `READ_COLUMNS`, in one query for all groups."""
    if column == "owner":
        return _read_owners(connection, scope)
    columns, rest, values = _QUERIES[column](scope, now_ms)
    return {row[0]: row[1] for row in select_rows(connection, columns, rest, values)}


def _fold_key(key: Key | None) -> Key:
    if key is None:
        return ""
    return key.casefold()[:_TEXT_CHARS_MAX] if isinstance(key, str) else key


def _read_owners(connection: sqlite3.Connection, scope: Scope) -> Keys:
    found = ((key.removeprefix(notes.NOTE), notes.note(value)) for key, value in notes.list_notes(connection, notes.NOTE))
    return {group: note.owner for group, note in found if note.owner and note.is_for(scope)}


_Query = tuple[tuple[str, ...], str, tuple[object, ...]]


def _query_least(column: str) -> Callable[[Scope, int], _Query]:
    """Build the query for the first name of a column that letters and outcomes of each group have."""

    def build(scope: Scope, _now_ms: int) -> _Query:
        in_scope, teams = select_teams(scope)
        rest = (
            f"FROM (SELECT group_id, {column} AS name FROM cells WHERE {FAILED_CELLS}{in_scope} UNION ALL"
            f" SELECT group_id, {column} FROM outcome_cells WHERE group_id IS NOT NULL{in_scope})"
            " WHERE name != '' GROUP BY group_id"
        )
        return ("group_id", "min(name)"), rest, (*teams, *teams)

    return build


def _query_failures(scope: Scope, _now_ms: int) -> _Query:
    """Class and message as a row shows them: those of the cell with most letters."""
    in_scope, teams = select_teams(scope)
    rest = (
        "FROM (SELECT group_id, coalesce(cause, exception) || ' ' || coalesce(common, '') AS text, letters FROM cells"
        f" WHERE {FAILED_CELLS}{in_scope} UNION ALL"
        f" SELECT group_id, cause, -1 FROM outcome_cells WHERE group_id IS NOT NULL{in_scope})"
        " WHERE text IS NOT NULL GROUP BY group_id"
    )
    return ("group_id", "text", "max(letters)"), rest, (*teams, *teams)


def _query_hours(figure: str, having: str) -> Callable[[Scope, int], _Query]:
    def build(scope: Scope, now_ms: int) -> _Query:
        in_scope, teams = select_teams(scope)
        rest = (
            "FROM outcome_hours h INDEXED BY outcome_hours_by_time CROSS JOIN outcome_cells ON id = h.cell"
            f" WHERE h.hour >= ? AND group_id IS NOT NULL{in_scope} GROUP BY group_id HAVING {having} > 0"
        )
        return ("group_id", figure), rest, (now_ms // HOUR_MS - HOURS + 1, *teams)

    return build


_QUERIES: Mapping[str, Callable[[Scope, int], _Query]] = {
    "failure": _query_failures, "team": _query_least("team"), "consumer-group": _query_least("consumer_group"),
    "day": _query_hours("sum(h.failed)", "sum(h.failed)"),
    "recovered": _query_hours("1.0 * (sum(h.sent) - sum(h.came_back)) / sum(h.sent)", "sum(h.sent)"),
}  # fmt: skip
