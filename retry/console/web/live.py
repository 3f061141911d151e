"""Keeps open pages fresh: each part of a page is made once per 2 s for all who look at it, and sent to those who may see it.

A part is a function of what its viewer sees and may do, and of an argument, as the filter of a list. A page names its part, and
gets it as server-sent events: HTML that htmx morphs into the page, so that focus, input and what is selected stay. With it comes
how old that is: where a part cannot be made anew the page stays as it is, and says so. While nobody looks nothing is made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from retry.console.web.answers import FAULT, describe_error
from retry.console.web.app import query_of, session_of
from retry.console.web.rights import Role, Sight, Viewer, needs
from retry.console.web.sessions import Session
from retry.errors import RetryError
from retry.kafka.interface import KafkaException

log = logging.getLogger(__name__)

STREAMS_MAX = 200
# Of one sign-in: nobody takes those of all others.
_OF_ONE_MAX = 40
EVERY_S = 2.0
# What is shown as a time that has gone by grows old although nothing else changes.
_ANYWAY_TICKS = 5
_FULL_RETRY_MS = 30_000
_EVENTS = "text/event-stream"
_ARGUMENT_CHARS_MAX = 4_000
Render = Callable[[Sight, str], str]


class PartRequest(NamedTuple):
    """One part, by the name under which it was registered, with an argument of its page such as `q=state:parked`."""

    name: str
    argument: str
    sight: Sight


class _Made(NamedTuple):
    """The last HTML of a part, and in `fault` why it could not be made anew since; empty where it could."""

    html: str
    generation: int
    tick: int
    at_ms: int
    fault: str = ""


@dataclass(eq=False)
class _Stream:
    session: Session
    name: str
    argument: str
    began_ms: int
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    unsent: list[str] = field(default_factory=list)
    sent: dict[str, str] = field(default_factory=dict)

    def give(self, part: str, html: str) -> None:
        """Send it, unless that is what is shown already."""
        if self.sent.get(part) != html:
            self.sent[part] = html
            self.unsent.append(_event(part, html))
            self.changed.set()


# On every page, beside its own part.
FRESHNESS, RAMPS = "freshness", "ramps"
_TARGETS = {FRESHNESS: "#freshness", RAMPS: "#ramps"}


def _event(part: str, html: str) -> str:
    swapped = f'<hx-partial hx-target="{_TARGETS.get(part, "#live")}" hx-swap="innerMorph">{html}</hx-partial>'
    # A line break would end a line of the event.
    return "".join(f"data: {line}\n" for line in swapped.splitlines()) + "\n"


class Live:
    """All streams of this process.

    Args:
      generation: a number that grows when something has changed that pages show.
      every_s: how often parts are made.
    """

    def __init__(
        self, generation: Callable[[], int], now_ms: Callable[[], int], *, every_s: float = EVERY_S,
        streams_max: int = STREAMS_MAX,
    ) -> None:
        self._generation, self._now_ms, self._every_s, self._max = generation, now_ms, every_s, streams_max
        self._parts: dict[str, Render] = {}
        self._streams: set[_Stream] = set()
        self._made: dict[PartRequest, _Made] = {}
        self._ticking: asyncio.Task[None] | None = None
        self._ticks = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def streams(self) -> int:
        return len(self._streams)

    def register(self, name: str, render: Render) -> None:
        """Name a part; `render` gives what stands in the element with the id `live`, and runs in a thread."""
        self._parts[name] = render

    def close(self) -> None:
        """End all streams, from another thread: the server waits for answers that are under way."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end_all)

    def _end_all(self) -> None:
        for stream in list(self._streams):
            self._end_stream(stream)

    def _end_stream(self, stream: _Stream) -> None:
        self._streams.discard(stream)
        stream.changed.set()

    def build_routes(self) -> list[Route]:
        return [Route("/live", self.stream)]

    @needs(Role.VIEWER, "part", "of")
    async def stream(self, request: Request) -> Response:
        query, session = query_of(request), session_of(request)
        name, argument = query.get("part", ""), query.get("of", "")
        if name in _TARGETS or name not in self._parts or len(argument) > _ARGUMENT_CHARS_MAX or session is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such part of a page")
        own = sum(each.session is session for each in self._streams)
        if len(self._streams) >= self._max or own >= _OF_ONE_MAX:
            told = f"{len(self._streams)} pages are kept fresh, and no more can be; this one is not"
            return StreamingResponse(iter([f"retry: {_FULL_RETRY_MS}\n{_event(FRESHNESS, told)}"]), media_type=_EVENTS)
        mine = _Stream(session, name, argument, self._now_ms())
        self._streams.add(mine)
        self._loop = asyncio.get_running_loop()
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.create_task(self._tick())
        return StreamingResponse(self._events(mine), media_type=_EVENTS)

    async def _events(self, mine: _Stream) -> AsyncIterator[str]:
        try:
            yield ": hello\n\n"
            while mine in self._streams:
                await mine.changed.wait()
                mine.changed.clear()
                unsent, mine.unsent = mine.unsent, []
                yield "".join(unsent)
        finally:
            self._streams.discard(mine)

    async def _tick(self) -> None:
        while self._streams:
            self._ticks += 1
            await self._send_all()
            await asyncio.sleep(self._every_s)

    async def _send_all(self) -> None:
        parts: dict[PartRequest, _Made] = {}
        told: dict[PartRequest, _Made] = {}
        viewers: dict[_Stream, Viewer] = {}
        for stream in list(self._streams):
            viewer = stream.session.viewer() if stream.session.until_ms > self._now_ms() else None
            if viewer is None:
                # Signed out: the stream ends, and htmx is sent to sign in when it connects again.
                self._end_stream(stream)
                continue
            viewers[stream] = viewer
            # How fresh it is, is asked before what is shown is looked up, which is at least as fresh then.
            if (fresh := _freshness_for(viewer)) not in told:
                told[fresh] = await self._made_anew(fresh, 0)
        generation = self._generation()
        for stream, viewer in viewers.items():
            wanted = PartRequest(stream.name, stream.argument, viewer.sight())
            if wanted not in parts:
                parts[wanted] = await self._refresh_part(wanted, generation)
            made = parts[wanted]
            if made.html and not made.fault:
                stream.give(wanted.name, made.html)
            fresh = _freshness_for(viewer, _faulty(made, stream))
            if fresh not in told:
                told[fresh] = await self._made_anew(fresh, generation)
            stream.give(FRESHNESS, told[fresh].html)
            await self._send_ramps(stream, PartRequest(RAMPS, "", viewer.sight()), parts, generation)
        self._made = parts

    async def _send_ramps(
        self, stream: _Stream, ramps: PartRequest, parts: dict[PartRequest, _Made], generation: int
    ) -> None:
        if RAMPS not in self._parts:
            return
        if ramps not in parts:
            parts[ramps] = await self._refresh_part(ramps, generation)
        if not parts[ramps].fault:
            stream.give(RAMPS, parts[ramps].html)

    async def _refresh_part(self, wanted: PartRequest, generation: int) -> _Made:
        made = self._made.get(wanted)
        if made and not made.fault and made.generation == generation and self._ticks - made.tick < _ANYWAY_TICKS:
            return made
        return await self._made_anew(wanted, generation)

    async def _made_anew(self, wanted: PartRequest, generation: int) -> _Made:
        begun_ms, before = self._now_ms(), self._made.get(wanted, _Made("", 0, 0, 0))
        try:
            html = await run_in_threadpool(self._parts[wanted.name], wanted.sight, wanted.argument)
        except HTTPException as error:
            return before._replace(fault=error.detail)
        except (RetryError, KafkaException, TimeoutError) as error:
            log.debug("%s cannot be made anew: %s", wanted.name, error)
            return before._replace(fault=describe_error(error))
        except Exception:
            # One part that fails must not end the streams of all others.
            log.exception("the part %s failed", wanted.name)
            return before._replace(fault=FAULT)
        return _Made(html, generation, self._ticks, begun_ms)


def _freshness_for(viewer: Viewer, fault: str = "") -> PartRequest:
    return PartRequest(FRESHNESS, fault, Sight(None if viewer.scope() is None else frozenset(), frozenset()))


def _faulty(made: _Made, stream: _Stream) -> str:
    """Build the argument of the part `freshness`: the time in ms of a part that could not be made anew, and why; else empty."""
    return f"{max(made.at_ms, stream.began_ms)} {made.fault}" if made.fault else ""
