"""The routes of the API: who may ask, how large a request may be, and how answers and refusals are written."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import URL
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from retry import clock
from retry.http_server.certificate import Certificate
from retry.scheduling.timers import callers, openapi
from retry.scheduling.timers.callers import Problem, Quotas, Token, Tokens, refuse_content
from retry.scheduling.timers.read_model import View
from retry.scheduling.timers.timer_request import parse_moment_ms, read
from retry.scheduling.timers.timers import PAGE_MAX, Timers
from retry.telemetry import prometheus
from retry.telemetry.spans import HttpExchange, find_traceparent
from retry.telemetry.unreadable_records import UNREADABLE

if TYPE_CHECKING:
    from retry.telemetry.tracing import Traces

REQUEST_BYTES_MAX = 512 << 10
_LOOPBACK = Token("timers", None)
_PAGE = 100
_END_OF_TIME_MS = 253_402_300_800_000
# Where no token is asked for, a page of another site must not get in by a name that it has given this address.
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_SECURITY_HEADERS = {
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'",
}

_ENCODED_SECURITY_HEADERS = [(name.lower().encode(), value.encode()) for name, value in _SECURITY_HEADERS.items()]

Handler = Callable[[Request, str], Awaitable[Response]]


class Web:
    """The ASGI application, `app`, whose metrics are in `registry`.

    Args:
      tokens: None where everybody may come in: on loopback only.
      metrics_open: whether metrics are shown without a token where there are tokens.
    """

    def __init__(
        self, timers: Timers, view: View, tokens: Tokens | None, quotas: Quotas, *, metrics_open: bool = False,
        certificate: Certificate | None = None, audit: int = callers.CHANGES, traces: Traces | None = None,
    ) -> None:
        self._certificate, self._audit, self._traces = certificate, callers.CallAudit(audit), traces
        self._timers, self._view, self._tokens, self._quotas, self._metrics_open = timers, view, tokens, quotas, metrics_open
        self.registry = CollectorRegistry()
        self._answered = prometheus.counter(self.registry, "retry_api_requests_total")
        self._took = prometheus.histogram(self.registry, "retry_api_request_duration_seconds")
        prometheus.gauge(self.registry, "retry_api_entries_waiting", view.count_waiting)
        prometheus.counters(self.registry, "retry_unreadable_records_total", UNREADABLE.count_by_topic)
        prometheus.gauge(self.registry, "retry_api_ready", lambda: float(view.is_ready()))
        ends_s = certificate.ends_s if certificate else lambda: math.inf
        prometheus.gauge(self.registry, "retry_api_certificate_ends_timestamp_seconds", ends_s)
        self.app = Starlette(
            routes=[
                Route("/timers", partial(self._handle_request, self._timers_at), methods=["POST", "GET"]),
                Route("/timers/{id}", partial(self._handle_request, self._timer_at), methods=["GET", "DELETE"]),
                Route("/openapi.json", self._openapi), Route("/docs", self._docs), Route("/docs.js", self._script),
                Route("/health/live", self._live), Route("/health/ready", self._answer_readiness),
                Route("/metrics", self._metrics_at),
            ],
            exception_handlers={HTTPException: self._answer_refusal, Exception: self._answer_failure},
        )  # fmt: skip

    async def _handle_request(self, handler: Handler, request: Request) -> Response:
        began_s, began_ms = clock.monotonic_s(), clock.wall_ms()
        who, response = None, None
        try:
            who = self._who(request)
            self._quotas.request(who.name)
            response = await handler(request, who.name)
        except Problem as problem:
            response = _problem(problem)
        finally:
            self._audit.log_call(request, who, response)
            self._trace(request, who, response, began_ms)
        self._answered.labels(request.method, response.status_code).inc()
        self._took.observe(clock.monotonic_s() - began_s)
        return response

    def _trace(self, request: Request, who: Token | None, response: Response | None, began_ms: int) -> None:
        if self._traces is None:
            return
        status = HTTPStatus.INTERNAL_SERVER_ERROR if response is None else response.status_code
        error = str(int(status)) if status >= HTTPStatus.INTERNAL_SERVER_ERROR else None
        route = "/timers/{id}" if "id" in request.path_params else "/timers"
        self._traces.record_exchange(HttpExchange(
            method=request.method, route=route, status=int(status), error=error, team=who.name if who else "",
            traceparent=find_traceparent(request.headers), began_ms=began_ms, ended_ms=clock.wall_ms(),
            timer=request.path_params.get("id", ""),
        ))  # fmt: skip

    def _who(self, request: Request) -> Token:
        if self._tokens is None:
            host = request.headers.get("host")
            if not (_names_loopback(host) if host else request.url.hostname in _LOOPBACK_NAMES):
                raise Problem(HTTPStatus.BAD_REQUEST, "without tokens this is for loopback: ask localhost or 127.0.0.1")
            return _LOOPBACK
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        who = self._tokens.find(token.strip()) if kind.lower() == "bearer" else None
        if who is None:
            headers = {"WWW-Authenticate": "Bearer"}
            raise Problem(HTTPStatus.UNAUTHORIZED, "send Authorization: Bearer and a token; retry api token makes one", headers)
        if who.has_ended(clock.wall_ms()):
            headers = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
            raise Problem(HTTPStatus.UNAUTHORIZED, self._tokens.why_ended(who), headers)
        return who

    async def _timers_at(self, request: Request, team: str) -> Response:
        return await (self._create_timer(request, team) if request.method == "POST" else self._list(request, team))

    async def _create_timer(self, request: Request, team: str) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send JSON, with Content-Type: application/json")
        timer_request = read(await _body(request), request.headers.get("idempotency-key"), clock.wall_ms())
        made = await self._timers.create_timer(team, timer_request, self._quotas)
        headers = {"Location": f"/timers/{made.timer.id}"}
        return _build_secured_response(made.timer, HTTPStatus.CREATED if made.new else HTTPStatus.OK, headers)

    async def _list(self, request: Request, team: str) -> Response:
        query = request.query_params
        if unknown := set(query) - {"from", "to", "limit", "cursor"}:
            raise refuse_content(f"{min(unknown)}: no such parameter; known are from, to, limit and cursor")
        from_ms, to_ms = (
            parse_moment_ms(query.get("from", "0"), "from"),
            parse_moment_ms(query.get("to", str(_END_OF_TIME_MS)), "to"),
        )
        limit = query.get("limit", str(_PAGE))
        if not (re.fullmatch("[0-9]{1,3}", limit) and 1 <= int(limit) <= PAGE_MAX):
            raise refuse_content(f"limit: it is not from 1 to {PAGE_MAX}")
        page = await run_in_threadpool(self._timers.between, team, from_ms, to_ms, query.get("cursor", ""), int(limit))
        return _build_secured_response(page)

    async def _timer_at(self, request: Request, team: str) -> Response:
        timer_id = request.path_params["id"]
        if request.method == "DELETE":
            await self._timers.cancel_timer(team, timer_id)
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=_SECURITY_HEADERS)
        return _build_secured_response(self._timers.get(team, timer_id))

    async def _openapi(self, _request: Request) -> Response:
        return _build_secured_response(openapi.document(asks_for_token=self._tokens is not None))

    async def _docs(self, _request: Request) -> Response:
        return HTMLResponse(openapi.render_docs(), headers=_SECURITY_HEADERS)

    async def _script(self, _request: Request) -> Response:
        return Response(openapi.SCRIPT, media_type="text/javascript", headers=_SECURITY_HEADERS)

    async def _live(self, _request: Request) -> Response:
        live = not self._view.trouble
        return _build_secured_response({"live": live}, HTTPStatus.OK if live else HTTPStatus.SERVICE_UNAVAILABLE)

    async def _answer_readiness(self, _request: Request) -> Response:
        ready = self._view.is_ready()
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        told = {"ready": ready, "error": self._view.trouble, "waiting": self._view.count_waiting()}
        told["unreadable"] = UNREADABLE.describe_first_ones()
        # It serves as before, so it is ready.
        certificate = {"certificate": self._certificate.trouble() or "ok"} if self._certificate else {}
        return _build_secured_response({**told, **certificate}, status)

    async def _metrics_at(self, request: Request) -> Response:
        if self._tokens is not None and not self._metrics_open:
            try:
                self._who(request)
            except Problem as problem:
                return _problem(problem)
        return Response(prometheus.render_metrics(self.registry), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _answer_refusal(self, _request: Request, error: Exception) -> Response:
        refused = error if isinstance(error, HTTPException) else HTTPException(HTTPStatus.BAD_REQUEST)
        detail = "no such path or method; see /docs"
        return _problem(Problem(HTTPStatus(refused.status_code), detail, dict(refused.headers or {})))

    async def _answer_failure(self, _request: Request, _error: Exception) -> Response:
        return _problem(Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "a fault of the service, which its log shows; ask again later"))


@lru_cache(1_000)
def _names_loopback(host: str) -> bool:
    return URL(scope={"path": "/", "headers": [(b"host", host.encode("latin-1"))]}).hostname in _LOOPBACK_NAMES


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > REQUEST_BYTES_MAX:
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {REQUEST_BYTES_MAX:,} bytes")
    return bytes(body)


def _build_secured_response(
    answer: object, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> Response:
    response = Response(msgspec.json.encode(answer), status, headers, "application/json")
    response.raw_headers += _ENCODED_SECURITY_HEADERS
    return response


def _problem(problem: Problem) -> Response:
    body = msgspec.json.encode(problem.body())
    return Response(body, problem.status, {**_SECURITY_HEADERS, **problem.headers}, "application/problem+json")
