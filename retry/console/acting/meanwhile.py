"""New failures while an action runs, as the replica counts them; see `retry.operations.act.meanwhile`."""

from __future__ import annotations

from retry.console.replica.replica import Replica
from retry.console.replica.rows import LetterRow, Page, Scope
from retry.console.web.filters import asks_payload
from retry.operations.act.meanwhile import like_these
from retry.operations.act.overview import ActionOverview


def new_failures(replica: Replica, scope: Scope, about: ActionOverview, now_ms: int) -> Page[LetterRow] | None:
    """How many there are, as the count of a page; None where the action does not say by a filter what it is about.

    Raises:
      RebuildInProgress: the replica is not there yet.
    """
    meant = like_these(about.action, now_ms, groups=True)
    if meant is None or asks_payload(meant):
        return None
    return replica.list_letters(frozenset(about.action.teams) if about.action.teams else scope, meant, None, 1)
