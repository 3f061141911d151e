"""The line on top of every page while a ramp runs or is on hold: what became of its letters so far, and one button."""

from __future__ import annotations

import logging
import sqlite3
import threading
from typing import NamedTuple

from starlette.routing import Route

from retry import clock
from retry.console.acting import standing_actions
from retry.console.reading import lists
from retry.console.reading.action_outcomes import SentOutcome
from retry.console.web.app import Console
from retry.console.web.live import RAMPS
from retry.console.web.rights import Sight
from retry.errors import RetryError
from retry.operations.act.overview import ActionOverview

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
            actions = standing_actions.list_recent_actions(self._console.replica, None)
            self._found = [each for each in actions if each.action.ramp is not None and each.is_under_way]
            self._read_s, self._counted = now_s, {}
        return self._found

    def _count(self, about: ActionOverview) -> tuple[ActionOverview, SentOutcome]:
        """Add what failed again, and count what became of its letters, as of when it was read."""
        if about.id not in self._counted:
            counted = standing_actions.with_failed(self._console.replica, about)
            self._counted[about.id] = counted, self._console.replica.load_outcome(counted).total
        return self._counted[about.id]


def build_routes(console: Console) -> list[Route]:
    """Have every page show the ramps that are not done; there is no route of their own."""
    ramps = RunningRamps(console)
    console.list_ramps = ramps.list_lines
    console.keep_fresh(RAMPS, "ramps.html", lambda sight, _argument: {"ramps": ramps.list_lines(sight)})
    return []
