"""Open pages are kept fresh: each part made once for all who may see it, sent where it has changed, ended with the sign-in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from retry.console.replica.rows import Scope
from retry.console.web import live
from retry.console.web.granted_roles import Granted
from retry.console.web.rights import Role
from retry.console.web.token_file import make_token
from retry.errors import RebuildInProgress
from tests.support.console import ORIGIN, Served, served

PAYMENTS, LINE_P = make_token("ada", Granted({"payments": Role.VIEWER}))
ORDERS, LINE_O = make_token("olaf", Granted({"orders": Role.VIEWER}))
DEADLINE_S = 30.0


class Counter:
    """A part whose text can be changed, and that counts how often it was made for whom."""

    def __init__(self) -> None:
        self.made: list[tuple[Scope, str]] = []
        self.text = "one\ntwo"
        self.trouble: Exception | None = None

    def render(self, scope: Scope, argument: str) -> str:
        self.made.append((scope, argument))
        if self.trouble:
            raise self.trouble
        return f"<p>{self.text} {sorted(scope or ['*'])} {argument}</p>"


def console(part: Counter, **options: Any) -> Served:
    made = served(tokens=f"{LINE_P}\n{LINE_O}", **options)
    made.console.live.register("count", part.render)
    return made


def cookie_of(made: Served, token: str) -> str:
    browser = made.browser()
    assert browser.post("/sign-in", data={"token": token}, headers={"Origin": ORIGIN}).status_code == 303
    return f"retry-console={browser.cookies['retry-console']}"


class Stream:
    """What one open page is sent."""

    def __init__(self) -> None:
        self.text, self.ended = "", asyncio.Event()
        self.status, self._changed = 0, asyncio.Event()

    async def until(self, holds: Callable[[str], bool]) -> None:
        """Wait until what was sent is so."""
        async with asyncio.timeout(DEADLINE_S):
            while not holds(self.text):
                self._changed.clear()
                await self._changed.wait()

    def add(self, text: str) -> None:
        self.text += text
        self._changed.set()


@asynccontextmanager
async def looking(made: Served, cookie: str, path: str = "/live", query: str = "part=count&of=a") -> AsyncIterator[Stream]:
    """A page that is open."""
    stream, left = Stream(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            stream.status = message["status"]
        else:
            stream.add(message.get("body", b"").decode())

    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": path, "raw_path": path.encode(),
        "query_string": query.encode(), "headers": [(b"host", b"127.0.0.1:8082"), (b"cookie", cookie.encode())],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8082), "root_path": "",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
    }  # fmt: skip
    task = asyncio.create_task(made.app(scope, receive, send))
    task.add_done_callback(lambda _task: stream.ended.set())
    try:
        yield stream
    finally:
        left.set()
        await asyncio.wait_for(task, DEADLINE_S)


def run(test: Any) -> None:
    asyncio.run(asyncio.wait_for(test, 2 * DEADLINE_S))


def test_a_part_is_morphed_into_the_page_and_comes_again_when_it_has_changed() -> None:
    part = Counter()
    made = console(part)

    async def test() -> None:
        async with looking(made, cookie_of(made, PAYMENTS)) as stream:
            await stream.until(lambda text: "['payments'] a" in text)
            first = next(event for event in stream.text.split("\n\n") if "#live" in event)
            assert first.splitlines() == [
                'data: <hx-partial hx-target="#live" hx-swap="innerMorph"><p>one', "data: two ['payments'] a</p></hx-partial>",
            ]  # fmt: skip
            await stream.until(lambda text: 'hx-target="#freshness"' in text)
            part.text = "three"
            await stream.until(lambda text: "three" in text)
            assert stream.text.count("#live") == 2

    run(test())


def test_what_two_of_one_team_look_at_is_made_once_and_each_team_gets_its_own() -> None:
    part = Counter()
    made = console(part, every_s=0.2)

    async def test() -> None:
        ada, olaf = cookie_of(made, PAYMENTS), cookie_of(made, ORDERS)
        async with looking(made, ada) as one, looking(made, ada) as two, looking(made, olaf) as other:
            await one.until(lambda text: "['payments']" in text)
            await two.until(lambda text: "['payments']" in text)
            await other.until(lambda text: "['orders']" in text)
            assert "orders" not in one.text + two.text
            assert "payments" not in other.text
            assert made.console.live.streams == 3
        assert part.made.count((frozenset({"payments"}), "a")) <= 2

    run(test())
    assert made.console.live.streams == 0


def test_a_stream_ends_when_its_viewer_signs_out() -> None:
    part = Counter()
    made = console(part)

    async def test() -> None:
        cookie = cookie_of(made, PAYMENTS)
        async with looking(made, cookie) as stream:
            await stream.until(lambda text: "#live" in text)
            made.console.sign_in.sessions.end(cookie.partition("=")[2])
            await asyncio.wait_for(stream.ended.wait(), DEADLINE_S)

    run(test())


def test_when_the_console_ends_streams_do_not_hold_it_up() -> None:
    made = console(Counter())

    async def test() -> None:
        async with looking(made, cookie_of(made, PAYMENTS)) as stream:
            await stream.until(lambda text: "#live" in text)
            made.console.live.close()
            await asyncio.wait_for(stream.ended.wait(), DEADLINE_S)

    run(test())


def test_one_more_than_there_may_be_is_told_so_and_tries_again_later() -> None:
    made = console(Counter(), streams_max=1)

    async def test() -> None:
        cookie = cookie_of(made, PAYMENTS)
        async with looking(made, cookie) as first, looking(made, cookie) as second:
            await asyncio.wait_for(second.ended.wait(), DEADLINE_S)
            assert "retry: 30000" in second.text
            assert "this one is not" in second.text
            await first.until(lambda text: "#live" in text)

    run(test())


def test_one_viewer_does_not_take_the_streams_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_OF_ONE_MAX", 1)
    made = console(Counter())

    async def test() -> None:
        greedy, other = cookie_of(made, PAYMENTS), cookie_of(made, PAYMENTS)
        async with looking(made, greedy), looking(made, greedy) as second, looking(made, other) as third:
            await asyncio.wait_for(second.ended.wait(), DEADLINE_S)
            assert "this one is not" in second.text
            await third.until(lambda text: "#live" in text)

    run(test())


@pytest.mark.parametrize("trouble", [RebuildInProgress(0.5), ZeroDivisionError("a fault of ours")])
def test_a_part_that_cannot_be_made_leaves_the_page_as_it_is(trouble: Exception) -> None:
    part = Counter()
    made = console(part)

    async def test() -> None:
        async with looking(made, cookie_of(made, PAYMENTS)) as stream:
            await stream.until(lambda text: "#live" in text)
            part.trouble = trouble
            before = len(part.made)
            made.replica.rows = [*made.replica.rows, None]  # type: ignore[list-item]
            while len(part.made) == before:
                await asyncio.sleep(0)
            part.trouble, part.text = None, "again"
            made.replica.rows = [*made.replica.rows, None]  # type: ignore[list-item]
            await stream.until(lambda text: "again" in text)
            assert stream.text.count("#live") == 2

    run(test())


@pytest.mark.parametrize("query", ["part=nothing", "part=count&x=1", "part=count&of=" + "a" * 4_001])
def test_what_is_no_part_is_refused(query: str) -> None:
    made = console(Counter())
    browser = made.browser()
    browser.post("/sign-in", data={"token": PAYMENTS}, headers={"Origin": ORIGIN})
    assert browser.get(f"/live?{query}").status_code in (400, 404)
