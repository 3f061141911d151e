"""The page of the audit: who did what to which letters, and who was shown what; kept for a year.

| path | what it shows |
| --- | --- |
| `GET /audit?action=…&after=…` | a page, newest first; of one action, or of all |
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retry.console.web.app import Console, console_of, page, query_of, viewer_of
from retry.console.web.rights import Role, needs

PAGE = 100


def routes(console: Console) -> list[Route]:  # noqa: ARG001
    """The route of the table above."""
    return [Route("/audit", show)]


@needs(Role.VIEWER)
def show(request: Request) -> Response:
    """A page of the audit."""
    given = query_of(request, "action", "after")
    action = given.get("action", "").strip().lower()
    replica, scope = console_of(request).replica, viewer_of(request).scope()
    found = replica.audit(scope, given.get("after") or None, PAGE, action=action)
    return page(request, "audit.html", found=found, action=action)
