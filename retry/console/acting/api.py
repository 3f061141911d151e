"""The API below `/api/`: the same letters, groups, actions, pauses and audit as the pages, as JSON; `openapi` describes it.

Whoever asks has a token of the console, or has signed in. What a token may not see is not there: ids of others are 404.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from retry.clock import iso
from retry.console.acting import actions, api_answers, audit, openapi, pauses, standing_actions
from retry.console.acting.act_pages import action_id, parse_body
from retry.console.acting.action_pages import list_page
from retry.console.acting.api_answers import Words, demand, limit_of, read, respond_json
from retry.console.acting.audit import REVEAL
from retry.console.acting.previews import KeptPreview
from retry.console.reading.advice import Told, read_advice
from retry.console.reading.group_list import OPEN
from retry.console.reading.lists import AUDIT_FIELDS
from retry.console.rows import FailureState, Group, LetterRow
from retry.console.web import filters, masks
from retry.console.web.app import Console, body_of, console_of, query_of, viewer_of
from retry.console.web.letter import explain_letter
from retry.console.web.letters import scan
from retry.console.web.rights import Role, Viewer, needs
from retry.operations.act.action_report import list_member_results, member_row
from retry.operations.act.options import OptionsInvalid
from retry.operations.act.overview import ORDERS
from retry.operations.control_requests import describe_pauses
from retry.operations.moments import parse_moment_ms
from retry.policies.masks import MESSAGE

# The part of the API that is about actions: previewed, started once, ordered, and each letter of them told.

_WAIT_S = 20.0


class StartBody(msgspec.Struct, forbid_unknown_fields=True):
    expect: int | None = None


class OrderBody(msgspec.Struct, forbid_unknown_fields=True):
    reason: Words = ""


_decode_start = msgspec.json.Decoder(StartBody).decode
_decode_order = msgspec.json.Decoder(OrderBody).decode


@needs(Role.VIEWER, "after", "limit")
def list_actions(request: Request) -> Response:
    given, console = query_of(request), console_of(request)
    some, after = list_page(console, viewer_of(request).scope(), given.get("after", ""), limit_of(given))
    return respond_json({"actions": [api_answers.about_object(each, console.clock_ms()) for each in some], "after": after})


@needs(Role.OPERATOR)
def create_preview(request: Request) -> Response:
    try:
        kept = actions.begin_preview(console_of(request), viewer_of(request), parse_body(body_of(request)))
    except OptionsInvalid as wrong:
        raise HTTPException(HTTPStatus.BAD_REQUEST, str(wrong)) from None
    return _answer_preview(request, kept)


@needs(Role.VIEWER)
def action(request: Request) -> Response:
    console, viewer, found = console_of(request), viewer_of(request), action_id(request)
    about = standing_actions.find_action(console.replica, viewer.scope(), found)
    if about is not None:
        outcome = api_answers.outcome_object(standing_actions.load_outcome(console.replica, about))
        return respond_json({**api_answers.about_object(about, console.clock_ms()), "outcome": outcome})
    return respond_json(api_answers.kept_object(actions.find_preview(console, viewer, found), console.registry(), viewer.sight()))


@needs(Role.VIEWER)
def stream_members(request: Request) -> Response:
    console, found = console_of(request), action_id(request)
    about = demand(standing_actions.find_action(console.replica, viewer_of(request).scope(), found), "action")
    rows = list_member_results(console.settings, standing_actions.load_shard_numbers(console), about)
    lines = (orjson.dumps(member_row(each)) + b"\n" for each in rows)
    return StreamingResponse(lines, media_type="application/x-ndjson")


@needs(Role.OPERATOR)
def start(request: Request) -> Response:
    found, body = action_id(request), read(request, _decode_start)
    actions.start_action(console_of(request), viewer_of(request), found, body.expect)
    return respond_json({"id": found, "state": "started"}, headers={"Location": f"/api/actions/{found}"})


@needs(Role.OPERATOR)
def accept_order(request: Request) -> Response:
    found, what = action_id(request), request.url.path.rpartition("/")[2]
    actions.send_order(console_of(request), viewer_of(request), what, found, read(request, _decode_order).reason)
    return respond_json({"id": found, "ordered": what}, HTTPStatus.ACCEPTED)


@needs(Role.OPERATOR)
def preview_undo(request: Request) -> Response:
    reason = read(request, _decode_order).reason
    return _answer_preview(
        request, actions.begin_undo_preview(console_of(request), viewer_of(request), action_id(request), reason)
    )


def _answer_preview(request: Request, kept: KeptPreview) -> Response:
    kept.done.wait(_WAIT_S)
    if kept.fault is not None:
        raise kept.fault
    status = HTTPStatus.CREATED if kept.done.is_set() else HTTPStatus.ACCEPTED
    shown = api_answers.kept_object(kept, console_of(request).registry(), viewer_of(request).sight())
    return respond_json(shown, status, {"Location": f"/api/actions/{kept.id}"})


_PAUSE_FIELDS = ("scope", "name", "reason")


class PauseBody(msgspec.Struct, forbid_unknown_fields=True):
    scope: str
    name: Words = ""
    reason: Words = ""
    until: str | None = None
    force: bool = False


_decode_pause = msgspec.json.Decoder(PauseBody).decode


def build_routes(console: Console) -> list[Route]:  # noqa: ARG001
    return [
        Route("/api/now", answer_now), Route("/api/viewer", answer_viewer), Route("/api/advice", answer_advice),
        Route("/api/letters", list_letters), Route("/api/letters/{name:path}", get_letter),
        Route("/api/groups", answer_groups), Route("/api/groups/{id}", get_group), Route("/api/audit", answer_audit),
        Route("/api/actions", list_actions), Route("/api/actions", create_preview, methods=["POST"]),
        Route("/api/actions/{id}", action), Route("/api/actions/{id}/members", stream_members),
        Route("/api/actions/{id}/start", start, methods=["POST"]),
        Route("/api/actions/{id}/undo", preview_undo, methods=["POST"]),
        *(Route(f"/api/actions/{{id}}/{what}", accept_order, methods=["POST"], name=f"api-{what}") for what in ORDERS),
        Route("/api/pauses", list_pauses), Route("/api/pauses", pause, methods=["POST"]),
        Route("/api/pauses", resume, methods=["DELETE"]), Route("/api/openapi.json", document),
    ]  # fmt: skip


@needs(Role.VIEWER)
def answer_now(request: Request) -> Response:
    replica, scope = console_of(request).replica, viewer_of(request).scope()
    # Asked first: what is shown then is at least as fresh as that says.
    freshness = replica.freshness()
    return respond_json(api_answers.build_now_object(replica.load_now(scope), freshness, scope))


@needs(Role.VIEWER, "q", "after", "limit")
def list_letters(request: Request) -> Response:
    given, console, viewer = query_of(request), console_of(request), viewer_of(request)
    words, after = given.get("q", ""), given.get("after") or None
    letter_filter, limit = filters.read(words, viewer, console.registry()), limit_of(given)
    describe = partial(_describe_letters, console, viewer)
    if filters.asks_payload(letter_filter):
        found = scan(request, letter_filter, after, limit)
        letters = describe(found.rows)
        return respond_json({"letters": letters, "after": found.after, "looked_at": found.looked_at, "ended": found.why_ended})
    page = console.replica.list_letters(viewer.scope(), letter_filter, after, limit)
    return respond_json({
        "letters": describe(page.rows), "after": page.after, "count": page.count,
        "is_capped": page.is_capped, "nothing_matches": page.nothing_matches,
    })  # fmt: skip


@needs(Role.VIEWER)
def answer_viewer(request: Request) -> Response:
    """Answer who asks and what they may do, for programs that offer no more than that."""
    viewer = viewer_of(request)
    return respond_json({"name": viewer.name, "roles": dict(viewer.roles), "reveal": sorted(viewer.reveal)})


@needs(Role.VIEWER)
def answer_advice(request: Request) -> Response:
    file, scope = console_of(request).settings.console_advice, viewer_of(request).scope()
    found = Told([], fault="RETRY_CONSOLE_ADVICE names no file") if file is None else read_advice(file, scope)
    return respond_json({
        "advice": found.rows, "more": found.more, "at": iso(found.at_ms), "fault": found.fault or None, "diff": list(found.diff),
    })  # fmt: skip


def _describe_letters(console: Console, viewer: Viewer, rows: Sequence[LetterRow]) -> list[dict[str, Any]]:
    registry, sight = console.registry(), viewer.sight()
    return [api_answers.describe_letter(row, masks.find_masked(registry, sight, row.team)) for row in rows]


@needs(Role.VIEWER, "reveal", "explain")
def get_letter(request: Request) -> Response:
    given, console, viewer = query_of(request), console_of(request), viewer_of(request)
    name = str(request.path_params["name"])
    row = demand(console.replica.find_letter(viewer.scope(), name), "letter")
    masked = masks.find_masked(console.registry(), viewer.sight(), row.team)
    shown = api_answers.describe_letter(row, masked)
    if given.get("explain") in ("1", "true"):
        found = demand(console.replica.payloads.find_letter(viewer.scope(), name), "letter")
        shown["explained"] = explain_letter(console, row, found, has_message=MESSAGE not in masked.others)
    if given.get("reveal") in ("1", "true"):
        if not viewer.may_reveal(row.team):
            raise HTTPException(HTTPStatus.FORBIDDEN, "this takes the right to reveal payloads of this team")
        found = demand(console.replica.payloads.find_letter(viewer.scope(), name), "letter")
        console.audit.reveal(viewer.name, [name], [row.team or ""])
        decoded = console.framed.decode(found.value) if masked.paths and console.framed and found.value else None
        shown |= api_answers.describe_payload(found, masked, decoded.json if decoded else None)
    return respond_json(shown)


@needs(Role.VIEWER, "q", "after", "limit", "resolved")
def answer_groups(request: Request) -> Response:
    given, console = query_of(request), console_of(request)
    letter_filter = filters.read(given.get("q", ""), viewer_of(request), console.registry())
    page = console.replica.list_groups(
        viewer_of(request).scope(), letter_filter, given.get("after") or None, limit_of(given),
        show=FailureState.RESOLVED if given.get("resolved") in ("1", "true") else OPEN, counts_beside=False,
    )  # fmt: skip
    if filters.asks_payload(letter_filter):
        teams = {team for row in page.rows for team in row.teams}
        console.audit.write(REVEAL, viewer_of(request).name, f"filter {letter_filter}", teams=teams)
    rows = [_describe_group(request, row) for row in page.rows]
    return respond_json({"groups": rows, "after": page.after, "count": page.count, "is_capped": page.is_capped})


@needs(Role.VIEWER)
def get_group(request: Request) -> Response:
    found = console_of(request).replica.find_group(viewer_of(request).scope(), str(request.path_params["id"]))
    return respond_json(_describe_group(request, demand(found, "group")))


def _describe_group(request: Request, row: Group) -> dict[str, Any]:
    registry, sight = console_of(request).registry(), viewer_of(request).sight()
    return api_answers.describe_group(row, is_message_masked=masks.hides(registry, sight, MESSAGE, row.teams))


@needs(Role.VIEWER, *AUDIT_FIELDS, "after", "limit")
def answer_audit(request: Request) -> Response:
    given = query_of(request)
    scope, after = viewer_of(request).scope(), given.get("after") or None
    page = console_of(request).replica.list_audit_rows(scope, after, limit_of(given), audit.parse_conditions(given))
    return respond_json({"audit": [api_answers.build_audit_object(row) for row in page.rows], "after": page.after})


@needs(Role.VIEWER)
def list_pauses(request: Request) -> Response:
    found = pauses.list_visible_pauses(console_of(request), viewer_of(request).scope())
    return respond_json({"pauses": describe_pauses(found)})


@needs(Role.OPERATOR)
def pause(request: Request) -> Response:
    body = read(request, _decode_pause)
    try:
        until_ms = None if body.until is None else parse_moment_ms(body.until)
    except ValueError as wrong:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"until: {wrong}") from None
    console, viewer = console_of(request), viewer_of(request)
    pauses.pause_scope(console, viewer, body.scope, body.name, body.reason, until_ms, force=body.force)
    return respond_json({"scope": body.scope, "name": body.name or None}, HTTPStatus.CREATED)


@needs(Role.OPERATOR, *_PAUSE_FIELDS)
def resume(request: Request) -> Response:
    scope, name, reason = (query_of(request).get(field, "") for field in _PAUSE_FIELDS)
    pauses.resume_scope(console_of(request), viewer_of(request), scope, name, reason)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@needs(Role.VIEWER)
def document(request: Request) -> Response:  # noqa: ARG001
    return respond_json(openapi.DOCUMENT)
