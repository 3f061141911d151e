"""The page of the audit: who did what to which letters, and who was shown what; kept for a year.

| path | what it shows |
| --- | --- |
| `GET /audit?action=…&by=…&kind=…&team=…&letter=…&after=…` | a page, newest first; each field that is given must be so |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retry.console.acting.audit_trail import REVEAL
from retry.console.replica.other_pages import AUDIT_FIELDS
from retry.console.web.app import Console, console_of, query_of, render_page, viewer_of
from retry.console.web.rights import Role, Sight, needs
from retry.operations.act.options import KINDS

PART = "audit"
ROWS = 100
# Completed where somebody types what was done.
_KINDS = (*KINDS, REVEAL, "cancel", "hold", "pause", "resume")


def build_routes(console: Console) -> list[Route]:
    """The route of the table above."""

    def make_fragment(sight: Sight, argument: str) -> str:
        return console.templates.get_template("audit-live.html").render(**_build_page(console, sight, dict(parse_qsl(argument))))

    console.live.register(PART, make_fragment)
    return [Route("/audit", render_audit)]


@needs(Role.VIEWER, *AUDIT_FIELDS, "after")
def render_audit(request: Request) -> Response:
    """A page of the audit."""
    given = query_of(request)
    shown = _build_page(console_of(request), viewer_of(request).sight(), given)
    return render_page(request, "audit.html", live=(PART, urlencode(given)), **shown)


def _build_page(console: Console, sight: Sight, given: dict[str, str]) -> dict[str, Any]:
    asked = parse_conditions(given)
    found = console.replica.list_audit_rows(sight.scope, given.get("after") or None, ROWS, asked)
    teams = sorted({route.team for route in console.registry().list_routes() if sight.scope is None or route.team in sight.scope})
    return {"found": found, "wanted": asked, "given": given, "teams": teams, "kinds": _KINDS}


def parse_conditions(given: Mapping[str, str]) -> dict[str, str]:
    """Return the values that rows of the audit must have, by field; empty fields are left out."""
    return {name: value for name in AUDIT_FIELDS if (value := given.get(name, "").strip())}
