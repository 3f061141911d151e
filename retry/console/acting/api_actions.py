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
from retry.console.acting.api_answers import Words, limit_of, none, read, respond_json
from retry.console.acting.previews import KeptPreview
from retry.console.acting.shards import load_shard_numbers as shards_of
from retry.console.web.app import body_of, console_of, query_of, viewer_of
from retry.console.web.rights import Role, needs
from retry.operations.act.members import list_member_results as all_members
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


def build_action_routes() -> list[Route]:
    """Return the routes below `/api/actions`."""
    post = ["POST"]
    return [
        Route("/api/actions", list_actions), Route("/api/actions", create_preview, methods=post),
        Route("/api/actions/{id}", action),
        Route("/api/actions/{id}/members", stream_members), Route("/api/actions/{id}/start", start, methods=post),
        Route("/api/actions/{id}/undo", preview_undo, methods=post),
        *(Route(f"/api/actions/{{id}}/{what}", accept_order, methods=post, name=f"api-{what}") for what in actions.ORDERS),
    ]  # fmt: skip


@needs(Role.VIEWER, "after", "limit")
def list_actions(request: Request) -> Response:
    """A page of actions, those that were asked for last first."""
    given, console = query_of(request), console_of(request)
    some, after = page_of(console, viewer_of(request).scope(), given.get("after", ""), limit_of(given))
    return respond_json({"actions": [told.about_object(each, console.clock_ms()) for each in some], "after": after})


@needs(Role.OPERATOR)
def create_preview(request: Request) -> Response:
    """Work a preview out; nothing is done to any letter."""
    try:
        kept = actions.begin_preview(console_of(request), viewer_of(request), act_form.of_body(body_of(request)))
    except OptionsInvalid as wrong:
        raise HTTPException(HTTPStatus.BAD_REQUEST, str(wrong)) from None
    return _answer_preview(request, kept)


@needs(Role.VIEWER)
def action(request: Request) -> Response:
    """An action with its steps; or a preview that was not started yet."""
    console, viewer, found = console_of(request), viewer_of(request), action_id(request)
    about = standing_actions.action(console.replica, viewer.scope(), found)
    if about is not None:
        return respond_json(told.about_object(about, console.clock_ms()))
    return respond_json(told.kept_object(actions.find_preview(console, viewer, found), console.registry()))


@needs(Role.VIEWER)
def stream_members(request: Request) -> Response:
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
    actions.start_action(console_of(request), viewer_of(request), found, body.expect)
    return respond_json({"id": found, "state": "started"}, headers={"Location": f"/api/actions/{found}"})


@needs(Role.OPERATOR)
def accept_order(request: Request) -> Response:
    """Hold, resume or cancel an action."""
    found, what = action_id(request), request.url.path.rpartition("/")[2]
    actions.send_order(console_of(request), viewer_of(request), what, found, read(request, _decode_order).reason)
    return respond_json({"id": found, "ordered": what}, HTTPStatus.ACCEPTED)


@needs(Role.OPERATOR)
def preview_undo(request: Request) -> Response:
    """Work out what can be undone of a discard: a preview, to be started as any other."""
    reason = read(request, _decode_order).reason
    return _answer_preview(request, actions.ask_undo(console_of(request), viewer_of(request), action_id(request), reason))


def _answer_preview(request: Request, kept: KeptPreview) -> Response:
    kept.done.wait(_WAIT_S)
    if kept.fault is not None:
        raise kept.fault
    status = HTTPStatus.CREATED if kept.done.is_set() else HTTPStatus.ACCEPTED
    return respond_json(told.kept_object(kept, console_of(request).registry()), status, {"Location": f"/api/actions/{kept.id}"})
