"""Health and metrics over HTTP, of one worker, or of several as one page each. Answers carry names and numbers, no payloads."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Health = Callable[[], tuple[bool, dict[str, object]]]


class Http:
    """Serves `/health/live`, `/health/ready`, the same of one shard, `/health/ready/<shard>`, and `/metrics`, as the ASGI `app`.
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


# Health and metrics of several workers as one page each: ready if all that have shards are, metrics by the label `process`.

_ASK_S = 2.0
_MISSING = {"ready": False, "shards": {}, "not_ready": [{"shard": None, "reason": "starting", "why": "it does not answer"}]}


class SupervisorHealth:
    """Asks each worker, on its port of loopback, when it is asked itself."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def health(self) -> tuple[bool, dict[str, object]]:
        """Return whether the workers are ready, and details for `Http`; what each worker says is under `processes`."""
        answers = [_ask_worker(port, "/health/ready") for port in self._ports]
        told: list[dict[str, Any]] = [orjson.loads(answer) if answer else _MISSING for answer in answers]
        # One that has no shard, since there are too few, is not ready by itself, and nothing waits for it.
        idle = [not each["ready"] and each.get("shards_owned") == 0 and not each["not_ready"] for each in told]
        ready = any(each["ready"] for each in told) and all(each["ready"] or idle[n] for n, each in enumerate(told))
        shards = {number: phase for each in told for number, phase in each["shards"].items()}
        not_ready = [{"process": n, **why} for n, each in enumerate(told) for why in each["not_ready"]]
        about = {"shards": shards, "not_ready": not_ready, "processes": {str(n): each for n, each in enumerate(told)}}
        return ready, {"ready": ready, **about}

    def metrics(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric of every worker that answers; prometheus_client calls the method."""
        found: dict[str, Metric] = {}
        for number, port in enumerate(self._ports):
            for family in text_string_to_metric_families((_ask_worker(port, "/metrics") or b"").decode()):
                metric = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    labels = {**sample.labels, "process": str(number)}
                    metric.samples.append(sample._replace(labels=labels))
        yield from found.values()


def _ask_worker(port: int, path: str) -> bytes | None:
    """Return what a worker answers, whatever the status; None where it gives no answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=_ASK_S) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.read()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None
