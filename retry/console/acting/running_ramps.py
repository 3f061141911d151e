"""The line on top of every page while a ramp runs or is on hold: what became of its letters so far, and one button."""

from __future__ import annotations

import logging
import sqlite3
from typing import Any, NamedTuple

from starlette.routing import Route

from retry.console.acting import standing_actions
from retry.console.reading.action_outcomes import SentOutcome
from retry.console.web.app import Console
from retry.console.web.live import RAMPS
from retry.console.web.rights import Sight
from retry.errors import RetryError
from retry.operations.act.overview import ActionOverview

log = logging.getLogger(__name__)

# More than these are told by their number.
_SHOWN_MAX = 3


class RampLine(NamedTuple):
    """One ramp that is not done, as the line shows it; `step` counts from 1."""

    about: ActionOverview
    step: int
    outcome: SentOutcome
    may: bool


class RampLines(NamedTuple):
    """The ramps that a viewer may see and that are not done: some of them, and how many more there are."""

    shown: list[RampLine]
    more: int


def build_routes(console: Console) -> list[Route]:
    """Have every page show the ramps that are not done; there is no route of their own."""

    def build(sight: Sight, _argument: str) -> dict[str, Any]:
        return {"ramps": list_ramps(console, sight)}

    console.list_ramps = lambda sight: list_ramps(console, sight)
    console.keep_fresh(RAMPS, "ramps.html", build)
    return []


def list_ramps(console: Console, sight: Sight) -> RampLines:
    """List the ramps that run or are on hold, the newest first; none where that cannot be read: the page itself says why."""
    try:
        found = [
            each for each in standing_actions.list_recent_actions(console.replica, sight.scope)
            if each.action.ramp is not None and each.status in ("running", "held")
        ]  # fmt: skip
        return RampLines([_line(console, sight, each) for each in found[:_SHOWN_MAX]], len(found[_SHOWN_MAX:]))
    except (RetryError, sqlite3.Error) as error:
        log.debug("the ramps that are not done cannot be read: %s", error)
        return RampLines([], 0)


def _line(console: Console, sight: Sight, about: ActionOverview) -> RampLine:
    counted = standing_actions.with_failed(console.replica, about)
    outcome = console.replica.load_outcome(counted).total
    step = min(about.step.step + 1, len(about.steps))
    return RampLine(counted, step, outcome, sight.may_act_for(about.action.teams))
