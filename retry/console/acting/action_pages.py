"""The pages of actions: those that run as steps, what became of others, orders about them, and their letters as CSV.

| path | what it does |
| --- | --- |
| `GET /actions?after=…` | those of the last 30 days, the last first |
| `GET /actions/{id}` | one of them |
| `POST /actions/{id}/hold`, `/resume`, `/cancel` | orders it, and goes back to it |
| `POST /actions/{id}/undo` | works out what can be undone, and goes to the preview |
| `GET /actions/{id}/members.csv` | each letter and what became of it |
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from retry.console.acting import actions, api_answers, standing_actions
from retry.console.acting.act_pages import action_id
from retry.console.rows import Scope
from retry.console.web.app import Console, console_of, demand_found, form_of, query_of, render_page, viewer_of
from retry.console.web.rights import Role, Sight, needs
from retry.errors import ActionRefused, CursorStale
from retry.operations.act.action_report import MEMBER_COLUMNS, list_member_results, member_row
from retry.operations.act.overview import ORDERS, ActionOverview

PAGE = 50
_WAIT_S = 3.0
_REASON_MAX = 1_000
_CSV_ROWS = 500
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def build_routes(console: Console) -> list[Route]:
    console.keep_fresh("actions", "actions-live.html", lambda sight, after: _list(console, sight.scope, after))
    console.keep_fresh("action", "action-live.html", partial(_find_action, console))
    return [
        Route("/actions", list_), Route("/actions/{id}", render_action), Route("/actions/{id}/members.csv", download_members),
        Route("/actions/{id}/undo", preview_undo, methods=["POST"]),
        *(Route(f"/actions/{{id}}/{what}", submit_order, methods=["POST"], name=what) for what in ORDERS),
    ]  # fmt: skip


@needs(Role.VIEWER, "after")
def list_(request: Request) -> Response:
    console, after = console_of(request), query_of(request).get("after", "")
    sight = viewer_of(request).sight()
    return render_page(
        request, "actions.html", may=sight.may_act(), **_list(console, sight.scope, after), live=("actions", after)
    )


@needs(Role.VIEWER)
def render_action(request: Request) -> Response:
    console, viewer, found = console_of(request), viewer_of(request), action_id(request)
    kept = console.previews.find_preview(found, viewer.name)
    if kept is not None and kept.is_started and standing_actions.find_action(console.replica, viewer.scope(), found) is None:
        # The workers have it; the replica will in a moment.
        return render_page(request, "started.html", action=found)
    about = _find_overview(console, viewer.scope(), found)
    return render_page(request, "action.html", live=("action", found), **_action(console, viewer.sight(), about))


@needs(Role.OPERATOR, "reason")
def submit_order(request: Request) -> Response:
    console, viewer = console_of(request), viewer_of(request)
    found, what = action_id(request), request.url.path.rpartition("/")[2]
    actions.send_order(console, viewer, what, found, read_reason(request))
    return RedirectResponse(f"/actions/{found}", HTTPStatus.SEE_OTHER)


@needs(Role.OPERATOR, "reason")
def preview_undo(request: Request) -> Response:
    kept = actions.begin_undo_preview(console_of(request), viewer_of(request), action_id(request), read_reason(request))
    kept.done.wait(_WAIT_S)
    return RedirectResponse(f"/act/{kept.id}", HTTPStatus.SEE_OTHER)


@needs(Role.VIEWER)
def download_members(request: Request) -> Response:
    """Send a CSV file with each letter of an action and what became of it; read the audit while the file is sent."""
    console, found = console_of(request), action_id(request)
    about = _find_overview(console, viewer_of(request).scope(), found)
    rows = list_member_results(console.settings, standing_actions.load_shard_numbers(console), about)
    headers = {"Content-Disposition": f'attachment; filename="action-{found}.csv"'}
    return StreamingResponse(_csv(map(member_row, rows)), media_type="text/csv; charset=utf-8", headers=headers)


def read_reason(request: Request) -> str:
    """Return why somebody does what the form does, in their words; raises ActionRefused where these are too many."""
    text = str(form_of(request).get("reason", "")).strip()
    if len(text) > _REASON_MAX:
        raise ActionRefused(f"the reason has more than {_REASON_MAX:,} characters")
    return text


def list_page(console: Console, scope: Scope, after: str, most: int) -> tuple[list[ActionOverview], str | None]:
    """List `most` actions behind the action `after`, and where the next ones begin; raises CursorStale where it is gone."""
    found = standing_actions.list_recent_actions(console.replica, scope)
    if after:
        behind = next((n for n, each in enumerate(found) if each.id.hex() == after), None)
        if behind is None:
            raise CursorStale
        found = found[behind + 1 :]
    some = found[:most]
    return some, some[-1].id.hex() if len(found) > most else None


def _find_overview(console: Console, scope: Scope, found: str) -> ActionOverview:
    about = standing_actions.find_action(console.replica, scope, found)
    return demand_found(about, "there is no such action, or it is older than 30 days; a new one takes seconds")


def _list(console: Console, scope: Scope, after: str) -> dict[str, Any]:
    some, following = list_page(console, scope, after, PAGE)
    shown = [api_answers.about_object(each, console.clock_ms()) for each in some]
    return {"actions": shown, "after": following, "after_what": after}


def _find_action(console: Console, sight: Sight, found: str) -> dict[str, Any]:
    return _action(console, sight, _find_overview(console, sight.scope, found))


def _action(console: Console, sight: Sight, about: ActionOverview) -> dict[str, Any]:
    now_ms = console.clock_ms()
    new = standing_actions.count_new_failures(console.replica, sight.scope, about, now_ms) if about.left else None
    return {
        "about": api_answers.about_object(about, now_ms), "new": new, "may": sight.may_act_for(about.action.teams),
        "outcome": standing_actions.load_outcome(console.replica, about),
    }  # fmt: skip


def _csv(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(MEMBER_COLUMNS)
    for n, row in enumerate(rows, 1):
        writer.writerow(map(_cell, row.values()))
        if n % _CSV_ROWS == 0:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()


def _cell(value: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would take for a formula: names come out of records."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value
