"""Pauses, as somebody asks for them in the console: whose deliveries a scope holds back, and so who may pause it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException

from retry.console.acting.shards import load_shard_numbers as shards_of
from retry.console.acting.team_rights import demand_each
from retry.console.acting.told import list_pauses
from retry.console.replica.rows import Scope
from retry.console.web.app import Console
from retry.console.web.rights import EVERY_TEAM, Role, Viewer
from retry.delay_queue.control_records import SCOPES, Pause
from retry.errors import ActionRefused
from retry.operations import known_names, pauses
from retry.policies.registry import Registry

Standing = Mapping[tuple[str, str], Pause]


def teams_of(registry: Registry, scope: str, name: str) -> set[str]:
    """List the teams whose deliveries a pause holds back; empty where they are not known, and for a pause of everything."""
    if scope == "team":
        return {name}
    if scope == "topic":
        return {registry.route(name).team} if registry.reads_topic(name) else set()
    if scope == "target":
        return {route.team for route in registry.list_routes() if registry.permits_target(route.team, name)}
    return set()


def select_visible(found: Standing, registry: Registry, scope: Scope) -> Standing:
    """The pauses that hold back deliveries of teams in a scope; what holds back everything concerns everybody."""
    if scope is None:
        return found
    return {named: pause for named, pause in found.items() if named[0] == "all" or teams_of(registry, *named) & scope}


def list_visible_pauses(console: Console, controls: Iterable[Mapping[bytes, bytes]], scope: Scope) -> Standing:
    """Select the pauses of this moment that a viewer of the teams in `scope` may see."""
    return select_visible(list_pauses(controls, console.clock_ms()), console.registry(), scope)


def pause(
    console: Console, viewer: Viewer, scope: str, name: str, reason: str, until_ms: int | None, *, force: bool = False
) -> None:
    """Hold back what is named.

    Args:
      force: accept a name that the policy file does not know.

    Raises:
      ActionRefused: the name is not known, or the end is over.
      HTTPException: 400, there is no such scope; 404 or 403, it is not this viewer's to pause.
    """
    _demand_operator(console, viewer, scope, name)
    checked = scope != "all" and not force
    if checked and (wrong := known_names.describe_unknown(console.registry(), console.settings, scope, name)):
        raise ActionRefused(f"the policy file {wrong}; nothing was paused")
    shards = shards_of(console)
    asked = Pause(console.clock_ms(), reason, until_ms, viewer.name)
    _write_audit(console, viewer, "pause", scope, name, reason)
    pauses.pause(shards, scope, name, asked)


def resume(console: Console, viewer: Viewer, scope: str, name: str, reason: str) -> None:
    """End a pause; raises as `pause`."""
    _demand_operator(console, viewer, scope, name)
    shards = shards_of(console)
    _write_audit(console, viewer, "resume", scope, name, reason)
    pauses.resume(shards, scope, name)


def _write_audit(console: Console, viewer: Viewer, what: str, scope: str, name: str, reason: str) -> None:
    told = pauses.describe_scope(scope, name) + (f": {reason}" if reason else "")
    console.audit.write(what, viewer.name, told, teams=teams_of(console.registry(), scope, name))


def _demand_operator(console: Console, viewer: Viewer, scope: str, name: str) -> None:
    if scope not in SCOPES or (scope == "all") != (not name):
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"say one of {', '.join(SCOPES)}, and a name for all but the first")
    if scope == "all":
        if not viewer.may(Role.OPERATOR, EVERY_TEAM):
            raise HTTPException(HTTPStatus.FORBIDDEN, "this holds back every team, and takes the role operator in all of them")
        return
    demand_each(viewer, Role.OPERATOR, teams_of(console.registry(), scope, name))
