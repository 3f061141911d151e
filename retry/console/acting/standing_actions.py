"""What the replica shows of actions, seconds old at most, and what pages of them need: who may act, waits, shards.

On top of every page stands a line while a ramp runs or is on hold: what became of its letters so far, and one button.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from starlette.routing import Route

from retry import clock
from retry.console.acting import api_answers
from retry.console.acting.previews import KeptPreview
from retry.console.reading import lists
from retry.console.reading.action_outcomes import SENDING_KINDS, ActionOutcome, SentOutcome
from retry.console.reading.replica import Replica
from retry.console.rows import LetterRow, Page, Scope
from retry.console.web.app import Console
from retry.console.web.filters import asks_payload
from retry.console.web.live import RAMPS
from retry.console.web.rights import Role, Sight, Viewer, demand_role
from retry.errors import RebuildInProgress, RetryError, WriteNotShown
from retry.operations.act.action_report import build_similar_filter
from retry.operations.act.overview import ActionOverview, set_failed_again
from retry.operations.control_requests import ShardNumbers


def list_recent_actions(replica: Replica, scope: Scope) -> list[ActionOverview]:
    """List the actions of the last 30 days that a scope may see, the newest first; raises RebuildInProgress."""
    return lists.list_visible_actions(replica.controls(), scope)


def find_action(replica: Replica, scope: Scope, action_id: str) -> ActionOverview | None:
    """Find an action that a scope may see, with its letters that failed again; raises RebuildInProgress."""
    about = next((each for each in list_recent_actions(replica, scope) if each.id.hex() == action_id), None)
    return None if about is None else add_failed(replica, about)


def add_failed(replica: Replica, about: ActionOverview) -> ActionOverview:
    """Add to a ramp how many letters of each step failed again."""
    return about if about.action.ramp is None else set_failed_again(about, replica.ramp_failed(about.id))


def load_outcome(replica: Replica, about: ActionOverview) -> ActionOutcome | None:
    """Count what became of the letters that an action has sent; None of an action after which none is sent."""
    return replica.load_outcome(about) if about.action.kind in SENDING_KINDS else None


# What runs or is on hold now, for whoever is about to act on letters of the same teams.

class OtherAction(NamedTuple):
    """An action that is not done, as pages show it.

    Attributes:
      step: of a ramp, which of its steps is open, from 1; None of other actions.
      is_same: whether its filter is the one that is asked about.
    """

    about: dict[str, Any]
    step: int | None
    is_same: bool


class OtherActions(NamedTuple):
    """The actions on letters of some teams that are not done; `hidden` counts those that a viewer may not see."""

    shown: list[OtherAction]
    hidden: int


def find_others(console: Console, scope: Scope, kept: KeptPreview, teams: Collection[str]) -> OtherActions:
    """Find actions under way on letters of these teams, those with the same filter first; raises RebuildInProgress.

    An action without teams may be about all, and so may be what is asked about.
    """
    shown, hidden = [], 0
    for each in list_recent_actions(console.replica, None):
        theirs = set(each.action.teams)
        if not each.is_under_way or each.id.hex() == kept.id:
            continue
        if theirs and teams and theirs.isdisjoint(teams):
            continue
        if lists.sees_action(scope, each.action):
            about = api_answers.about_object(each, console.clock_ms())
            shown.append(OtherAction(about, each.open_step, is_same=each.action.filter == kept.words))
        else:
            hidden += 1
    return OtherActions(sorted(shown, key=lambda each: not each.is_same), hidden)


# New failures while an action runs, as the replica counts them; see `retry.operations.act.action_report`.

def count_new_failures(replica: Replica, scope: Scope, about: ActionOverview, now_ms: int) -> Page[LetterRow] | None:
    """Count new failures of letters that an action means; None where no filter says which. Raises RebuildInProgress."""
    letter_filter = build_similar_filter(about.action, now_ms, groups=True)
    if letter_filter is None or asks_payload(letter_filter):
        return None
    return replica.list_letters(frozenset(about.action.teams) if about.action.teams else scope, letter_filter, None, 1)


# Which letters somebody may act on, and who may see what was asked of them: by the teams whose letters they are.

def demand_each(viewer: Viewer, role: Role, teams: Collection[str]) -> None:
    """Raise HTTPException without a role in each of these teams; an empty name is no known team, none at all is every team."""
    for team in teams or [""]:
        demand_role(viewer, role, team or None)


# Waits a moment for the replica to show what was just done, so that the page that follows does not show what was before.

WITHIN_S = 5.0
_POLL_S = 0.05


def await_shown(holds: Callable[[], bool]) -> None:
    """Return once it holds; raises WriteNotShown after five seconds: whoever looks next may see what was before."""
    deadline = clock.Deadline(WITHIN_S)
    try:
        while not holds():
            if deadline.has_passed():
                raise WriteNotShown
            clock.pause(_POLL_S)
    except RebuildInProgress:
        raise WriteNotShown from None


# The changelog's partitions, as what is done from the console needs them: asked anew each time, since they may have grown.

def load_shard_numbers(console: Console) -> ShardNumbers:
    """Ask for the partitions of the changelog; raises BrokersUnreachable, or TopicsInvalid where there is no changelog."""
    # Where the brokers were never there this says so at once.
    console.cluster()
    return ShardNumbers(console.settings)


log = logging.getLogger(__name__)

FRESH_S = 1.0
# More than these are told by their number.
_SHOWN_MAX = 3


class RampLine(NamedTuple):
    about: ActionOverview
    outcome: SentOutcome
    may: bool


class RampLines(NamedTuple):
    """The ramps that a viewer may see and that are not done: some of them, and how many more there are."""

    shown: list[RampLine]
    more: int


class RunningRamps:
    """The ramps that are not done, read and counted at most once a second: every page shows them. For any thread."""

    def __init__(self, console: Console) -> None:
        self._console, self._reading = console, threading.Lock()
        self._found: list[ActionOverview] = []
        self._counted: dict[bytes, tuple[ActionOverview, SentOutcome]] = {}
        self._read_s = -FRESH_S

    def list_lines(self, sight: Sight) -> RampLines:
        """List those that run or are on hold, the newest first; none where that cannot be read: the page itself says why."""
        try:
            with self._reading:
                found = [each for each in self._read() if lists.sees_action(sight.scope, each.action)]
                counted = [self._count(each) for each in found[:_SHOWN_MAX]]
        except (RetryError, sqlite3.Error) as error:
            log.debug("the ramps that are not done cannot be read: %s", error)
            return RampLines([], 0)
        shown = [RampLine(about, outcome, sight.may_act_for(about.action.teams)) for about, outcome in counted]
        return RampLines(shown, len(found[_SHOWN_MAX:]))

    def _read(self) -> list[ActionOverview]:
        if (now_s := clock.monotonic_s()) - self._read_s >= FRESH_S:
            actions = list_recent_actions(self._console.replica, None)
            self._found = [each for each in actions if each.action.ramp is not None and each.is_under_way]
            self._read_s, self._counted = now_s, {}
        return self._found

    def _count(self, about: ActionOverview) -> tuple[ActionOverview, SentOutcome]:
        """Add what failed again, and count what became of its letters, as of when it was read."""
        if about.id not in self._counted:
            counted = add_failed(self._console.replica, about)
            self._counted[about.id] = counted, self._console.replica.load_outcome(counted).total
        return self._counted[about.id]


def build_routes(console: Console) -> list[Route]:
    """Show on every page the ramps (actions in growing steps) that are not done; return no routes, they need none."""
    ramps = RunningRamps(console)
    console.list_ramps = ramps.list_lines
    console.keep_fresh(RAMPS, "ramps.html", lambda sight, _argument: {"ramps": ramps.list_lines(sight)})
    return []
