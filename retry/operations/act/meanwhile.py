"""New failures while an action runs: letters like those that it is about, whose first failure was after it was asked for."""

from __future__ import annotations

from retry.delay_queue.action_records import Action
from retry.errors import FilterInvalid
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import EVERYTHING, AllOf, Filter, Not, Term, all_of, any_of
from retry.operations.letters.listing import Cursor, Listing


def like_these(action: Action, now_ms: int, *, groups: bool = False) -> Filter | None:
    """Build the filter of new failures like the letters of an action, in any state; None where its filter cannot be parsed.

    Args:
      groups: as for `parse`.
    """
    try:
        meant = without_state(parse(action.filter, groups=groups))
    except FilterInvalid:
        return None
    return all_of([meant, parse(f"age:<{max(0, now_ms - action.asked_at_ms)}ms")])


def count_arrived(listing: Listing, action: Action, now_ms: int) -> int | None:
    """Count the new failures that wait or are parked now, which the action leaves alone; None where its filter cannot be parsed.

    Raises:
      TopicsInvalid: a topic is missing, or cannot be read.
    """
    meant = like_these(action, now_ms)
    if meant is None:
        return None
    return sum(not action.teams or (letter.team or "") in action.teams for letter in listing.find_letters(meant, Cursor()))


def without_state(meant: Filter) -> Filter:
    """Remove what a filter says about states: a new failure waits, also where the filter is of parked letters.

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
