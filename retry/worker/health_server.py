"""Health and metrics over HTTP, on loopback unless told otherwise. Answers carry names and numbers, never payloads."""

from __future__ import annotations

import logging
from collections.abc import Callable
from socket import socket
from typing import Any

import orjson
from aiohttp import web

log = logging.getLogger(__name__)

Health = Callable[[], tuple[bool, dict[str, object]]]


async def listen(runner: web.AppRunner, host: str, port: int, listening: socket | None = None) -> int:
    """Listen, and return the port; 0 picks a free one, and a socket that listens already takes the place of both."""
    await runner.setup()
    site = web.SockSite(runner, listening) if listening else web.TCPSite(runner, host, port)
    await site.start()
    return int(runner.addresses[0][1])


class Http:
    """`/health/live`, `/health/ready`, the same of one shard, `/health/ready/<shard>`, and `/metrics`.

    Args:
      health: whether the worker is ready, and details.
      metrics: the metrics page.
    """

    def __init__(self, health: Health, metrics: Callable[[], bytes]) -> None:
        self._health, self._metrics = health, metrics
        app = web.Application(client_max_size=1 << 20)
        app.add_routes([
            web.get("/health/live", self._live),
            web.get("/health/ready", self._ready),
            web.get("/health/ready/{shard}", self._shard_ready),
            web.get("/metrics", self._show_metrics),
        ])  # fmt: skip
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self, host: str, port: int, listening: socket | None = None) -> int:
        """Listen, and return the port; 0 picks a free one, and a socket that listens already takes the place of both."""
        bound = await listen(self._runner, host, port, listening)
        if not listening:
            log.info("http on %s:%d", host, bound)
        return bound

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _live(self, _request: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def _ready(self, _request: web.Request) -> web.Response:
        ready, details = self._health()
        return web.Response(status=200 if ready else 503, body=orjson.dumps(details), content_type="application/json")

    async def _shard_ready(self, request: web.Request) -> web.Response:
        wanted, (_, details) = request.match_info["shard"], self._health()
        phases: Any = details["shards"]
        troubles: Any = details["not_ready"]
        why = [trouble for trouble in troubles if str(trouble["shard"]) == wanted or trouble["shard"] is None]
        status = 404 if wanted not in phases and not why else 503 if why else 200
        body = {"ready": status == 200, "phase": phases.get(wanted), "not_ready": why}
        return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")

    async def _show_metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
