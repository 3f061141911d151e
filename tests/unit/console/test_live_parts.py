"""Open pages are kept fresh: each part made once for all who may see it, sent where it has changed, ended with the sign-in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from retry.console.rows import Freshness, Scope
from retry.console.web import live
from retry.console.web.rights import Granted, Role, Sight, make_token
from retry.errors import RebuildInProgress
from tests.support.console import NOW_MS, ORIGIN, Served, serve_console
from tests.support.open_page import DEADLINE_S, looking, run

PAYMENTS, LINE_P = make_token("ada", Granted({"payments": Role.VIEWER}))
ORDERS, LINE_O = make_token("olaf", Granted({"orders": Role.VIEWER}))


class Counter:
    """A part whose text can be changed, and that counts how often it was made for whom."""

    def __init__(self) -> None:
        self.made: list[tuple[Scope, str]] = []
        self.text = "one\ntwo"
        self.trouble: Exception | None = None

    def render(self, sight: Sight, argument: str) -> str:
        self.made.append((sight.scope, argument))
        if self.trouble:
            raise self.trouble
        return f"<p>{self.text} {sorted(sight.scope or ['*'])} {argument}</p>"


def console(part: Counter, **options: Any) -> Served:
    made = serve_console(tokens=f"{LINE_P}\n{LINE_O}", **options)
    made.console.live.register("count", part.render)
    return made


def cookie_of(made: Served, token: str) -> str:
    browser = made.browser()
    assert browser.post("/sign-in", data={"token": token}, headers={"Origin": ORIGIN}).status_code == 303
    return f"retry-console={browser.cookies['retry-console']}"


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
            made.console.sign_in.sessions.end_session(cookie.partition("=")[2])
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
        async with looking(made, cookie) as first:
            await first.until(lambda text: "#live" in text)
            async with looking(made, cookie) as second:
                await asyncio.wait_for(second.ended.wait(), DEADLINE_S)
                assert "retry: 30000" in second.text
                assert "this one is not" in second.text

    run(test())


def test_one_viewer_does_not_take_the_streams_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_OF_ONE_MAX", 1)
    made = console(Counter())

    async def test() -> None:
        greedy, other = cookie_of(made, PAYMENTS), cookie_of(made, PAYMENTS)
        async with looking(made, greedy) as first:
            await first.until(lambda text: "#live" in text)
            async with looking(made, greedy) as second, looking(made, other) as third:
                await asyncio.wait_for(second.ended.wait(), DEADLINE_S)
                assert "this one is not" in second.text
                await third.until(lambda text: "#live" in text)

    run(test())


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (RebuildInProgress(0.5), "the topics are being read, 50% so far"), (ZeroDivisionError("ours"), "a fault of the console"),
        (HTTPException(404, "there is no such thing"), "there is no such thing"),
    ],
)  # fmt: skip
def test_a_part_that_cannot_be_made_leaves_the_page_as_it_is_and_the_page_says_so(trouble: Exception, said: str) -> None:
    part = Counter()
    made = console(part)

    async def test() -> None:
        async with looking(made, cookie_of(made, PAYMENTS)) as stream:
            await stream.until(lambda text: "#live" in text)
            part.trouble = trouble
            made.replica.rows = [*made.replica.rows, None]  # type: ignore[list-item]
            await stream.until(lambda text: f"could not be made anew. {said}" in text)
            assert stream.text.count("#live") == 1
            assert ">Live<" not in stream.text.rpartition("#freshness")[2]
            part.trouble, part.text = None, "mended"
            await stream.until(lambda text: "mended" in text)
            await stream.until(lambda text: ">Live<" in text.rpartition("#freshness")[2])
            assert stream.text.count("#live") == 2

    run(test())


@pytest.mark.parametrize("query", ["", "part=freshness", "part=nothing", "part=count&x=1", "part=count&of=" + "a" * 4_001])
def test_what_is_no_part_is_refused(query: str) -> None:
    made = console(Counter())
    browser = made.browser()
    browser.post("/sign-in", data={"token": PAYMENTS}, headers={"Origin": ORIGIN})
    assert browser.get(f"/live?{query}").status_code in (400, 404)


def test_a_page_is_at_least_as_fresh_as_it_says_also_where_more_is_read_while_its_part_is_made() -> None:
    part = Counter()
    made = console(part, every_s=60.0)
    made.replica.state = Freshness("live", 1.0, NOW_MS, 7)

    def render(sight: Sight, argument: str) -> str:
        made.replica.state = Freshness("live", 1.0, NOW_MS + 1_000, 0)
        return part.render(sight, argument)

    made.console.live.register("count", render)

    async def test() -> None:
        async with looking(made, cookie_of(made, PAYMENTS)) as stream:
            await stream.until(lambda text: 'hx-target="#freshness"' in text)
            assert "7 offsets behind" in stream.text

    run(test())
