"""The part of the API that is about actions: previewed, started once, ordered, and each letter of them told."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from retry.console.acting import act_form, actions, standing_actions, told
from retry.console.acting.act_pages import action_id
from retry.console.acting.action_pages import page_of
from retry.console.acting.api_answers import Words, answer, limit_of, none, read
from retry.console.acting.previews import KeptPreview
from retry.console.acting.shards import shards as shards_of
from retry.console.web.app import body_of, console_of, query_of, viewer_of
from retry.console.web.rights import Role, needs
from retry.operations.act.members import members as all_members
from retry.operations.act.options import OptionsInvalid
from retry.operations.act.told import member_row

_WAIT_S = 20.0


class StartBody(msgspec.Struct, forbid_unknown_fields=True):
    """How many letters a preview must have; asked for over 1,000."""

    expect: int | None = None


class OrderBody(msgspec.Struct, forbid_unknown_fields=True):
    """Why something is ordered."""

    reason: Words = ""


_decode_start = msgspec.json.Decoder(StartBody).decode
_decode_order = msgspec.json.Decoder(OrderBody).decode


def routes() -> list[Route]:
    """Return the routes below `/api/actions`."""
    post = ["POST"]
    return [
        Route("/api/actions", list_actions), Route("/api/actions", ask, methods=post), Route("/api/actions/{id}", action),
        Route("/api/actions/{id}/members", members), Route("/api/actions/{id}/start", start, methods=post),
        Route("/api/actions/{id}/undo", undo, methods=post),
        *(Route(f"/api/actions/{{id}}/{what}", order, methods=post, name=f"api-{what}") for what in actions.ORDERS),
    ]  # fmt: skip


@needs(Role.VIEWER, "after", "limit")
def list_actions(request: Request) -> Response:
    """A page of actions, those that were asked for last first."""
    given, console = query_of(request), console_of(request)
    some, after = page_of(console, viewer_of(request).scope(), given.get("after", ""), limit_of(given))
    return answer({"actions": [told.about_object(each, console.clock_ms()) for each in some], "after": after})


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
    console, viewer, found = console_of(request), viewer_of(request), action_id(request)
    about = standing_actions.action(console.replica, viewer.scope(), found)
    if about is not None:
        return answer(told.about_object(about, console.clock_ms()))
    return answer(told.kept_object(actions.kept(console, viewer, found), console.registry()))


@needs(Role.VIEWER)
def members(request: Request) -> Response:
    """Each letter of an action and what became of it, a JSON object a line."""
    console, found = console_of(request), action_id(request)
    about = standing_actions.action(console.replica, viewer_of(request).scope(), found)
    if about is None:
        raise none("action")
    rows = all_members(console.settings, shards_of(console), about)
    lines = (orjson.dumps(member_row(each)) + b"\n" for each in rows)
    return StreamingResponse(lines, media_type="application/x-ndjson")


@needs(Role.OPERATOR)
def start(request: Request) -> Response:
    """Have the workers do what was previewed; the second time nothing is done."""
    found, body = action_id(request), read(request, _decode_start)
    actions.begin(console_of(request), viewer_of(request), found, body.expect)
    return answer({"id": found, "state": "started"}, headers={"Location": f"/api/actions/{found}"})


@needs(Role.OPERATOR)
def order(request: Request) -> Response:
    """Hold, resume or cancel an action."""
    found, what = action_id(request), request.url.path.rpartition("/")[2]
    actions.order(console_of(request), viewer_of(request), what, found, read(request, _decode_order).reason)
    return answer({"id": found, "ordered": what}, HTTPStatus.ACCEPTED)


@needs(Role.OPERATOR)
def undo(request: Request) -> Response:
    """Work out what can be undone of a discard: a preview, to be started as any other."""
    reason = read(request, _decode_order).reason
    return _previewed(request, actions.ask_undo(console_of(request), viewer_of(request), action_id(request), reason))


def _previewed(request: Request, kept: KeptPreview) -> Response:
    kept.done.wait(_WAIT_S)
    if kept.fault is not None:
        raise kept.fault
    status = HTTPStatus.CREATED if kept.done.is_set() else HTTPStatus.ACCEPTED
    return answer(told.kept_object(kept, console_of(request).registry()), status, {"Location": f"/api/actions/{kept.id}"})
