"""What is checked before an endpoint runs, for every route alike; where it fails the endpoint is not called.

1. Without a sign-in the console answers under names of loopback alone, so that no other site can make itself one of them.
2. Who asks: a cookie, or below `/api/` a token. Who is not known is sent to `/sign-in`; a program gets 401.
3. The role that the endpoint needs, in one team at least: 403.
4. A request that changes something and comes with a cookie: the same origin, and the token of this sign-in: 403.
5. Its body: 1 MiB at most.
6. The fields of its address, or of the form: those that the endpoint knows, each once: 400.
"""

from __future__ import annotations

from collections import Counter
from functools import wraps
from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, ImmutableMultiDict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from retry.console.web.answers import answer_error, is_api
from retry.console.web.app import Console, console_of, session_of
from retry.console.web.rights import ANY_FIELD, Role, Viewer
from retry.console.web.sign_in import names_loopback

BODY_BYTES_MAX = 1 << 20
CSRF_FIELD, CSRF_HEADER = "csrf", "x-csrf"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_FIELDS_MAX = 12_000


def guard_route(route: Route) -> Route:
    """Copy a route, so that each request is checked before its endpoint runs; raises TypeError where that names no role."""
    endpoint: Any = route.endpoint
    if not hasattr(endpoint, "needs"):
        raise TypeError(f"{route.path}: its endpoint has no @needs(…)")

    @wraps(endpoint)
    async def check_request(request: Request) -> Response:
        try:
            begun = await _check_session(request, endpoint)
            if isinstance(begun, Response):
                return begun
            if request.method in _SAFE:
                request.state.freshness = console_of(request).replica.freshness()
            run = endpoint(request) if iscoroutinefunction(endpoint) else run_in_threadpool(endpoint, request)
            answer = await run
            if begun:
                console_of(request).sign_in.set_cookie(answer, begun)
        except Exception as error:
            # A page of what went wrong asks the replica how old it is.
            return await run_in_threadpool(answer_error, request, error)
        return answer

    return Route(route.path, check_request, methods=list(route.methods or ()), name=route.name)


async def _check_session(request: Request, endpoint: Any) -> Response | str:
    """The answer where that is one already, or the secret of a sign-in that has just begun."""
    console, begun = console_of(request), ""
    role: Role | None = endpoint.needs
    if console.sign_in.is_open and not names_loopback(request):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "without a sign-in this is for loopback: ask localhost or 127.0.0.1")
    known = await run_in_threadpool(console.sign_in.find_session, request)
    if known is None and console.sign_in.is_open and role is not None and request.method in _SAFE:
        begun, session = console.sign_in.begin_locally()
        known = session, session.viewer() or Viewer("")
    if known is not None:
        request.state.session, request.state.viewer = known
    by_token = known is None and is_api(request) and await _signed_in_by_token(request, console)
    if role is not None and not hasattr(request.state, "viewer"):
        return _answer_unknown(request)
    if role is not None and not request.state.viewer.may_anywhere(role):
        raise HTTPException(HTTPStatus.FORBIDDEN, f"this takes the role {role} in a team, and you have it in none")
    if request.method not in _SAFE:
        await _read(request)
        if not by_token:
            _demand_own_page(request, console, needs_token=role is not None)
    _demand_known_fields(request, endpoint)
    return begun


async def _signed_in_by_token(request: Request, console: Console) -> bool:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer":
        return False
    if not console.sign_in.take_attempt(request):
        raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS, "too many tokens failed; try again later", {"Retry-After": "6"})
    viewer = await run_in_threadpool(console.sign_in.bearer, token.strip())
    if viewer is None:
        request.state.refusal = await run_in_threadpool(console.sign_in.explain_refusal, token.strip())
        return False
    console.sign_in.note_success(request)
    request.state.viewer = viewer
    return True


def _answer_unknown(request: Request) -> Response:
    if is_api(request):
        reason = getattr(request.state, "refusal", "send Authorization: Bearer and a token; retry console token makes one")
        return answer_error(request, HTTPException(HTTPStatus.UNAUTHORIZED, reason, {"WWW-Authenticate": "Bearer"}))
    if request.method not in _SAFE or request.headers.get("hx-request"):
        # Not sent to another page: what was typed is still there when somebody has signed in in another window.
        fault = HTTPException(HTTPStatus.UNAUTHORIZED, "you are signed out; sign in again, then do it again")
        return answer_error(request, fault)
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/sign-in?next={quote(wanted, safe='')}", HTTPStatus.SEE_OTHER)


def _demand_own_page(request: Request, console: Console, *, needs_token: bool) -> None:
    if not console.sign_in.origin.is_own(request):
        raise HTTPException(HTTPStatus.FORBIDDEN, "no page of this console sent this, but another origin, or none")
    if not needs_token:
        return
    session = session_of(request)
    said = request.headers.get(CSRF_HEADER) or request.state.form.get(CSRF_FIELD)
    if session is None or not isinstance(said, str) or not session.accepts_csrf(said):
        reason = "the token of your sign-in is missing or old; load the page again, then do it again"
        raise HTTPException(HTTPStatus.FORBIDDEN, reason)


def _demand_known_fields(request: Request, endpoint: Any) -> None:
    """A filter that is misspelt must not show everything, nor an option that is do something else."""
    if ANY_FIELD in endpoint.fields:
        return
    given: ImmutableMultiDict[str, Any] = request.query_params
    if request.method == "POST":
        if given:
            raise HTTPException(HTTPStatus.BAD_REQUEST, "what is posted has its fields in the form, and none in the address")
        given = request.state.form
    known = {*endpoint.fields, *endpoint.repeated}
    for name, count in Counter(name for name, _ in given.multi_items() if name != CSRF_FIELD).items():
        if name not in known:
            reason = f"there is no field {name!r:.40} here; known are {', '.join(sorted(known)) or 'none'}"
            raise HTTPException(HTTPStatus.BAD_REQUEST, reason)
        if count > 1 and name not in endpoint.repeated:
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"the field {name!r:.40} stands there {count} times")


async def _read(request: Request) -> None:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES_MAX:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {BODY_BYTES_MAX:,} bytes")
    request._body = request.state.body = bytes(body)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    request.state.form = await request.form(max_files=0, max_fields=_FIELDS_MAX) if kind in _FORMS else FormData()
