"""The REST API of a scheduler, over what it has. Read only; answers have payloads, so whoever may ask may read them.

| path | answers |
| --- | --- |
| `/schedules` | all that waits here, copies of other instances' shards included: one array, as the Go scheduler answers |
| `/live/schedules` | what waits in this instance's own shards |
| `/history/schedules` | what was sent, of the newest 10,000 |
| `/schedule/{id}`, `/live/schedule/{id}`, `/history/schedule/{id}` | an array of those with this id; 404 where there is none |
| `/scheduler/{name}/…` | the same as the admin page says it: `{"found": n, "schedules": [{"scheduler": …, "schedule": …}]}` |
| `/schedulers` | this scheduler in the admin page's words: `[{"name": …, "http_port": …, "instances": [{…}]}]` |
| `/info`, `/liveness`, `/stats` | about this instance |

Parameters: `schedule-id` (part of it), `epoch-from`, `epoch-to`; with `max`, `skip` or `sort-by` (`timestamp desc`) the answer is
a page of at most 1,000. How many were found is in the header `X-Total-Count`, the next page in `Link`.

All of it is sent while it is read, in the tables' order and without a count: neither can be had before the end. Only what fits
on a page has both. Whoever reads slowly holds a page of rows, and no iterator, lock or consumer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import Any, NamedTuple

import aiohttp
import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from retry.distribution import NAME
from retry.errors import RetryError
from retry.http_server import HttpServer
from retry.http_server.certificate import Certificate, read_certificate
from retry.scheduling.messages.search import ALL, MAX, Query, QueryInvalid, ScheduleJson, parse_query, search
from retry.scheduling.messages.settings import SchedulerSettings

# The body decoder of the Go scheduler's admin page: a URL that is given a schedule and answers with its value in readable form.
#
# The scheduler sends it the schedule as JSON by `POST`, its `value` in base64; the body of an answer with status 200 replaces
# the value. Without an answer within a second the value is shown as it is.

log = logging.getLogger(__name__)

_ANSWER_S = 1.0
_BYTES_MAX = 4 << 20


async def decode_body(url: str, shown: ScheduleJson) -> ScheduleJson:
    """Show a schedule with its value as the decoder answers it."""
    if not shown["value"]:
        return shown
    try:
        body = await _post(url, orjson.dumps(shown))
    except (TimeoutError, aiohttp.ClientError) as error:
        log.warning("decoder %s: %s: %s", url, shown["id"], error or "no answer within a second")
        return shown
    return ScheduleJson(**{**shown, "value": b64encode(body).decode()}) if body else shown  # type: ignore[typeddict-item]


async def _post(url: str, body: bytes) -> bytes:
    timeout, headers = aiohttp.ClientTimeout(_ANSWER_S), {"Content-Type": "application/json; charset=UTF-8"}
    async with aiohttp.ClientSession(timeout=timeout) as session, session.post(url, data=body, headers=headers) as answer:
        answer.raise_for_status()
        decoded_value = bytearray()
        async for part in answer.content.iter_any():
            decoded_value += part
            if len(decoded_value) > _BYTES_MAX:
                raise aiohttp.ClientPayloadError(f"more than {_BYTES_MAX} bytes")
        return bytes(decoded_value) if answer.status == 200 else b""


# What `/info` and `/schedulers` answer about a scheduler.

def describe_scheduler(settings: SchedulerSettings) -> dict[str, Any]:
    servers = settings.worker.bootstrap_servers
    return {
        "hostname": socket.gethostname(), "address": _addresses(), "server_address": str(settings.server),
        "kafka": {"bootstrap_servers": servers, "topics": list(settings.topics), "history_topic": settings.history},
        "version": version(NAME),
    }  # fmt: skip


def _addresses() -> list[str]:
    try:
        addresses = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({str(address[0]) for *_, address in addresses})


# One searches while another waits: searching is work for the interpreter that schedules are sent by.
_THREADS = 2
_CHUNK_BYTES = 64 << 10
_SPOOL_BYTES = 1 << 20
_OF_A_PAGE = frozenset({"max", "skip", "sort-by"})
# The same id may be in history very often.
_DECODED_MAX = 20
_PORTS = {"http": 80, "https": 443}

ScheduleSource = Callable[[Query], Iterable[ScheduleJson]]
Decode = Callable[[ScheduleJson], Awaitable[ScheduleJson]]


class ScheduleSources(NamedTuple):
    """The three collections of schedules that the API serves; reading one may block."""

    schedules: ScheduleSource
    live: ScheduleSource
    history: ScheduleSource


class Rest:
    """The pages of the table above.

    Args:
      info, alive: what `/info` answers, and `/liveness` goes by.
      decode: makes a value readable, where one schedule is asked for by its id.
    """

    def __init__(
        self, sources: ScheduleSources, info: Callable[[], Mapping[str, Any]], alive: Callable[[], bool], name: str,
        decode: Decode | None = None,
    ) -> None:
        self._sources, self._info, self._alive, self._name, self._decode = sources, info, alive, name, decode
        self._pool = ThreadPoolExecutor(_THREADS, "rest")
        routes = [
            Route("/liveness", self._liveness), Route("/info", self._show_info), Route("/stats", self._stats),
            Route("/schedulers", self._schedulers),
        ]  # fmt: skip
        for place in ScheduleSources._fields:
            prefix = "" if place == "schedules" else f"/{place}"
            for path in (prefix, f"{prefix}/scheduler/{{name}}"):
                routes += [
                    Route(f"{path}/schedules", self._guard_handler(self._schedules, place)),
                    Route(f"{path}/schedule/{{id:path}}", self._guard_handler(self._schedule, place)),
                ]
        self.app = Starlette(routes=routes)
        self.app.router.redirect_slashes = False

    async def _in_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)

    def _guard_handler(self, handler: Callable[[Request, ScheduleSource], Any], place: str) -> Callable[[Request], Any]:
        source: ScheduleSource = getattr(self._sources, place)

        async def guard_request(request: Request) -> Response:
            try:
                return await handler(request, source)  # type: ignore[no-any-return]
            except QueryInvalid as error:
                return _build_json_response({"error": str(error)}, 400)
            except RetryError as error:
                return _build_json_response({"error": str(error)}, 503)

        return guard_request

    async def _schedules(self, request: Request, source: ScheduleSource) -> Response:
        query = parse_query(request.query_params)
        page_asked_for = "name" in request.path_params or _OF_A_PAGE & request.query_params.keys()
        if not page_asked_for or request.query_params.get("all") in ("true", "1"):
            return await self._all(source, query)
        result = await self._in_thread(lambda: search(source(query), query))
        if "name" in request.path_params:
            return _build_json_response({"found": result.total, "schedules": [self._of_admin(shown) for shown in result.page]})
        headers = {"X-Total-Count": str(result.total)}
        following = query.skip + len(result.page)
        if result.page and following < result.total:
            url = request.url.include_query_params(skip=following)
            headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'
        return _build_json_response(result.page, headers=headers)

    async def _all(self, source: ScheduleSource, query: Query) -> Response:
        """Everything in one array: a page with its count where it fits on one, else sent while it is read."""
        matching = (shown for shown in source(query) if query.matches(shown))
        first = await self._in_thread(lambda: list(islice(matching, MAX + 1)))
        if len(first) <= MAX:
            result = search(first, query)
            return _build_json_response(result.page, headers={"X-Total-Count": str(result.total)})
        chunks = _array(orjson.dumps(first)[:-1], matching)
        if source is self._sources.history:
            chunks = await self._in_thread(_spool_chunks, chunks)
        return StreamingResponse(self._stream_chunks(chunks), media_type="application/json")

    async def _stream_chunks(self, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
        while chunk := await self._in_thread(next, chunks, b""):
            yield chunk

    async def _schedule(self, request: Request, source: ScheduleSource) -> Response:
        query = Query(part=request.path_params["id"])
        page = await self._in_thread(lambda: [shown for shown in source(query) if shown["id"] == query.part])
        if self._decode is not None:
            page = await asyncio.gather(*map(self._decode, page[:_DECODED_MAX])) + page[_DECODED_MAX:]
        shown = [self._of_admin(each) for each in page] if "name" in request.path_params else page
        return _build_json_response(shown) if page else _build_json_response({"error": "no such schedule"}, 404)

    def _of_admin(self, shown: ScheduleJson) -> dict[str, Any]:
        return {"scheduler": self._name, "schedule": shown}

    async def _stats(self, _request: Request) -> Response:
        def count_schedules() -> list[int]:
            return [sum(1 for _ in source(ALL)) for source in self._sources]

        total, live, history = await self._in_thread(count_schedules)
        return _build_json_response([{"scheduler": self._name, "total": total, "total_live": live, "total_history": history}])

    async def _schedulers(self, request: Request) -> Response:
        info = self._info()
        kafka = info.get("kafka", {})
        instances = [{
            "ip": next(iter(info.get("address", ())), None), "hostname": [info["hostname"]], "topics": kafka.get("topics", []),
            "bootstrap_servers": kafka.get("bootstrap_servers", ""), "history_topic": kafka.get("history_topic", ""),
        }]  # fmt: skip
        port = request.url.port or _PORTS[request.url.scheme]
        return _build_json_response([{"name": self._name, "http_port": str(port), "instances": instances}])

    async def _show_info(self, _request: Request) -> Response:
        return _build_json_response(self._info())

    async def _liveness(self, _request: Request) -> Response:
        return Response(status_code=200 if self._alive() else 500)


def read_rest_certificate(settings: SchedulerSettings) -> Certificate | None:
    """Return the certificate of these pages, before anything is connected; raises SettingsInvalid."""
    own = settings.worker
    return read_certificate("RETRY_SCHEDULER", own.scheduler_tls_cert, own.scheduler_tls_key, settings.server.host, "SERVER_ADDR")


def build_rest_server(
    settings: SchedulerSettings, sources: ScheduleSources, alive: Callable[[], bool], name: str, certificate: Certificate | None
) -> HttpServer:
    decoder = partial(decode_body, settings.decoder) if settings.decoder else None
    rest = Rest(sources, partial(describe_scheduler, settings), alive, name, decoder)
    host, port = settings.server.host, settings.server.port
    return HttpServer(rest.app, "rest", host, port, hosts=settings.worker.http_hosts, certificate=certificate)


def _array(begun: bytes, schedules: Iterator[ScheduleJson]) -> Iterator[bytes]:
    """Continue the text of an array that was begun, in parts of some 64 KiB."""
    yield begun
    parts, size = [b""], 0
    for shown in schedules:
        parts.append(orjson.dumps(shown))
        size += len(parts[-1])
        if size >= _CHUNK_BYTES:
            yield b",".join(parts)
            parts, size = [b""], 0
    yield b",".join(parts) + b"]"


def _spool_chunks(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Read chunks to the end at once, into a spooled file: history has a consumer open and a deadline while it is read."""
    file = SpooledTemporaryFile(_SPOOL_BYTES)  # noqa: SIM115 - closed when nobody reads it any more
    for chunk in chunks:
        file.write(chunk)
    file.seek(0)
    return iter(partial(file.read, _CHUNK_BYTES), b"")


def _build_json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(body), status, headers, "application/json")
