"""Letters: a filter line, and the letters that it means, soonest first."""

from __future__ import annotations

import threading
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlencode

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from retry.console.acting.audit_trail import REVEAL
from retry.console.replica.payloads import Scanned
from retry.console.replica.rows import LetterRow, Page, Scope
from retry.console.web import filters
from retry.console.web.app import Console, console_of, page, query_of, viewer_of
from retry.console.web.rights import Role, needs
from retry.errors import FilterInvalid
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import Filter

PART = "letters"
ROWS = 100
# Each takes a thread for up to ten seconds, and pages of others need some, too.
_SCANS_MAX = 4
_scans = threading.BoundedSemaphore(_SCANS_MAX)


def routes(console: Console) -> list[Route]:
    """The list, and what completes its filter."""

    def fresh(scope: Scope, argument: str) -> str:
        given = dict(parse_qsl(argument))
        meant = parse(given.get("q", ""))
        if filters.asks_payload(meant):
            # Looked for once, by the one who asked.
            return ""
        rows = console.replica.letters(scope, meant, given.get("after"), ROWS)
        return console.templates.get_template("letters_live.html").render(now_ms=console.clock_ms(), **_shown(given, rows))

    console.live.register(PART, fresh)
    return [Route("/letters", show), Route("/letters/complete", complete)]


@needs(Role.VIEWER)
def show(request: Request) -> Response:
    """The letters that a filter means."""
    console, viewer = console_of(request), viewer_of(request)
    given = query_of(request, "q", "after")
    text = given.get("q", "")
    shared: dict[str, Any] = {"saved": console.replica.notes.filters(viewer.scope()), "teams": _teams_to_save_for(request)}
    try:
        meant = filters.read(text, viewer)
        if filters.asks_payload(meant):
            scanned = scan(request, meant, given.get("after"), ROWS)
            found = Page(scanned.rows, scanned.after, len(scanned.rows), scanned.after is not None)
        else:
            found, scanned = console.replica.letters(viewer.scope(), meant, given.get("after"), ROWS), None
    except FilterInvalid as fault:
        return page(request, "letters.html", HTTPStatus.BAD_REQUEST, q=text, fault=fault, rows=None, scanned=None, **shared)
    live = ("", "") if scanned else (PART, urlencode(given))
    return page(request, "letters.html", fault=None, live=live, scanned=scanned, **shared, **_shown(given, found))


def scan(request: Request, meant: Filter, after: str | None, limit: int) -> Scanned:
    """What a filter on payloads means: read from Kafka, by somebody who may, and written down before it is shown.

    Raises:
      HTTPException: 503, as many are looked for as may be at once.
    """
    console, viewer = console_of(request), viewer_of(request)

    def is_cancelled() -> bool:
        return anyio.from_thread.run(request.is_disconnected)

    if not _scans.acquire(blocking=False):
        reason = f"{_SCANS_MAX} filters on payloads are looked for already; ask again in some seconds"
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, reason, {"Retry-After": "5"})
    try:
        scanned = console.replica.payloads.scan(viewer.scope(), meant, after, limit, is_cancelled)
    finally:
        _scans.release()
    teams = {row.team for row in scanned.rows if row.team}
    console.audit.write(REVEAL, viewer.name, f"filter {meant}", [row.name for row in scanned.rows], teams)
    return scanned


def _shown(given: dict[str, str], rows: Page[LetterRow]) -> dict[str, Any]:
    return {"q": given.get("q", ""), "after": given.get("after", ""), "rows": rows}


def _teams_to_save_for(request: Request) -> list[str]:
    viewer = viewer_of(request)
    own = sorted(team for team in viewer.roles if team != "*" and viewer.may(Role.OPERATOR, team))
    return ["", *own] if viewer.may(Role.OPERATOR, None) else own


@needs(Role.VIEWER)
def complete(request: Request) -> Response:
    """What a filter that is begun may become."""
    console, text = console_of(request), query_of(request, "q").get("q", "")
    if len(text) > 2_000:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "a filter has at most 1,024 bytes")
    found = filters.completions(text, console.replica.names(viewer_of(request).scope()))
    return HTMLResponse(console.templates.get_template("completions.html").render(found=found))
