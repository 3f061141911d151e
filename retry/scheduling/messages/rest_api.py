"""The REST API of a scheduler, over what it has. Read only; answers have payloads, so whoever may ask may read them.

| path | answers |
| --- | --- |
| `/schedules` | what waits here, copies of other instances' shards included: an array, a page of at most 1,000 |
| `/schedules?all=true` | all of it in one array, as the Go scheduler answers |
| `/live/schedules` | what waits in this instance's own shards |
| `/history/schedules` | what was sent, of the newest 10,000 |
| `/schedule/{id}`, `/live/schedule/{id}`, `/history/schedule/{id}` | an array of those with this id; 404 where there is none |
| `/scheduler/{name}/…` | the same as the admin page says it: `{"found": n, "schedules": [{"scheduler": …, "schedule": …}]}` |
| `/schedulers` | this scheduler in the admin page's words: `[{"name": …, "http_port": …, "instances": [{…}]}]` |
| `/info`, `/liveness`, `/stats` | about this instance |

Parameters: `schedule-id` (part of it), `epoch-from`, `epoch-to`, `max`, `sort-by` (`timestamp desc`), `skip`. How many were found
is in the header `X-Total-Count`, the next page in `Link`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from socket import socket
from typing import Any, NamedTuple

import orjson
from aiohttp import web

from retry.worker.health_server import listen
from retry.errors import RetryError
from retry.scheduling.messages.search import ALL, Query, QueryInvalid, query, search
from retry.scheduling.messages.schedule_json import Shown

log = logging.getLogger(__name__)

# One looks while another waits: searching is work for the interpreter that schedules are sent by.
_THREADS = 2
_CHUNK = 500
# The same id may be in history very often.
_DECODED_MAX = 20

Source = Callable[[Query], Iterable[Shown]]
Decode = Callable[[Shown], Awaitable[Shown]]


class Sources(NamedTuple):
    """Where schedules are looked for; each may block."""

    schedules: Source
    live: Source
    history: Source


class Rest:
    """The pages of the table above.

    Args:
      info: what `/info` answers.
      alive: what `/liveness` goes by.
      name: of this scheduler, for the admin page.
      decode: makes a value readable, where one schedule is asked for by its id.
    """

    def __init__(
        self, sources: Sources, info: Callable[[], Mapping[str, Any]], alive: Callable[[], bool], name: str,
        decode: Decode | None = None,
    ) -> None:
        self._sources, self._info, self._alive, self._name, self._decode = sources, info, alive, name, decode
        self._pool = ThreadPoolExecutor(_THREADS, "rest")
        app = web.Application(client_max_size=1 << 20)
        app.add_routes([web.get("/liveness", self._liveness), web.get("/info", self._show_info), web.get("/stats", self._stats)])
        app.add_routes([web.get("/schedulers", self._schedulers)])
        for place in Sources._fields:
            prefix = "" if place == "schedules" else f"/{place}"
            for path in (prefix, f"{prefix}/scheduler/{{name}}"):
                app.add_routes([
                    web.get(f"{path}/schedules", self._guarded(self._schedules, place)),
                    web.get(f"{path}/schedule/{{id:.+}}", self._guarded(self._schedule, place)),
                ])  # fmt: skip
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self, host: str, port: int, listening: socket | None = None) -> int:
        """Listen, and return the port; 0 picks a free one."""
        bound = await listen(self._runner, host, port, listening)
        log.info("rest on %s:%d", host, bound)
        return bound

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()
        self._pool.shutdown(wait=False)

    async def _in_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)

    def _guarded(self, handler: Callable[[web.Request, Source], Any], place: str) -> Callable[[web.Request], Any]:
        source: Source = getattr(self._sources, place)

        async def guarded(request: web.Request) -> web.StreamResponse:
            try:
                return await handler(request, source)  # type: ignore[no-any-return]
            except QueryInvalid as error:
                return _json({"error": str(error)}, 400)
            except RetryError as error:
                return _json({"error": str(error)}, 503)

        return guarded

    async def _schedules(self, request: web.Request, source: Source) -> web.StreamResponse:
        wanted = query(request.query)
        if request.query.get("all") in ("true", "1"):
            return await self._all(request, source(wanted), wanted)
        found = await self._in_thread(lambda: search(source(wanted), wanted))
        if "name" in request.match_info:
            return _json({"found": found.total, "schedules": [self._of_admin(shown) for shown in found.page]})
        headers = {"X-Total-Count": str(found.total)}
        following = wanted.skip + len(found.page)
        if found.page and following < found.total:
            headers["Link"] = f'<{request.rel_url.update_query(skip=following)}>; rel="next"'
        return _json(found.page, headers=headers)

    async def _all(self, request: web.Request, schedules: Iterable[Shown], wanted: Query) -> web.StreamResponse:
        """Everything in one array, sent while it is read: memory does not grow with it."""
        matching = (shown for shown in schedules if wanted.matches(shown))
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        chunk = await self._in_thread(_chunk, matching)
        await answer.prepare(request)
        await answer.write(b"[")
        separator = b""
        while chunk:
            await answer.write(separator + chunk)
            separator, chunk = b",", await self._in_thread(_chunk, matching)
        await answer.write(b"]")
        await answer.write_eof()
        return answer

    async def _schedule(self, request: web.Request, source: Source) -> web.StreamResponse:
        wanted = Query(part=request.match_info["id"])
        page = await self._in_thread(lambda: [shown for shown in source(wanted) if shown["id"] == wanted.part])
        if self._decode is not None:
            page = await asyncio.gather(*map(self._decode, page[:_DECODED_MAX])) + page[_DECODED_MAX:]
        shown = [self._of_admin(each) for each in page] if "name" in request.match_info else page
        return _json(shown) if page else _json({"error": "no such schedule"}, 404)

    def _of_admin(self, shown: Shown) -> dict[str, Any]:
        return {"scheduler": self._name, "schedule": shown}

    async def _stats(self, _request: web.Request) -> web.Response:
        def counts() -> list[int]:
            return [sum(1 for _ in source(ALL)) for source in self._sources]

        total, live, history = await self._in_thread(counts)
        return _json([{"scheduler": self._name, "total": total, "total_live": live, "total_history": history}])

    async def _schedulers(self, request: web.Request) -> web.Response:
        info = self._info()
        kafka = info.get("kafka", {})
        found = [{
            "ip": next(iter(info.get("address", ())), None), "hostname": [info["hostname"]], "topics": kafka.get("topics", []),
            "bootstrap_servers": kafka.get("bootstrap_servers", ""), "history_topic": kafka.get("history_topic", ""),
        }]  # fmt: skip
        return _json([{"name": self._name, "http_port": str(request.url.port), "instances": found}])

    async def _show_info(self, _request: web.Request) -> web.Response:
        return _json(self._info())

    async def _liveness(self, _request: web.Request) -> web.Response:
        return web.Response(status=200 if self._alive() else 500)


def _chunk(shown: Iterator[Shown]) -> bytes:
    return orjson.dumps(list(islice(shown, _CHUNK)))[1:-1]


def _json(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json", headers=headers)
