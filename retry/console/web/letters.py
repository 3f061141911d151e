"""Letters: a filter line, and the letters that it means, soonest first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlencode

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from retry.console.acting.audit import REVEAL
from retry.console.reading.payloads import Scanned
from retry.console.rows import LetterRow, Page
from retry.console.web import filters, masks
from retry.console.web.answers import told_of
from retry.console.web.app import Console, console_of, query_of, render_page, viewer_of
from retry.console.web.rights import Role, Sight, needs
from retry.errors import FilterInvalid
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import Filter

PART = "letters"
ROWS = 100
# Each takes a thread for up to ten seconds, and pages of others need some, too.
_SCANS_MAX = 4
_scans = threading.BoundedSemaphore(_SCANS_MAX)
# In the template: what stands above it is sent while payloads are looked into.
_FOLLOWS = "<!-- what was found -->"


def build_routes(console: Console) -> list[Route]:
    console.keep_fresh(PART, "letters_live.html", partial(_build_live_page, console))
    return [Route("/letters", render_letters), Route("/letters/complete", complete)]


def _build_live_page(console: Console, sight: Sight, argument: str) -> dict[str, Any] | None:
    given = dict(parse_qsl(argument))
    letter_filter = parse(given.get("q", ""), groups=True)
    if filters.asks_payload(letter_filter):
        # Looked for once, by the one who asked.
        return None
    masks.demand_filter(console.registry(), sight, letter_filter)
    return _build_page(given, console.replica.list_letters(sight.scope, letter_filter, given.get("after"), ROWS), sight)


@needs(Role.VIEWER, "q", "after")
def render_letters(request: Request) -> Response:
    console, viewer = console_of(request), viewer_of(request)
    given = query_of(request)
    text = given.get("q", "")
    shared: dict[str, Any] = {
        "saved": console.replica.notes.filters(viewer.scope()), "teams": filters.list_teams_to_save_for(viewer), "fault": None,
        "scanned": None, "trouble": "",
    }  # fmt: skip
    try:
        letter_filter = filters.read(text, viewer, console.registry())
        if filters.asks_payload(letter_filter):
            return _scanning(request, letter_filter, given, shared)
        found = console.replica.list_letters(viewer.scope(), letter_filter, given.get("after"), ROWS)
    except FilterInvalid as fault:
        return render_page(request, "letters.html", HTTPStatus.BAD_REQUEST, q=text, rows=None, **{**shared, "fault": fault})
    parts = _build_page(given, found, viewer.sight())
    return render_page(request, "letters.html", live=(PART, urlencode(given)), **shared, **parts)


def _scanning(request: Request, letter_filter: Filter, given: dict[str, str], shared: dict[str, Any]) -> Response:
    """A page whose top is sent at once, with a link that stops the look: whoever follows it closes this page. The rest follows.

    Raises:
      CursorStale: `after` is of another list.
      HTTPException: 503, as many are looked for as may be at once.
    """
    console_of(request).replica.payloads.position(viewer_of(request).scope(), letter_filter, given.get("after"))
    with _room():
        # Said with its status, as long as nothing is sent yet.
        pass
    page = render_page(request, "letters.html", **shared, rows=None, q=given["q"], is_scanning=True)
    top, mark, _ = _decode_body(page).partition(_FOLLOWS)

    def render_parts() -> Iterator[str]:
        yield top + mark
        yield _decode_body(_scanned_page(request, letter_filter, given, shared)).partition(_FOLLOWS)[2]

    # Proxies that keep answers back until they are whole would keep the link back, too.
    return StreamingResponse(render_parts(), media_type="text/html", headers={"X-Accel-Buffering": "no"})


def _scanned_page(request: Request, letter_filter: Filter, given: dict[str, str], shared: dict[str, Any]) -> Response:
    try:
        scanned = scan(request, letter_filter, given.get("after"), ROWS)
    except Exception as error:
        # What was sent already says that all is well; it cannot be taken back.
        told = {**shared, "trouble": told_of(request, error)}
        return render_page(request, "letters.html", rows=None, q=given["q"], is_scanning=True, **told)
    found = Page(scanned.rows, scanned.after, len(scanned.rows), scanned.after is not None)
    shown = _build_page(given, found, viewer_of(request).sight())
    return render_page(request, "letters.html", is_scanning=True, **{**shared, **shown, "scanned": scanned})


def _decode_body(answer: Response) -> str:
    return bytes(answer.body).decode()


@contextmanager
def _room() -> Iterator[None]:
    if not _scans.acquire(blocking=False):
        reason = f"{_SCANS_MAX} filters on payloads are looked for already; ask again in some seconds"
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, reason, {"Retry-After": "5"})
    try:
        yield
    finally:
        _scans.release()


def scan(request: Request, letter_filter: Filter, after: str | None, limit: int) -> Scanned:
    """Scan payloads in Kafka for a viewer who may see them; the audit gets the letters found before they are shown. Raises
    HTTPException 503 where as many are looked for as may be at once."""
    console, viewer = console_of(request), viewer_of(request)

    def is_cancelled() -> bool:
        return anyio.from_thread.run(request.is_disconnected)

    with _room():
        scanned = console.replica.payloads.scan(viewer.scope(), letter_filter, after, limit, is_cancelled)
    teams = {row.team for row in scanned.rows if row.team}
    console.audit.write(REVEAL, viewer.name, f"filter {letter_filter}", [row.name for row in scanned.rows], teams)
    return scanned


def _build_page(given: dict[str, str], rows: Page[LetterRow], sight: Sight) -> dict[str, Any]:
    return {"q": given.get("q", ""), "after": given.get("after", ""), "rows": rows, "may": sight.may_act()}


@needs(Role.VIEWER, "q")
def complete(request: Request) -> Response:
    console, text = console_of(request), query_of(request).get("q", "")
    if len(text) > 2_000:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "a filter has at most 1,024 bytes")
    found = filters.list_completions(text, console.replica.list_filter_names(viewer_of(request).scope()))
    return HTMLResponse(console.templates.get_template("completions.html").render(found=found))
