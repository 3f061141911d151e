"""Which letters somebody may act on, and who may see what was asked of them: by the teams whose letters they are."""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus

from starlette.exceptions import HTTPException

from retry.console.replica.rows import Scope
from retry.console.web.rights import EVERY_TEAM, Role, Viewer, demand
from retry.delay_queue.action_records import Action
from retry.operations.act.meaning import asks_for_payloads
from retry.operations.letter_filter.parse import parse


def acting_scope(viewer: Viewer) -> Scope:
    """The teams whose letters this viewer may act on; None is all."""
    if viewer.may(Role.OPERATOR, EVERY_TEAM):
        return None
    return frozenset(team for team, role in viewer.roles.items() if team != EVERY_TEAM and role.covers(Role.OPERATOR))


def sees(scope: Scope, action: Action) -> bool:
    """Whether all letters of an action are of teams in a scope; of older ones, and of letters of no known team, nobody knows."""
    return scope is None or (bool(action.teams) and scope.issuperset(action.teams))


def demand_each(viewer: Viewer, role: Role, teams: Collection[str]) -> None:
    """Go on only where a viewer has a role in each of these teams; an empty name is no known team, no name at all is every team.

    Raises:
      HTTPException: 404 or 403, see `demand`.
    """
    for team in teams or [""]:
        demand(viewer, role, team or None)


def demand_filter(viewer: Viewer, words: str) -> None:
    """Go on only where a viewer may ask what a filter asks.

    Raises:
      FilterInvalid: it is none.
      HTTPException: 403, it asks for payloads, which this viewer may not see.
    """
    if asks_for_payloads(parse(words)) and not viewer.reveals_all():
        raise HTTPException(HTTPStatus.FORBIDDEN, "this filter asks for payloads, which takes the right to reveal them")
