"""Which letters somebody may act on, and who may see what was asked of them: by the teams whose letters they are."""

from __future__ import annotations

from collections.abc import Collection

from retry.console.replica.rows import Scope
from retry.console.web.rights import EVERY_TEAM, Role, Viewer, demand
from retry.delay_queue.action_records import Action


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
