"""Signing in and out: by a token, or at the company's provider."""

from __future__ import annotations

import hmac
import re
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from retry.console.web.app import Console, console_of, form_of, query_of, render_page
from retry.console.web.oidc import SignInFailed
from retry.console.web.rights import ANY_FIELD, Role, needs

CALLBACK = "/sign-in/callback"
# A page of this console, and nothing that a browser could take for another host.
_OWN = re.compile(r"/(?![/\\])[^\\\x00-\x20\x7f]{0,4000}")
_TOKEN_MAX = 1_000


def build_routes(console: Console) -> list[Route]:
    """Return the routes for signing in and out; only `/sign-out` where nobody has to sign in."""
    own = [Route("/sign-out", sign_out, methods=["POST"])]
    if console.sign_in.is_open:
        return own
    own += [Route("/sign-in", render_sign_in, methods=["GET"]), Route("/sign-in", by_token, methods=["POST"])]
    if console.sign_in.provider is not None:
        own += [Route("/sign-in/provider", to_provider), Route(CALLBACK, from_provider)]
    return own


@needs(None, "next")
def render_sign_in(request: Request) -> Response:
    return _form(request, _find_next_page(query_of(request).get("next", "/")))


def _form(request: Request, wanted: str, trouble: str = "", status: HTTPStatus = HTTPStatus.OK) -> Response:
    sign_in = console_of(request).sign_in
    return render_page(
        request, "sign_in.html", status, next=wanted, trouble=trouble, by_token=sign_in.tokens is not None,
        by_provider=sign_in.provider is not None,
    )  # fmt: skip


@needs(None, "token", "next")
def by_token(request: Request) -> Response:
    sign_in, form = console_of(request).sign_in, form_of(request)
    wanted = _find_next_page(str(form.get("next", "/")))
    if not sign_in.take_attempt(request):
        slow = _form(request, wanted, "Too many attempts failed; try again in some seconds.", HTTPStatus.TOO_MANY_REQUESTS)
        slow.headers["Retry-After"] = "6"
        return slow
    token = str(form.get("token", ""))[:_TOKEN_MAX].strip()
    begun = sign_in.begin_with_token(token)
    if begun is None:
        why = sign_in.explain_refusal(token)
        return _form(request, wanted, f"{why[0].upper()}{why[1:]}.", HTTPStatus.FORBIDDEN)
    sign_in.note_success(request)
    sign_in.sign_out(request)
    answer = RedirectResponse(wanted, HTTPStatus.SEE_OTHER)
    sign_in.set_cookie(answer, begun[0])
    return answer


@needs(None)
def to_provider(request: Request) -> Response:
    sign_in = console_of(request).sign_in
    if sign_in.provider is None or not sign_in.take_attempt(request):
        raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS, "too many attempts; try again in some seconds", {"Retry-After": "6"})
    try:
        url, pending = sign_in.provider.begin_sign_in()
    except SignInFailed as failed:
        return _form(request, "/", str(failed), HTTPStatus.BAD_GATEWAY)
    answer = RedirectResponse(url, HTTPStatus.SEE_OTHER)
    sign_in.set_pending(answer, pending)
    return answer


@needs(None, ANY_FIELD)
def from_provider(request: Request) -> Response:
    sign_in, query = console_of(request).sign_in, query_of(request)
    state, pending = query.get("state", ""), sign_in.pending_of(request)
    if sign_in.provider is None or pending is None or not hmac.compare_digest(state.encode(), pending.state.encode()):
        return _form(request, "/", "This sign-in was not begun in this browser; sign in again.", HTTPStatus.FORBIDDEN)
    try:
        person = sign_in.provider.finish_sign_in(pending, query.get("code", ""))
    except SignInFailed as failed:
        return _form(request, "/", str(failed), HTTPStatus.FORBIDDEN)
    sign_in.note_success(request)
    sign_in.sign_out(request)
    secret, _ = sign_in.begin_with_provider(sign_in.provider, person)
    answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
    sign_in.set_cookie(answer, secret)
    sign_in.forget_pending(answer)
    return answer


@needs(Role.VIEWER)
def sign_out(request: Request) -> Response:
    console_of(request).sign_in.sign_out(request)
    answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
    console_of(request).sign_in.forget_cookie(answer)
    return answer


def _find_next_page(wanted: str) -> str:
    return wanted if _OWN.fullmatch(wanted) else "/"
