"""The pages' routes put together as one ASGI application, the templates that they share, and which answers are compressed.

The length of an answer tells what it repeats. Who reads the length of an encrypted answer, and can have a browser ask for a page
with texts of their own choice in its address, finds out letter by letter what else stands on the page (BREACH). So an answer is
compressed where a page of this console asked for it, or somebody who typed its address; browsers say so in `Sec-Fetch-Site`,
which no script can set. What another site leads to is sent as it is, once. Programs come without a cookie, and no other site can
have them ask.

Event streams stay as they are: what is small gains nothing, and no event waits for the next one. Of an answer that is sent in
parts each part is sent at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from retry.console.web import answers, failures, formats, group, letter, letters, now, sign_in_pages
from retry.console.web.app import NAV, Console, assign_keys, console_of
from retry.console.web.guard import guard_route
from retry.console.web.health import Health
from retry.console.web.live import FRESHNESS
from retry.console.web.rights import ANY_FIELD, Role, Sight, needs
from retry.http_server.certificate import Certificate

_BYTES_MIN = 1_000
# Beyond 6 a page takes twice as long, for one byte in a hundred.
_LEVEL = 6
_ASKED_BY_OURSELVES = ("same-origin", "none")


class Compression:
    """An application whose answers are compressed for those who may be told how well they compress."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._compressed = GZipMiddleware(app, _BYTES_MIN, _LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_safe = scope["type"] == "http" and _is_asked_by_ourselves(Headers(scope=scope))
        await (self._compressed if is_safe else self._plain)(scope, receive, send)


def _is_asked_by_ourselves(headers: Headers) -> bool:
    if (site := headers.get("sec-fetch-site")) is not None:
        return site in _ASKED_BY_OURSELVES
    return "cookie" not in headers


# Scripts, styles and the icon: read once, served under the hash of what they hold, so browsers may keep them for ever.

FOLDER = Path(__file__).parent / "static"
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_HASH_CHARS = 16
_FOR_EVER = "public, max-age=31536000, immutable"


class Asset(NamedTuple):
    """One static file: the first 16 hex digits of its SHA-256, its media type, and its bytes."""

    hash: str
    kind: str
    content: bytes


class Assets:
    """All files of a folder, by their path below it."""

    def __init__(self, folder: Path = FOLDER) -> None:
        files = sorted(each for each in folder.rglob("*") if each.suffix in _KINDS)
        self._assets: Mapping[str, Asset] = {each.relative_to(folder).as_posix(): _asset(each) for each in files}

    def address(self, name: str) -> str:
        """Return the path of the URL under which browsers get a file."""
        return f"/static/{self._assets[name].hash}/{name}"

    def build_routes(self) -> list[Route]:
        """Build the one route of all static files; it needs no role, because the page to sign in needs the files."""

        @needs(None, ANY_FIELD)
        def send(request: Request) -> Response:
            asset = self._assets.get(request.path_params["name"])
            if asset is None or asset.hash != request.path_params["hash"]:
                raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such file; load the page again")
            return Response(asset.content, media_type=asset.kind, headers={"Cache-Control": _FOR_EVER})

        return [Route("/static/{hash}/{name:path}", send)]


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    return Asset(hashlib.sha256(content).hexdigest()[:_HASH_CHARS], _KINDS[path.suffix], content)


Routes = Callable[[Console], list[Route]]
_PACKAGES = ("web", "acting", "notifications")
_TEMPLATES = tuple(Path(__file__).parents[1] / package / "templates" for package in _PACKAGES)
OWN: tuple[Routes, ...] = (
    sign_in_pages.build_routes, now.build_routes, failures.build_routes, group.build_routes, letters.build_routes,
    letter.build_routes,
)  # fmt: skip


def build_templates(assets: Assets) -> jinja2.Environment:
    """Build the template environment: it escapes what templates show, and an unknown name in a template is an error."""
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    found.filters.update(formats.FILTERS)
    found.globals.update(asset=assets.address, bars=formats.bars, hours=formats.hours, Role=Role)
    return found


def build_application(
    console: Console, assets: Assets, more: Iterable[Routes] = (), certificate: Certificate | None = None,
    registry: CollectorRegistry | None = None,
) -> ASGIApp:  # fmt: skip
    """Build the web application of the console, with all that it answers.

    Args:
      more: what other packages serve, a function each.
      certificate: with which it is served, so that health tells of it.
      registry: what else its metrics show.

    Raises:
      TypeError: an endpoint does not say which role it needs.
    """
    health = Health(console, certificate, registry)
    routes = [*health.build_routes(), *assets.build_routes(), *console.live.build_routes()]
    for each in (*OWN, *more):
        routes += each(console)
    console.live.register(FRESHNESS, partial(_freshness, console))
    paths = {route.path for route in routes}
    console.nav = [link for link in assign_keys(NAV) if link.path in paths]
    console.routes = [guard_route(route) for route in routes]
    app = Starlette(routes=console.routes, exception_handlers={HTTPException: _no_route, Exception: _no_route})
    app.state.console = console
    return answers.SecurityHeaders(Compression(health.count_answers(app)), secure=console.sign_in.origin.secure)


def _no_route(request: Request, error: Exception) -> Response:
    # What an endpoint raises has been answered; this is of paths and methods that there are none for.
    if isinstance(error, HTTPException) and error.status_code in (404, 405):
        error.detail = "there is no such page"
        if known := console_of(request).sign_in.find_session(request):
            request.state.session, request.state.viewer = known
    return answers.answer_error(request, error)


def _freshness(console: Console, sight: Sight, argument: str) -> str:
    """How old what a page shows is; the argument is of a part that could not be made anew: as of when it is, and why."""
    fresh = console.replica.freshness()
    at_ms, _, fault = argument.partition(" ")
    shown: dict[str, Any] = {
        "freshness": fresh, "as_of_ms": int(at_ms) if fault else fresh.as_of_ms, "part_fault": fault, "is_event": True,
        "now_ms": console.clock_ms(), "sees_all": sight.scope is None,
    }  # fmt: skip
    return console.templates.get_template("freshness.html").render(**shown)
