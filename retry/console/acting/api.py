"""The API below `/api/`: the same letters, groups, actions, pauses and audit as the pages, as JSON; `openapi` describes it.

Whoever asks has a token of the console, or has signed in. What a token may not see is not there: ids of others are 404.
"""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retry.console.acting import api_actions, api_rows, audit_page, openapi, pauses, told
from retry.console.acting.api_answers import Words, answer, limit_of, none, read
from retry.console.acting.audit_trail import REVEAL
from retry.console.replica.other_pages import AUDIT_FIELDS
from retry.console.web import filters
from retry.console.web.app import Console, console_of, query_of, viewer_of
from retry.console.web.letters import scan
from retry.console.web.rights import Role, needs
from retry.operations.moments import moment_ms

_PAUSE_FIELDS = ("scope", "name", "reason")


class PauseBody(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON body of a request to pause; see `retry.console.acting.pauses`."""

    scope: str
    name: Words = ""
    reason: Words = ""
    until: str | None = None
    force: bool = False


_decode_pause = msgspec.json.Decoder(PauseBody).decode


def routes(console: Console) -> list[Route]:  # noqa: ARG001
    """Every route of the API."""
    return [
        Route("/api/now", now), Route("/api/letters", letters), Route("/api/letters/{name:path}", letter),
        Route("/api/groups", groups), Route("/api/groups/{id}", group), Route("/api/audit", audit),
        *api_actions.routes(),
        Route("/api/pauses", list_pauses), Route("/api/pauses", pause, methods=["POST"]),
        Route("/api/pauses", resume, methods=["DELETE"]), Route("/api/openapi.json", document),
    ]  # fmt: skip


@needs(Role.VIEWER)
def now(request: Request) -> Response:
    """Answer with the numbers and lists of the page Now, as JSON."""
    replica, scope = console_of(request).replica, viewer_of(request).scope()
    return answer(api_rows.now(replica.now(scope), replica.freshness(), scope))


@needs(Role.VIEWER, "q", "after", "limit")
def letters(request: Request) -> Response:
    """A page of letters that a filter means; payloads are looked into for who may see them, and that is written down."""
    given, console, viewer = query_of(request), console_of(request), viewer_of(request)
    words, after = given.get("q", ""), given.get("after") or None
    meant, limit = filters.read(words, viewer), limit_of(given)
    if filters.asks_payload(meant):
        found = scan(request, meant, after, limit)
        rows = [api_rows.letter(row) for row in found.rows]
        return answer({"letters": rows, "after": found.after, "looked_at": found.looked_at, "ended": found.why_ended})
    page = console.replica.letters(viewer.scope(), meant, after, limit)
    return answer({
        "letters": [api_rows.letter(row) for row in page.rows], "after": page.after, "count": page.count,
        "is_capped": page.is_capped, "nothing_matches": page.nothing_matches,
    })  # fmt: skip


@needs(Role.VIEWER, "reveal")
def letter(request: Request) -> Response:
    """One letter; with `reveal=1` headers and payload, too."""
    given, console, viewer = query_of(request), console_of(request), viewer_of(request)
    name = str(request.path_params["name"])
    row = console.replica.letter(viewer.scope(), name)
    if row is None:
        raise none("letter")
    shown = api_rows.letter(row)
    if given.get("reveal") in ("1", "true"):
        if not viewer.may_reveal(row.team):
            raise HTTPException(HTTPStatus.FORBIDDEN, "this takes the right to reveal payloads of this team")
        found = console.replica.payloads.found(viewer.scope(), name)
        if found is None:
            raise none("letter")
        console.audit.reveal(viewer.name, [name], [row.team or ""])
        shown |= api_rows.payload(found)
    return answer(shown)


@needs(Role.VIEWER, "q", "after", "limit", "resolved")
def groups(request: Request) -> Response:
    """A page of kinds of failures, most letters first."""
    given, console = query_of(request), console_of(request)
    meant = filters.read(given.get("q", ""), viewer_of(request))
    page = console.replica.groups(
        viewer_of(request).scope(), meant, given.get("after") or None, limit_of(given),
        resolved=given.get("resolved") in ("1", "true"),
    )  # fmt: skip
    if filters.asks_payload(meant):
        teams = {team for row in page.rows for team in row.teams}
        console.audit.write(REVEAL, viewer_of(request).name, f"filter {meant}", teams=teams)
    rows = [api_rows.group(row) for row in page.rows]
    return answer({"groups": rows, "after": page.after, "count": page.count, "is_capped": page.is_capped})


@needs(Role.VIEWER)
def group(request: Request) -> Response:
    """One kind of failures."""
    found = console_of(request).replica.group(viewer_of(request).scope(), str(request.path_params["id"]))
    if found is None:
        raise none("group")
    return answer(api_rows.group(found))


@needs(Role.VIEWER, *AUDIT_FIELDS, "after", "limit")
def audit(request: Request) -> Response:
    """A page of the audit, newest first."""
    given = query_of(request)
    scope, after = viewer_of(request).scope(), given.get("after") or None
    page = console_of(request).replica.audit(scope, after, limit_of(given), audit_page.wanted(given))
    return answer({"audit": [api_rows.audit(row) for row in page.rows], "after": page.after})


@needs(Role.VIEWER)
def list_pauses(request: Request) -> Response:
    """List the pauses that concern the viewer's teams, the oldest first."""
    console = console_of(request)
    found = pauses.visible(console, console.replica.controls(), viewer_of(request).scope())
    return answer({"pauses": told.pause_objects(found)})


@needs(Role.OPERATOR)
def pause(request: Request) -> Response:
    """Hold back what is named; takes the place of a former pause of the same."""
    body = read(request, _decode_pause)
    try:
        until_ms = None if body.until is None else moment_ms(body.until)
    except ValueError as wrong:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"until: {wrong}") from None
    console, viewer = console_of(request), viewer_of(request)
    pauses.pause(console, viewer, body.scope, body.name, body.reason, until_ms, force=body.force)
    return answer({"scope": body.scope, "name": body.name or None}, HTTPStatus.CREATED)


@needs(Role.OPERATOR, *_PAUSE_FIELDS)
def resume(request: Request) -> Response:
    """End the pause of a scope and a name."""
    given = query_of(request)
    scope, name, reason = (given.get(field, "") for field in _PAUSE_FIELDS)
    pauses.resume(console_of(request), viewer_of(request), scope, name, reason)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@needs(Role.VIEWER)
def document(request: Request) -> Response:  # noqa: ARG001
    """The description of the API."""
    return answer(openapi.DOCUMENT)
