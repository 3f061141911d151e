"""Whether the console lives and is ready, and its metrics; open, as of a worker: they name no team and no letter."""

from __future__ import annotations

from http import HTTPStatus

import orjson
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retry import clock
from retry.console.web.app import Console
from retry.console.web.rights import ANY_FIELD, needs
from retry.http_server.certificate import Certificate
from retry.telemetry import prometheus


class Health:
    """Counts what is answered, and tells: on the event loop, so also while every thread looks into payloads."""

    def __init__(
        self, console: Console, certificate: Certificate | None = None, registry: CollectorRegistry | None = None
    ) -> None:
        self._replica, self._certificate = console.replica, certificate
        self._registry = registry or CollectorRegistry()
        self._answered = prometheus.counter(self._registry, "retry_console_requests_total")
        self._took = prometheus.histogram(self._registry, "retry_console_request_duration_seconds")
        prometheus.gauge(self._registry, "retry_console_streams", lambda: float(console.live.streams))
        prometheus.gauge(self._registry, "retry_console_lag_records", lambda: float(self._replica.freshness().lag_records))
        prometheus.counters(self._registry, "retry_unreadable_records_total", self._count_unreadable)
        prometheus.gauge(self._registry, "retry_console_ready", lambda: float(self._is_ready()))

    def _count_unreadable(self) -> dict[str, float]:
        return {each.topic: float(each.records) for each in self._replica.unreadable()}

    def _is_ready(self) -> bool:
        return self._replica.freshness().state != "rebuilding"

    def build_routes(self) -> list[Route]:
        return [Route("/health/live", self.live), Route("/health/ready", self.answer_readiness), Route("/metrics", self.metrics)]

    @needs(None, ANY_FIELD)
    async def live(self, _request: Request) -> Response:
        return _build_health_response({"live": True})

    @needs(None, ANY_FIELD)
    async def answer_readiness(self, _request: Request) -> Response:
        """Whether pages can be shown, and how old they are."""
        found, ready = self._replica.freshness(), self._is_ready()
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        told = {"ready": ready, "state": found.state, "progress": round(found.progress, 3), "lag_records": found.lag_records}
        certificate = {"certificate": self._certificate.trouble() or "ok"} if self._certificate else {}
        # It may name a topic; whoever may see all teams is told of it on the pages.
        error = "the log of the console says what" if found.trouble else ""
        unreadable = {each.topic: each.records for each in self._replica.unreadable()}
        return _build_health_response({**told, "error": error, "unreadable": unreadable, **certificate}, status)

    @needs(None, ANY_FIELD)
    async def metrics(self, _request: Request) -> Response:
        return Response(prometheus.render_metrics(self._registry), media_type="text/plain; version=0.0.4; charset=utf-8")

    def count_answers(self, app: ASGIApp) -> ASGIApp:
        """Wrap an application so that its answers are counted and timed."""

        async def count(scope: Scope, receive: Receive, send: Send) -> None:
            began_s = clock.monotonic_s()

            async def counting(message: Message) -> None:
                if message["type"] == "http.response.start":
                    self._answered.labels(scope["method"], message["status"]).inc()
                    # Of a stream, how long its first byte took.
                    took_s = clock.monotonic_s() - began_s
                    self._took.observe(took_s)
                    message = {**message, "headers": [*message["headers"], _timing(took_s)]}
                await send(message)

            await app(scope, receive, counting)

        return count


def _timing(took_s: float) -> tuple[bytes, bytes]:
    """Tells whoever asked what an answer took here, without what lies between; see developer tools of browsers."""
    return b"server-timing", b"total;dur=%.1f" % (took_s * 1_000)


def _build_health_response(fields: dict[str, object], status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(orjson.dumps(fields), status, media_type="application/json")
