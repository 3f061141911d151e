"""What went wrong → an answer: a page for who looks, `application/problem+json` (RFC 9457) below `/api/`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retry import errors
from retry.console.web.app import render_page
from retry.kafka.interface import KafkaException

# What every answer tells the browser: run no script but ours, load nothing from elsewhere, be in no frame, keep no copy.
#
# `Referrer-Policy` is not `no-referrer`: browsers would then send `Origin: null` with our own forms.

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_YEAR_S = 31_536_000


class SecurityHeaders:
    """An application whose every answer has them; `Cache-Control: no-store` where it says nothing else.

    Args:
      secure: whether browsers speak TLS, and are to speak nothing else for a year.
    """

    def __init__(self, app: ASGIApp, *, secure: bool) -> None:
        self._app = app
        self._headers = {**_HEADERS, **({"Strict-Transport-Security": f"max-age={_YEAR_S}"} if secure else {})}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, with_headers)


log = logging.getLogger(__name__)

_STATUS: tuple[tuple[type[Exception], HTTPStatus], ...] = (
    (errors.FilterInvalid, HTTPStatus.BAD_REQUEST),
    (errors.PolicyFileInvalid, HTTPStatus.BAD_REQUEST),
    (errors.TaskInvalid, HTTPStatus.BAD_REQUEST),
    (errors.UrlRefused, HTTPStatus.BAD_REQUEST),
    (errors.CursorStale, HTTPStatus.CONFLICT),
    (errors.WriteNotShown, HTTPStatus.ACCEPTED),
    (errors.ActionRefused, HTTPStatus.CONFLICT),
    # What else this service names is to be mended elsewhere: brokers, topics, rights.
    (errors.RetryError, HTTPStatus.SERVICE_UNAVAILABLE),
    (KafkaException, HTTPStatus.SERVICE_UNAVAILABLE),
    (TimeoutError, HTTPStatus.SERVICE_UNAVAILABLE),
)
FAULT = "a fault of the console, which its log shows; look again later"
_REBUILD_S = 2


def answer_error(request: Request, error: Exception) -> Response:
    detail = told_of(request, error)
    if isinstance(error, HTTPException):
        return _render_error(request, HTTPStatus(error.status_code), detail, error.headers)
    if isinstance(error, errors.RebuildInProgress):
        headers = {"Retry-After": str(_REBUILD_S)}
        return _render_error(request, _status(error), detail, headers, "rebuilding.html", progress=error.progress)
    column: dict[str, Any] = {"column": error.column} if isinstance(error, errors.FilterInvalid) else {}
    return _render_error(request, _status(error), detail, **column)


def told_of(request: Request, error: Exception) -> str:
    """Describe an error to whoever sent the request; an unexpected error is logged, and described only as a fault."""
    if isinstance(error, HTTPException):
        return error.detail
    if _status(error) is HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return FAULT
    return describe_error(error)


def _status(error: Exception) -> HTTPStatus:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)


def describe_error(error: Exception) -> str:
    """Describe an expected error to whoever looks, and what to do about it."""
    if isinstance(error, KafkaException):
        return f"the brokers answered: {error.args[0].str()}; look at them and at this user's rights, then try again"
    if isinstance(error, TimeoutError):
        return "no broker answered in time; look at the brokers, then try again"
    return str(error)


def is_api(request: Request) -> bool:
    return request.url.path.startswith("/api/")


def build_problem(status: HTTPStatus, detail: str, headers: Any = None, **more: Any) -> Response:
    """Build a refusal for programs, with `more` fields besides `type`, `title`, `status` and `detail`."""
    fields = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": detail, **more}
    return Response(orjson.dumps(fields), status, headers, "application/problem+json")


def _render_error(
    request: Request, status: HTTPStatus, detail: str, headers: Any = None, template: str = "error.html", **more: Any
) -> Response:
    if is_api(request):
        return build_problem(status, detail, headers, **more)
    answer = render_page(request, template, status, **{"title": status.phrase, "detail": detail, "column": None, **more})
    answer.headers.update(headers or {})
    return answer
