"""Failures: kinds of failures, most letters first, with how they went in the last day."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retry.console.acting.audit import REVEAL
from retry.console.rows import Group, Page
from retry.console.web import filters
from retry.console.web.app import Console, console_of, query_of, render_page, viewer_of
from retry.console.web.rights import Role, Sight, needs
from retry.errors import FilterInvalid
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import EVERYTHING

PART = "failures"
ROWS = 50


def build_routes(console: Console) -> list[Route]:
    console.keep_fresh(PART, "failures_live.html", partial(_build_live_page, console))
    return [Route("/failures", render_failures)]


def _build_live_page(console: Console, sight: Sight, argument: str) -> dict[str, Any] | None:
    given = dict(parse_qsl(argument))
    letter_filter = parse(given.get("q", ""), groups=True)
    if filters.asks_payload(letter_filter):
        # A scope does not say who may see payloads; the page was made for somebody who may, once that was written down.
        return None
    resolved = _wants_resolved(given)
    return _build_page(
        given, console.replica.list_groups(sight.scope, letter_filter, given.get("after"), ROWS, resolved=resolved), sight
    )


@needs(Role.VIEWER, "q", "after", "show")
def render_failures(request: Request) -> Response:
    console, viewer = console_of(request), viewer_of(request)
    given = query_of(request)
    shared: dict[str, Any] = {"q": given.get("q", ""), "resolved": _wants_resolved(given)}
    try:
        letter_filter = filters.read(shared["q"], viewer) if shared["q"] else EVERYTHING
        groups = console.replica.list_groups(viewer.scope(), letter_filter, given.get("after"), ROWS, resolved=shared["resolved"])
        if filters.asks_payload(letter_filter):
            teams = {team for group in groups.rows for team in group.teams}
            console.audit.write(REVEAL, viewer.name, f"filter {letter_filter}", teams=teams)
    except FilterInvalid as fault:
        return render_page(request, "failures.html", HTTPStatus.BAD_REQUEST, fault=fault, groups=None, **shared)
    # What payloads say is looked for once, by the one who asked.
    live = None if filters.asks_payload(letter_filter) else (PART, urlencode(given))
    return render_page(request, "failures.html", fault=None, live=live, **_build_page(given, groups, viewer.sight()))


def _wants_resolved(given: dict[str, str]) -> bool:
    if given.get("show", "open") not in ("open", "resolved"):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "show is open or resolved")
    return given.get("show") == "resolved"


def _build_page(given: dict[str, str], groups: Page[Group], sight: Sight) -> dict[str, Any]:
    return {
        "q": given.get("q", ""), "after": given.get("after", ""), "resolved": _wants_resolved(given), "groups": groups,
        "may": sight.may_act(),
    }  # fmt: skip
