"""Health and metrics over HTTP. Answers carry names and numbers, never payloads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Health = Callable[[], tuple[bool, dict[str, object]]]


class Http:
    """`/health/live`, `/health/ready`, the same of one shard, `/health/ready/<shard>`, and `/metrics`.

    Args:
      health: whether the worker is ready, and details; may block.
      metrics: the metrics page; may block.

    Attributes:
      app: the ASGI application, for `retry.http_server`.
    """

    def __init__(self, health: Health, metrics: Callable[[], bytes]) -> None:
        self._health, self._metrics = health, metrics
        # A probe does not wait for a scrape, and whoever asks all the time takes no more than this from the worker's own threads.
        self._pool = ThreadPoolExecutor(2, "health")
        self.app = Starlette(routes=[
            Route("/health/live", self._live),
            Route("/health/ready", self._answer_readiness),
            Route("/health/ready/{shard}", self._shard_ready),
            Route("/metrics", self._show_metrics),
        ])  # fmt: skip
        self.app.router.redirect_slashes = False

    async def _live(self, _request: Request) -> Response:
        return Response(b'{"live": true}', media_type="application/json; charset=utf-8")

    async def _answer_readiness(self, _request: Request) -> Response:
        ready, details = await self._in_thread(self._health)
        return _build_probe_response(details, 200 if ready else 503)

    async def _shard_ready(self, request: Request) -> Response:
        wanted, (_, details) = request.path_params["shard"], await self._in_thread(self._health)
        phases: Any = details["shards"]
        troubles: Any = details["not_ready"]
        why = [trouble for trouble in troubles if str(trouble["shard"]) == wanted or trouble["shard"] is None]
        status = 404 if wanted not in phases and not why else 503 if why else 200
        return _build_probe_response({"ready": status == 200, "phase": phases.get(wanted), "not_ready": why}, status)

    async def _show_metrics(self, _request: Request) -> Response:
        return Response(await self._in_thread(self._metrics), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


def _build_probe_response(body: object, status: int) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")
