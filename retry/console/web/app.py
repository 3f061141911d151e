"""The application: what all pages share, how their routes are put together, and how a page is made.

A module of pages exports `build_routes(console) -> list[Route]`, which is called once. Its endpoints are plain functions of a
request, run in a thread, so they may ask SQLite and Kafka:

    @needs(Role.VIEWER, "q", "after")
    def render_letter(request: Request) -> Response:
        row = console_of(request).replica.find_letter(viewer_of(request).scope(), request.path_params["name"])
        return render_page(request, "letter.html", row=row)

Before an endpoint runs all fields of its address, or of the form that was posted, are among those that it says it knows. Whoever
posts is signed in, comes from the same origin with the token of this sign-in, and has sent a body that is small; `form_of` has
the fields and `body_of` the bytes. Errors of `retry.errors` become an answer by themselves, see `answers`: a page for browsers
and `application/problem+json` below `/api/`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import jinja2
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from retry import clock
from retry.console.reading.decoders import Decoders
from retry.console.reading.replica import Replica
from retry.console.web import masks
from retry.console.web.rights import Sight, Viewer
from retry.operations.cluster import Cluster
from retry.policies.registry import Registry
from retry.scheduling.tasks.framed_values import FramedValues
from retry.settings import Settings

if TYPE_CHECKING:
    from retry.console.acting.audit import AuditTrail
    from retry.console.acting.previews import Previews
    from retry.console.acting.standing_actions import RampLines
    from retry.console.web.live import Live
    from retry.console.web.sessions import Session
    from retry.console.web.sign_in import SignIn

_Found = TypeVar("_Found")
# In the order in which they are shown; a page that no module serves is left out.
NAV = (
    ("Now", "/"), ("Failures", "/failures"), ("Letters", "/letters"), ("Actions", "/actions"), ("Pauses", "/pauses"),
    ("Policies", "/policies"), ("Schedules", "/schedules"), ("Tasks", "/tasks"), ("Timers", "/timers"),
    ("Notifications", "/notifications"), ("Audit", "/audit"), ("Workers", "/workers"),
)  # fmt: skip


class PageLink(NamedTuple):
    """A page of the navigation, and the key that leads there after `g`; empty where no letter of its name is free."""

    text: str
    path: str
    key: str


def assign_keys(pages: Iterable[tuple[str, str]]) -> list[PageLink]:
    """Give each page the first letter of its name that no page before it has.

    >>> [link.key for link in assign_keys([("Pauses", "/pauses"), ("Policies", "/policies")])]
    ['p', 'o']
    """
    links: list[PageLink] = []
    for text, path in pages:
        taken = {link.key for link in links}
        links.append(PageLink(text, path, next((letter for letter in text.lower() if letter not in taken), "")))
    return links


@dataclass
class Console:
    """The parts that all pages share; there is one for each process.

    Attributes:
      registry: gives the newest registry of the policy file.
      audit: writes what viewers did, before they see that it is done.
      live: pushes parts of pages to who looks at them; a module registers its parts with `keep_fresh`.
      list_ramps: what every page shows of ramps that are not done, by what its viewer sees; see
        `retry.console.acting.standing_actions`.
      nav, routes: links to the pages that there are, and all that is answered; filled by `retry.console.web.application`.
    """

    settings: Settings
    replica: Replica
    registry: Callable[[], Registry]
    audit: AuditTrail
    previews: Previews
    sign_in: SignIn
    live: Live
    templates: jinja2.Environment
    clock_ms: Callable[[], int] = clock.wall_ms
    nav: list[PageLink] = field(default_factory=list)
    list_ramps: Callable[[Sight], RampLines | None] = lambda _sight: None
    routes: list[Route] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._connecting = threading.Lock()

    def cluster(self) -> Cluster:
        """Connect to the brokers where that is not done yet; raises BrokersUnreachable."""
        with self._connecting:
            return self._cluster

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self.settings)

    @cached_property
    def framed(self) -> FramedValues | None:
        """The reader of values that are framed for a schema registry; None where the settings name no registry."""
        return FramedValues(self.settings.registry) if self.settings.registry else None

    @cached_property
    def decoders(self) -> Decoders:
        """The decoders of the user's own that the settings name for topics."""
        return Decoders(self.settings.console_decoders)

    def keep_fresh(self, part: str, template: str, build: Callable[[Sight, str], dict[str, Any] | None]) -> None:
        """Register a part of pages, see `retry.console.web.live`: a template, and what makes its values; None leaves it empty."""

        def render(sight: Sight, argument: str) -> str:
            shown = build(sight, argument)
            if shown is None:
                return ""
            about = {"now_ms": self.clock_ms(), "hides": partial(masks.hides, self.registry(), sight)}
            return self.templates.get_template(template).render(**about, **shown)

        self.live.register(part, render)


def console_of(request: Request) -> Console:
    return request.app.state.console


def viewer_of(request: Request) -> Viewer:
    """Return the viewer who sends a request. Only for endpoints that need a role: others also serve unknown viewers."""
    return request.state.viewer


def session_of(request: Request) -> Session | None:
    """Return the sign-in session of a request; None for a request with an API token, or from somebody not signed in."""
    return getattr(request.state, "session", None)


def form_of(request: Request) -> FormData:
    return request.state.form


def body_of(request: Request) -> bytes:
    """Return the body that was posted, at most 1 MiB."""
    return request.state.body


def query_of(request: Request) -> dict[str, str]:
    return dict(request.query_params)


def demand_found(found: _Found | None, told: str) -> _Found:
    """Return what was found; raises HTTPException 404, with a sentence for who asked, where that is nothing."""
    if found is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, told)
    return found


def render_page(
    request: Request, template: str, status: int = HTTPStatus.OK, live: tuple[str, str] | None = None, **context: Any
) -> Response:
    """Render a page, or the answer to a form, from a template in any module's `templates`, with what every page has.

    Args:
      live: the part that keeps it fresh, and its argument; see `retry.console.web.live`. A page without one says that it does not
        refresh itself.
      context: `as_of_ms` says when what is shown was so, where that is not when the replica was last up to date.

    A template begins with `{% extends "layout.html" %}` and fills the blocks `title` and `main`. It has besides `context`:
    `viewer` (None where nobody is signed in), `csrf` (the value of the hidden field `csrf` that every form with method post has),
    `freshness`, `nav`, `path`, `now_ms`, `hides` (what policies mask) and `Role`. Filters: `visible` (every text that a record
    said goes through it), `unless`, `moment`, `ago`, `duration`, `number`. Functions: `asset(file)` is the address of a static
    file.
    """
    console, session, viewer = console_of(request), session_of(request), getattr(request.state, "viewer", None)
    # As of before what is shown was looked up, so that it is at least as fresh as the page says.
    freshness = getattr(request.state, "freshness", None) or console.replica.freshness()
    shared = {
        "viewer": viewer, "csrf": session.mask_csrf() if session else "", "freshness": freshness, "as_of_ms": freshness.as_of_ms,
        "live": live, "is_event": False, "part_fault": "", "sees_all": viewer is not None and viewer.scope() is None,
        "again": str(request.url.replace(scheme="", netloc="")) if request.method == "GET" else "",
        "ramps": console.list_ramps(viewer.sight()) if viewer else None,
        "hides": (lambda part, teams: masks.hides(console.registry(), viewer.sight(), part, teams)) if viewer else None,
        "nav": console.nav if viewer else [], "path": request.url.path, "now_ms": console.clock_ms(),
    }  # fmt: skip
    return HTMLResponse(console.templates.get_template(template).render(**{**shared, **context}), status)
