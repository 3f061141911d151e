"""The API below `/api/`: the same letters, groups, actions, pauses and audit as the pages, as JSON; `openapi` describes it.

Whoever asks has a token of the console, or has signed in. What a token may not see is not there: ids of others are 404.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from retry.console.acting import act_form, actions, api_rows, openapi, pauses, standing_actions, told
from retry.console.acting.act_pages import action_id
from retry.console.acting.action_pages import page_of
from retry.console.acting.audit_trail import REVEAL
from retry.console.acting.previews import KeptPreview
from retry.console.acting.shards import shards as shards_of
from retry.console.web import filters
from retry.console.web.app import Console, body_of, console_of, query_of, viewer_of
from retry.console.web.rights import Role, needs
from retry.operations.act.members import members as all_members
from retry.operations.act.options import OptionsInvalid
from retry.operations.act.told import member_row
from retry.operations.moments import moment_ms

_LIMIT, _LIMIT_MAX = 100, 1_000
_WAIT_S = 20.0
_PAUSE_FIELDS = ("scope", "name", "reason")
_Body = TypeVar("_Body", bound=msgspec.Struct)


class StartBody(msgspec.Struct, forbid_unknown_fields=True):
    """How many letters a preview must have; asked for over 1,000."""

    expect: int | None = None


class OrderBody(msgspec.Struct, forbid_unknown_fields=True):
    """Why something is ordered."""

    reason: str = ""


class PauseBody(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be paused; see `retry.console.acting.pauses`."""

    scope: str
    name: str = ""
    reason: str = ""
    until: str | None = None
    force: bool = False


def routes(console: Console) -> list[Route]:  # noqa: ARG001
    """Every route of the API."""
    post = ["POST"]
    return [
        Route("/api/now", now), Route("/api/letters", letters), Route("/api/letters/{name:path}", letter),
        Route("/api/groups", groups), Route("/api/groups/{id}", group), Route("/api/audit", audit),
        Route("/api/actions", list_actions), Route("/api/actions", ask, methods=post), Route("/api/actions/{id}", action),
        Route("/api/actions/{id}/members", members), Route("/api/actions/{id}/start", start, methods=post),
        Route("/api/actions/{id}/undo", undo, methods=post),
        *(Route(f"/api/actions/{{id}}/{what}", order, methods=post, name=f"api-{what}") for what in actions.ORDERS),
        Route("/api/pauses", list_pauses), Route("/api/pauses", pause, methods=post),
        Route("/api/pauses", resume, methods=["DELETE"]), Route("/api/openapi.json", document),
    ]  # fmt: skip


@needs(Role.VIEWER)
def now(request: Request) -> Response:
    """What there is to be seen now."""
    query_of(request)
    replica = console_of(request).replica
    return _json(api_rows.now(replica.now(viewer_of(request).scope()), replica.freshness()))


@needs(Role.VIEWER)
def letters(request: Request) -> Response:
    """A page of letters that a filter means; payloads are looked into for who may see them, and that is written down."""
    given, console, viewer = query_of(request, "q", "after", "limit"), console_of(request), viewer_of(request)
    words, after = given.get("q", ""), given.get("after") or None
    meant, limit = filters.read(words, viewer), _limit(given)
    if filters.asks_payload(meant):
        found = console.replica.payloads.scan(viewer.scope(), meant, after, limit)
        teams = {row.team for row in found.rows if row.team}
        console.audit.write(REVEAL, viewer.name, f"filter {words}", [row.name for row in found.rows], teams)
        rows = [api_rows.letter(row) for row in found.rows]
        return _json({"letters": rows, "after": found.after, "looked_at": found.looked_at, "ended": found.why_ended})
    page = console.replica.letters(viewer.scope(), meant, after, limit)
    return _json({
        "letters": [api_rows.letter(row) for row in page.rows], "after": page.after, "count": page.count,
        "is_capped": page.is_capped, "nothing_matches": page.nothing_matches,
    })  # fmt: skip


@needs(Role.VIEWER)
def letter(request: Request) -> Response:
    """One letter; with `reveal=1` headers and payload, too."""
    given, console, viewer = query_of(request, "reveal"), console_of(request), viewer_of(request)
    name = str(request.path_params["name"])
    row = console.replica.letter(viewer.scope(), name)
    if row is None:
        raise _none("letter")
    shown = api_rows.letter(row)
    if given.get("reveal") in ("1", "true"):
        if not viewer.may_reveal(row.team):
            raise HTTPException(HTTPStatus.FORBIDDEN, "this takes the right to reveal payloads of this team")
        found = console.replica.payloads.found(viewer.scope(), name)
        if found is None:
            raise _none("letter")
        console.audit.reveal(viewer.name, [name], [row.team or ""])
        shown |= api_rows.payload(found)
    return _json(shown)


@needs(Role.VIEWER)
def groups(request: Request) -> Response:
    """A page of kinds of failures, most letters first."""
    given, console = query_of(request, "q", "after", "limit", "resolved"), console_of(request)
    meant = filters.read(given.get("q", ""), viewer_of(request))
    page = console.replica.groups(
        viewer_of(request).scope(), meant, given.get("after") or None, _limit(given),
        resolved=given.get("resolved") in ("1", "true"),
    )  # fmt: skip
    rows = [api_rows.group(row) for row in page.rows]
    return _json({"groups": rows, "after": page.after, "count": page.count, "is_capped": page.is_capped})


@needs(Role.VIEWER)
def group(request: Request) -> Response:
    """One kind of failures."""
    query_of(request)
    found = console_of(request).replica.group(viewer_of(request).scope(), str(request.path_params["id"]))
    if found is None:
        raise _none("group")
    return _json(api_rows.group(found))


@needs(Role.VIEWER)
def audit(request: Request) -> Response:
    """A page of the audit, newest first."""
    given = query_of(request, "action", "after", "limit")
    scope, after = viewer_of(request).scope(), given.get("after") or None
    page = console_of(request).replica.audit(scope, after, _limit(given), action=given.get("action", ""))
    return _json({"audit": [api_rows.audit(row) for row in page.rows], "after": page.after})


@needs(Role.VIEWER)
def list_actions(request: Request) -> Response:
    """A page of actions, those that were asked for last first."""
    given, console = query_of(request, "after", "limit"), console_of(request)
    some, after = page_of(console, viewer_of(request).scope(), given.get("after", ""), _limit(given))
    return _json({"actions": [told.about_object(each, console.clock_ms()) for each in some], "after": after})


@needs(Role.OPERATOR)
def ask(request: Request) -> Response:
    """Work a preview out; nothing is done to any letter."""
    try:
        kept = actions.ask(console_of(request), viewer_of(request), act_form.of_body(body_of(request)))
    except OptionsInvalid as wrong:
        raise HTTPException(HTTPStatus.BAD_REQUEST, str(wrong)) from None
    return _previewed(request, kept)


@needs(Role.VIEWER)
def action(request: Request) -> Response:
    """An action with its steps; or a preview that was not started yet."""
    query_of(request)
    console, viewer, found = console_of(request), viewer_of(request), action_id(request)
    about = standing_actions.action(console.replica, viewer.scope(), found)
    if about is not None:
        return _json(told.about_object(about, console.clock_ms()))
    return _json(told.kept_object(actions.kept(console, viewer, found), console.registry()))


@needs(Role.VIEWER)
def members(request: Request) -> Response:
    """Each letter of an action and what became of it, a JSON object a line."""
    query_of(request)
    console, found = console_of(request), action_id(request)
    about = standing_actions.action(console.replica, viewer_of(request).scope(), found)
    if about is None:
        raise _none("action")
    rows = all_members(console.settings, shards_of(console), about)
    lines = (orjson.dumps(member_row(each)) + b"\n" for each in rows)
    return StreamingResponse(lines, media_type="application/x-ndjson")


@needs(Role.OPERATOR)
def start(request: Request) -> Response:
    """Have the workers do what was previewed; the second time nothing is done."""
    found, body = action_id(request), _read(request, StartBody)
    actions.begin(console_of(request), viewer_of(request), found, body.expect)
    return _json({"id": found, "state": "started"}, headers={"Location": f"/api/actions/{found}"})


@needs(Role.OPERATOR)
def order(request: Request) -> Response:
    """Hold, resume or cancel an action."""
    found, what = action_id(request), request.url.path.rpartition("/")[2]
    actions.order(console_of(request), viewer_of(request), what, found, _read(request, OrderBody).reason)
    return _json({"id": found, "ordered": what}, HTTPStatus.ACCEPTED)


@needs(Role.OPERATOR)
def undo(request: Request) -> Response:
    """Work out what can be undone of a discard: a preview, to be started as any other."""
    reason = _read(request, OrderBody).reason
    return _previewed(request, actions.ask_undo(console_of(request), viewer_of(request), action_id(request), reason))


@needs(Role.VIEWER)
def list_pauses(request: Request) -> Response:
    """What is paused."""
    query_of(request)
    console = console_of(request)
    found = pauses.visible(console, console.replica.controls(), viewer_of(request).scope())
    return _json({"pauses": told.pause_objects(found)})


@needs(Role.OPERATOR)
def pause(request: Request) -> Response:
    """Hold back what is named; takes the place of a former pause of the same."""
    body = _read(request, PauseBody)
    try:
        until_ms = None if body.until is None else moment_ms(body.until)
    except ValueError as wrong:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"until: {wrong}") from None
    console, viewer = console_of(request), viewer_of(request)
    pauses.pause(console, viewer, body.scope, body.name, body.reason, until_ms, force=body.force)
    return _json({"scope": body.scope, "name": body.name or None}, HTTPStatus.CREATED)


@needs(Role.OPERATOR)
def resume(request: Request) -> Response:
    """End a pause."""
    given = query_of(request, *_PAUSE_FIELDS)
    scope, name, reason = (given.get(field, "") for field in _PAUSE_FIELDS)
    pauses.resume(console_of(request), viewer_of(request), scope, name, reason)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@needs(Role.VIEWER)
def document(request: Request) -> Response:  # noqa: ARG001
    """The description of the API."""
    return _json(openapi.DOCUMENT)


def _previewed(request: Request, kept: KeptPreview) -> Response:
    kept.done.wait(_WAIT_S)
    if kept.fault is not None:
        raise kept.fault
    status = HTTPStatus.CREATED if kept.done.is_set() else HTTPStatus.ACCEPTED
    return _json(told.kept_object(kept, console_of(request).registry()), status, {"Location": f"/api/actions/{kept.id}"})


def _read(request: Request, shape: type[_Body]) -> _Body:
    try:
        return msgspec.json.decode(body_of(request) or b"{}", type=shape)
    except msgspec.MsgspecError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from None


def _limit(given: dict[str, str]) -> int:
    text = given.get("limit", str(_LIMIT))
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= _LIMIT_MAX):
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"limit: it is not from 1 to {_LIMIT_MAX:,}")
    return int(text)


def _none(what: str) -> HTTPException:
    return HTTPException(HTTPStatus.NOT_FOUND, f"there is no such {what}, or it is no more")


def _json(body: Any, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(body), status, headers, "application/json")
