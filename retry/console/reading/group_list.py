"""The list of failures: which groups it has, in which order, and what is counted beside it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from retry.console.folding.attempts import HOUR_MS
from retry.console.folding.sql import select_column
from retry.console.reading import group_order, letters, lookalikes
from retry.console.reading.facets import Facet, count_facets
from retry.console.reading.group_order import MOST_LETTERS, READ_COLUMNS, Keys, Order, Place
from retry.console.reading.group_states import FailureTimes, read_resolutions, read_times
from retry.console.reading.groups import HOURS, CellCount, CountedGroup, build_group, read_cell_groups, sum_by_group
from retry.console.reading.letter_search import LetterSearch
from retry.console.reading.lists import select_teams
from retry.console.reading.lookalikes import Lookalike
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
    by_cell, is_partial = LetterSearch(connection, query.scope, query.letter_filter, now_ms).by_cell()
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
        lookalikes=lookalikes.find_lookalikes(connection, query.scope, listed.groups.values()) if query.counts_beside else (),
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
