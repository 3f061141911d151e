"""The list of failures: which groups it has, in which order, what is counted beside it, and which two may be one failure.

Messages are compared word by word, without what stands for numbers and ids and without punctuation. Of the other words at least
four of five must be the same, in the same order. A word with a digit is an error code, which was left in the message because it
tells failures apart: where these differ nothing is alike. Only people merge groups.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache
from heapq import nlargest
from itertools import combinations
from typing import NamedTuple

import orjson

from retry.console.folding import notes
from retry.console.folding.attempts import HOUR_MS
from retry.console.folding.sql import bind_ids, select_column, select_rows
from retry.console.reading import group_order, letters
from retry.console.reading.facets import Facet, count_facets
from retry.console.reading.group_order import MOST_LETTERS, READ_COLUMNS, Keys, Order, Place
from retry.console.reading.groups import (
    FAILED_CELLS,
    HOURS,
    CellCount,
    CountedGroup,
    FailureTimes,
    build_group,
    read_cell_groups,
    read_resolutions,
    read_times,
    sum_by_group,
)
from retry.console.reading.letter_search import LetterSearch
from retry.console.reading.lists import select_teams
from retry.console.rows import COUNT_MAX, FailureState, Group, Page, Scope
from retry.operations.letter_filter.syntax import EVERYTHING, Filter

# Besides one state alone: all but those that are resolved.
OPEN = "open"
SHOWN = (OPEN, *FailureState)


class GroupsQuery(NamedTuple):
    """One question for a page of the list: groups with letters that the filter means, one of `SHOWN`, behind the cursor `after`.

    Attributes:
      counts_beside: whether facets are counted and lookalikes looked for; None and none where they are not.
    """

    scope: Scope
    letter_filter: Filter
    show: str = OPEN
    order: Order = MOST_LETTERS
    after: str | None = None
    limit: int = 50
    counts_beside: bool = True

    def __str__(self) -> str:
        return f"groups {self.letter_filter} {self.show} {self.order} {None if self.scope is None else sorted(self.scope)}"

    def lists(self, state: FailureState) -> bool:
        return state == self.show or (self.show == OPEN and state is not FailureState.RESOLVED)


@dataclass(frozen=True, slots=True)
class GroupPage(Page[Group]):
    """A page of groups, and what is counted beside it.

    Attributes:
      states: how many groups are in each state, of those that have letters that the filter means.
      waiting, parked: letters of all groups of the list, on whichever page; `facets` counts the same, None where time ran out.
    """

    states: Mapping[FailureState, int] = field(default_factory=dict)
    waiting: int = 0
    parked: int = 0
    facets: tuple[Facet, ...] | None = ()
    lookalikes: tuple[Lookalike, ...] = ()


class _Listed(NamedTuple):
    """Counted groups by id, with their states and times."""

    groups: Mapping[str, CountedGroup]
    states: Mapping[str, FailureState]
    times: Mapping[str, FailureTimes]


def list_groups(connection: sqlite3.Connection, file_id: str, query: GroupsQuery, now_ms: int) -> GroupPage:
    """Return one page of groups of failures; see `Replica.list_groups`."""
    after = letters.unpack_cursor(file_id, str(query), query.after, group_order.decode_place) if query.after else None
    by_cell, is_partial = LetterSearch(connection, query.scope, query.letter_filter, now_ms).count_by_cell()
    cells = read_cell_groups(connection, by_cell)
    counted = sum_by_group(cells)
    if query.letter_filter == EVERYTHING:
        counted += _list_without_letters(connection, query.scope, {each.id for each in counted}, now_ms)
    resolutions, times = read_resolutions(connection), read_times(connection, query.scope)
    states = {each.id: resolutions.state_of(each.id, times.get(each.id, FailureTimes()).first_ms, now_ms) for each in counted}
    listed = _Listed({each.id: each for each in counted if query.lists(states[each.id])}, states, times)
    places = query.order.sort_places(listed.groups, _read_keys(connection, query, listed, now_ms))
    begin = 0 if after is None else query.order.find_begin(places, Place(*after))
    shown = places[begin : begin + query.limit]
    following = shown[-1] if shown and begin + query.limit < len(places) else None
    return GroupPage(
        [build_group(connection, query.scope, listed.groups[each.id], now_ms, resolutions) for each in shown],
        letters.encode_cursor(file_id, str(query), following), min(len(places), COUNT_MAX), is_partial, None, is_partial,
        states=Counter(states.values()), waiting=sum(each.waiting for each in listed.groups.values()),
        parked=sum(each.parked for each in listed.groups.values()),
        facets=count_facets(connection, _count_listed(cells, listed)) if query.counts_beside else None,
        lookalikes=find_lookalikes(connection, query.scope, listed.groups.values()) if query.counts_beside else (),
    )  # fmt: skip


def _count_listed(cells: Iterable[CellCount], listed: _Listed) -> dict[int, int]:
    """Return how many letters of the list's groups are meant, by their cell."""
    return {each.cell: each.letters for each in cells if each.group in listed.groups}


def _read_keys(connection: sqlite3.Connection, query: GroupsQuery, listed: _Listed, now_ms: int) -> Keys:
    column = query.order.column
    if column in READ_COLUMNS:
        return group_order.read_keys(connection, query.scope, column, now_ms)
    if column == "state":
        return {group: listed.states[group].rank for group in listed.groups}
    if column == "last":
        return {group: listed.times.get(group, FailureTimes()).last_ms for group in listed.groups}
    return {group: getattr(each, column) for group, each in listed.groups.items()}


def _list_without_letters(connection: sqlite3.Connection, scope: Scope, known: set[str], now_ms: int) -> list[CountedGroup]:
    """Groups whose letters have all gone, and that failed within a day: whether they come back is seen there."""
    in_scope, teams = select_teams(scope)
    rest = f"FROM outcome_cells WHERE last_ms >= ? AND group_id IS NOT NULL{in_scope}"
    found = select_column(connection, "group_id", rest, (now_ms - HOURS * HOUR_MS, *teams))
    return [CountedGroup(group, 0, 0) for group in {*found} - known]


# So many groups are compared, those with most letters, and of each class so many: at most 120 pairs of a class.
_GROUPS_MAX, _OF_CLASS_MAX, _FOUND_MAX = 200, 16, 3
_WORDS_MAX = 60
_ALIKE = 0.8
_WORD = re.compile(r"\w+")


class Similar(NamedTuple):
    id: str
    message: str | None
    letters: int
    teams: tuple[str, ...]


class Lookalike(NamedTuple):
    """Two groups of one class that may be one failure; `into` has more letters."""

    cause: str
    into: Similar
    other: Similar


def find_lookalikes(connection: sqlite3.Connection, scope: Scope, counted: Iterable[CountedGroup]) -> tuple[Lookalike, ...]:
    """Find pairs among groups, those with most letters first; pairs of which somebody said that they differ are left out."""
    most = nlargest(_GROUPS_MAX, counted, key=lambda each: (each.letters, each.id))
    by_class: defaultdict[str, list[Similar]] = defaultdict(list)
    for cause, each in _read_messages(connection, scope, most):
        if len(by_class[cause]) < _OF_CLASS_MAX:
            by_class[cause].append(each)
    apart = {key for key, _ in notes.list_notes(connection, notes.APART)}
    found = [
        Lookalike(cause, into, other)
        for cause, similar in by_class.items() for into, other in combinations(similar, 2)
        if is_near(into.message, other.message) and notes.build_apart_key(into.id, other.id) not in apart
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda each: -each.other.letters)[:_FOUND_MAX])


# Of the same pairs the same is asked every two seconds.
@lru_cache(4_096)
def is_near(one: str | None, other: str | None) -> bool:
    """Whether two messages, as `retry.telemetry.fingerprint.in_common` has them, may be of one failure.

    >>> is_near("posting # failed", "posting #: failed"), is_near("HTTP status 503", "HTTP status 404")
    (True, False)
    """
    words, others = _split_words(one), _split_words(other)
    if not words or not others or _list_codes(words) != _list_codes(others):
        return False
    matcher = SequenceMatcher(None, words, others, autojunk=False)
    return matcher.real_quick_ratio() >= _ALIKE and matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE


def _split_words(message: str | None) -> list[str]:
    return _WORD.findall((message or "").casefold())[:_WORDS_MAX]


def _list_codes(words: Collection[str]) -> list[str]:
    return [word for word in words if any(char.isdigit() for char in word)]


def _read_messages(connection: sqlite3.Connection, scope: Scope, groups: Iterable[CountedGroup]) -> Iterator[tuple[str, Similar]]:
    letters = {each.id: each.letters for each in groups}
    in_scope, teams = select_teams(scope)
    # Of a row with `max` SQLite gives the other columns of the row that has it.
    rows = select_rows(
        connection, ("group_id", "coalesce(cause, exception)", "common", "json_group_array(DISTINCT team)", "max(letters)"),
        f"FROM cells WHERE {FAILED_CELLS} AND group_id IN (SELECT value FROM json_each(?)){in_scope} GROUP BY group_id",
        (bind_ids(letters), *teams),
    )  # fmt: skip
    for group, cause, message, of_teams, _ in sorted(rows, key=lambda row: (-letters[row[0]], row[0])):
        if cause:
            yield cause, Similar(group, message, letters[group], tuple(sorted(filter(None, orjson.loads(of_teams)))))
