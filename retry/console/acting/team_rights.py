"""Which letters somebody may act on, and who may see what was asked of them: by the teams whose letters they are."""

from __future__ import annotations

from collections.abc import Collection

from retry.console.replica.seen_actions import sees as sees
from retry.console.web.rights import Role, Viewer, demand_role


def demand_each(viewer: Viewer, role: Role, teams: Collection[str]) -> None:
    """Go on only where a viewer has a role in each of these teams; an empty name is no known team, no name at all is every team.

    Raises:
      HTTPException: 404 or 403, see `demand_role`.
    """
    for team in teams or [""]:
        demand_role(viewer, role, team or None)
