"""New failures while an action runs: letters like those that it is about, whose first failure was after it was asked for."""

from __future__ import annotations

from retry.console.replica.replica import Replica
from retry.console.replica.rows import LetterRow, Page, Scope
from retry.console.web.filters import asks_payload
from retry.errors import FilterInvalid
from retry.operations.act.overview import ActionOverview
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import EVERYTHING, AllOf, Filter, Not, Term, all_of, any_of


def new_failures(replica: Replica, scope: Scope, about: ActionOverview, now_ms: int) -> Page[LetterRow] | None:
    """How many there are, as the count of a page; None where the action does not say by a filter what it is about.

    Raises:
      RebuildInProgress: the replica is not there yet.
    """
    try:
        meant = without_state(parse(about.action.filter))
    except FilterInvalid:
        return None
    if asks_payload(meant):
        return None
    teams = frozenset(about.action.teams) if about.action.teams else scope
    since = parse(f"age:<{max(0, now_ms - about.action.asked_at_ms)}ms")
    return replica.letters(teams, all_of([meant, since]), None, 1)


def without_state(meant: Filter) -> Filter:
    """The same of letters in whichever state: a new failure waits, also where parked ones were meant.

    >>> str(without_state(parse("team:a -state:parked (state:waiting or key:1)")))
    'team:a'
    """
    if isinstance(meant, Term):
        return EVERYTHING if meant.field == "state" else meant
    if isinstance(meant, Not):
        return EVERYTHING if without_state(meant.of) != meant.of else meant
    parts = [without_state(each) for each in meant.of]
    if isinstance(meant, AllOf):
        return all_of(parts)
    return EVERYTHING if EVERYTHING in parts else any_of(parts)
