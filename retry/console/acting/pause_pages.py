"""The page of pauses: what is held back, until when, why and by whom.

| path | what it does |
| --- | --- |
| `GET /pauses` | what is paused, and a form |
| `POST /pauses` | pauses what the form names |
| `POST /pauses/resume` | ends the pause `paused`, as `team/payments` |
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from retry.console.acting import awaited, pauses, told
from retry.console.acting.action_pages import reason
from retry.console.web.app import Console, console_of, form_of, render_page, viewer_of
from retry.console.web.rights import EVERY_TEAM, Role, Sight, needs
from retry.delay_queue.control_records import SCOPES
from retry.errors import ActionRefused
from retry.operations.moments import moment_ms


def build_routes(console: Console) -> list[Route]:
    """The routes of the table above."""
    console.live.register("pauses", partial(_html, console))
    return [
        Route("/pauses", render_pauses), Route("/pauses", pause, methods=["POST"]),
        Route("/pauses/resume", resume, methods=["POST"]),
    ]  # fmt: skip


@needs(Role.VIEWER)
def render_pauses(request: Request) -> Response:
    """Show what is paused now, and the form for a new pause."""
    return _render_pauses(request, {})


@needs(Role.OPERATOR, "scope", "name", "until", "reason", "force")
def pause(request: Request) -> Response:
    """Pause what the form names."""
    given = {name: str(value).strip() for name, value in form_of(request).multi_items()}
    console, scope, name = console_of(request), given.get("scope", ""), given.get("name", "")
    try:
        until_ms = moment_ms(given["until"]) if given.get("until") else None
        force = bool(given.get("force"))
        pauses.pause(console, viewer_of(request), scope, name, reason(request), until_ms, force=force)
    except (ActionRefused, ValueError) as refused:
        return _render_pauses(request, given, str(refused), HTTPStatus.BAD_REQUEST)
    awaited.until(lambda: (scope, name) in told.list_pauses(console.replica.controls(), console.clock_ms()))
    return RedirectResponse("/pauses", HTTPStatus.SEE_OTHER)


@needs(Role.OPERATOR, "paused", "reason")
def resume(request: Request) -> Response:
    """End the pause that the form names."""
    scope, _, name = str(form_of(request).get("paused", "")).partition("/")
    console = console_of(request)
    pauses.resume(console, viewer_of(request), scope, name, reason(request))
    awaited.until(lambda: (scope, name) not in told.list_pauses(console.replica.controls(), console.clock_ms()))
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
    found = pauses.list_visible_pauses(console, console.replica.controls(), sight.scope)
    # What holds back everything is everybody's, and its name is of no team.
    resumable = {named for named in found if sight.may_act_for(pauses.teams_of(registry, *named))}
    return {"pauses": told.pause_objects(found), "may": sight.may_act(), "resumable": resumable}


def _html(console: Console, sight: Sight, _argument: str) -> str:
    return console.templates.get_template("pauses-live.html").render(**_build_page(console, sight))
