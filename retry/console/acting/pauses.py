"""Pauses, as somebody asks for them in the console: whose deliveries a scope holds back, and so who may pause it."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from retry.console.acting import standing_actions
from retry.console.acting.action_pages import read_reason
from retry.console.acting.standing_actions import demand_each
from retry.console.reading import lists
from retry.console.rows import Scope
from retry.console.web.app import Console, console_of, form_of, query_of, render_page, viewer_of
from retry.console.web.rights import EVERY_TEAM, Role, Sight, Viewer, needs
from retry.delay_queue.control_records import SCOPES, Pause
from retry.errors import ActionRefused
from retry.operations import control_requests
from retry.operations.moments import parse_moment_ms
from retry.policies.registry import Registry

StandingPauses = Mapping[tuple[str, str], Pause]


def list_paused_teams(registry: Registry, scope: str, name: str) -> set[str]:
    """List the teams whose deliveries a pause holds back; empty where they are not known, and for a pause of everything."""
    if scope == "team":
        return {name}
    if scope == "topic":
        return {registry.route(name).team} if registry.reads_topic(name) else set()
    if scope == "target":
        return {route.team for route in registry.list_routes() if registry.permits_target(route.team, name)}
    return set()


def list_standing_pauses(console: Console) -> StandingPauses:
    return lists.list_pauses(console.replica.controls(), console.clock_ms())


def list_visible_pauses(console: Console, scope: Scope) -> StandingPauses:
    """List the pauses that hold back deliveries of teams in a scope; what holds back everything concerns everybody."""
    found, registry = list_standing_pauses(console), console.registry()
    return {
        named: pause
        for named, pause in found.items()
        if scope is None or named[0] == "all" or list_paused_teams(registry, *named) & scope
    }


def pause_scope(
    console: Console, viewer: Viewer, scope: str, name: str, reason: str, until_ms: int | None, *, force: bool = False
) -> None:
    """Hold back what is named, and return when the console shows it; `force` accepts a name that the policy file does not know.

    Raises:
      WriteNotShown: it is held back, and not shown yet.
      ActionRefused: the name is not known, or the end is over.
      HTTPException: 400, there is no such scope; 404 or 403, it is not this viewer's to pause.
    """
    _demand_operator(console, viewer, scope, name)
    checked = scope != "all" and not force
    if checked and (wrong := control_requests.describe_unknown(console.registry(), console.settings, scope, name)):
        raise ActionRefused(f"the policy file {wrong}; nothing was paused")
    shards = standing_actions.load_shard_numbers(console)
    asked = Pause(console.clock_ms(), reason, until_ms, viewer.name)
    _write_audit(console, viewer, "pause", scope, name, reason)
    control_requests.pause(shards, scope, name, asked)
    # A former pause of the same, with another end or reason, is not this one.
    standing_actions.await_shown(lambda: list_standing_pauses(console).get((scope, name)) == asked)


def resume_scope(console: Console, viewer: Viewer, scope: str, name: str, reason: str) -> None:
    """End a pause, and return when the console shows it no more; raises WriteNotShown and HTTPException as `pause_scope`."""
    _demand_operator(console, viewer, scope, name)
    shards = standing_actions.load_shard_numbers(console)
    _write_audit(console, viewer, "resume", scope, name, reason)
    control_requests.resume(shards, scope, name)
    standing_actions.await_shown(lambda: (scope, name) not in list_standing_pauses(console))


def _write_audit(console: Console, viewer: Viewer, what: str, scope: str, name: str, reason: str) -> None:
    told = control_requests.describe_scope(scope, name) + (f": {reason}" if reason else "")
    console.audit.write(what, viewer.name, told, teams=list_paused_teams(console.registry(), scope, name))


def _demand_operator(console: Console, viewer: Viewer, scope: str, name: str) -> None:
    if scope not in SCOPES or (scope == "all") != (not name):
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"say one of {', '.join(SCOPES)}, and a name for all but the first")
    if scope == "all":
        if not viewer.may(Role.OPERATOR, EVERY_TEAM):
            raise HTTPException(HTTPStatus.FORBIDDEN, "this holds back every team, and takes the role operator in all of them")
        return
    demand_each(viewer, Role.OPERATOR, list_paused_teams(console.registry(), scope, name))


# The page of pauses: what is held back, until when, why and by whom.
#
# | path | what it does |
# | --- | --- |
# | `GET /pauses` | what is paused, and a form, which begins with `scope`, `name` and `reason` of the address |
# | `POST /pauses` | pauses what the form names |
# | `POST /pauses/resume` | ends the pause `paused`, as `team/payments` |

def build_routes(console: Console) -> list[Route]:
    console.keep_fresh("pauses", "pauses-live.html", lambda sight, _argument: _build_page(console, sight))
    return [
        Route("/pauses", render_pauses), Route("/pauses", pause, methods=["POST"]),
        Route("/pauses/resume", resume, methods=["POST"]),
    ]  # fmt: skip


@needs(Role.VIEWER, "scope", "name", "reason")
def render_pauses(request: Request) -> Response:
    return _render_pauses(request, query_of(request))


@needs(Role.OPERATOR, "scope", "name", "until", "reason", "force")
def pause(request: Request) -> Response:
    given = {name: str(value).strip() for name, value in form_of(request).multi_items()}
    console, scope, name = console_of(request), given.get("scope", ""), given.get("name", "")
    try:
        until_ms = parse_moment_ms(given["until"]) if given.get("until") else None
        force = bool(given.get("force"))
        pause_scope(console, viewer_of(request), scope, name, read_reason(request), until_ms, force=force)
    except (ActionRefused, ValueError) as refused:
        return _render_pauses(request, given, str(refused), HTTPStatus.BAD_REQUEST)
    return RedirectResponse("/pauses", HTTPStatus.SEE_OTHER)


@needs(Role.OPERATOR, "paused", "reason")
def resume(request: Request) -> Response:
    scope, _, name = str(form_of(request).get("paused", "")).partition("/")
    console = console_of(request)
    resume_scope(console, viewer_of(request), scope, name, read_reason(request))
    return RedirectResponse("/pauses", HTTPStatus.SEE_OTHER)


def _render_pauses(request: Request, given: dict[str, str], fault: str = "", status: HTTPStatus = HTTPStatus.OK) -> Response:
    console, viewer = console_of(request), viewer_of(request)
    known = console.replica.list_filter_names(viewer.scope())
    scopes = SCOPES if viewer.may(Role.OPERATOR, EVERY_TEAM) else SCOPES[1:]
    return render_page(
        request, "pauses.html", status, given=given, fault=fault, known=known, scopes=scopes, live=("pauses", ""),
        **_build_page(console, viewer.sight()),
    )  # fmt: skip


def _build_page(console: Console, sight: Sight) -> dict[str, Any]:
    registry = console.registry()
    found = list_visible_pauses(console, sight.scope)
    # What holds back everything is everybody's, and its name is of no team.
    resumable = {named for named in found if sight.may_act_for(list_paused_teams(registry, *named))}
    return {"pauses": control_requests.describe_pauses(found), "may": sight.may_act(), "resumable": resumable}
