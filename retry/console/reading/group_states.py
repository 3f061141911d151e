"""What a kind of failures is to an operator: new, ongoing, resolved, or there again after it was resolved."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

from retry.console.folding import notes
from retry.console.folding.attempts import HOUR_MS
from retry.console.folding.sql import bind_ids, select_rows
from retry.console.reading.lists import select_teams
from retry.console.rows import FailureState, Scope

# What failed first within this time is new, on every page.
NEW_MS = 24 * HOUR_MS
# What failed, of letters that are there and of outcomes: a letter that was superseded, or never goes anywhere, is no failure.
FAILED_CELLS = "group_id IS NOT NULL AND state IN ('waiting', 'parked', 'discarded')"


class Resolutions(NamedTuple):
    """Groups that somebody has resolved, each with the moment until which that holds; `failed_later` are those that came again.
    """

    standing: Mapping[str, int]
    failed_later: Mapping[str, int]

    def state_of(self, group: str, first_ms: int | None, now_ms: int) -> FailureState:
        """Decide the state of a group that failed first at that time."""
        if group in self.standing:
            return FailureState.RESOLVED
        if group in self.failed_later:
            return FailureState.CAME_AGAIN
        is_new = first_ms is not None and now_ms - first_ms < NEW_MS
        return FailureState.NEW if is_new else FailureState.ONGOING


class FailureTimes(NamedTuple):
    """When a group failed first and last, as far as it is known."""

    first_ms: int | None = None
    last_ms: int | None = None


def read_resolutions(connection: sqlite3.Connection) -> Resolutions:
    """Read all that operators have resolved; what failed later counts, of whichever team it is."""
    resolved = {
        key.removeprefix(notes.RESOLVED): notes.resolved(value).at_ms
        for key, value in notes.list_notes(connection, notes.RESOLVED)
    }
    among = "WHERE group_id IN (SELECT value FROM json_each(?))"
    last = dict(select_rows(
        connection, ("group_id", "max(last_ms)"),
        f"FROM (SELECT group_id, last_ms FROM cells {among} UNION ALL SELECT group_id, last_ms FROM outcome_cells {among})"
        " GROUP BY group_id", (bind_ids(resolved),) * 2,
    ))  # fmt: skip
    failed_later = {group: until_ms for group, until_ms in resolved.items() if (last.get(group) or 0) > until_ms}
    return Resolutions({group: at_ms for group, at_ms in resolved.items() if group not in failed_later}, failed_later)


def read_times(connection: sqlite3.Connection, scope: Scope) -> dict[str, FailureTimes]:
    """Read when each group failed first and last, as far as a viewer sees its letters and outcomes."""
    in_scope, teams = select_teams(scope)
    rows = select_rows(
        connection, ("group_id", "min(first_ms)", "max(last_ms)"),
        f"FROM (SELECT group_id, first_ms, last_ms FROM cells WHERE {FAILED_CELLS}{in_scope} UNION ALL"
        f" SELECT group_id, first_ms, last_ms FROM outcome_cells WHERE group_id IS NOT NULL{in_scope}) GROUP BY group_id",
        (*teams, *teams),
    )  # fmt: skip
    return {group: FailureTimes(first_ms, last_ms) for group, first_ms, last_ms in rows}


def list_new_groups(connection: sqlite3.Connection, scope: Scope, now_ms: int, resolutions: Resolutions) -> list[str]:
    """List the ids of the groups that a viewer sees and that are new."""
    times = read_times(connection, scope)
    return [group for group, each in times.items() if resolutions.state_of(group, each.first_ms, now_ms) is FailureState.NEW]
