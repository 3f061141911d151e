"""A page and the API say how fresh they are as of before they looked: more may be read meanwhile, and never less."""

from __future__ import annotations

from typing import Any

import pytest

from retry.console import server as acting
from retry.console.rows import Freshness
from tests.support.console import NOW_MS, FakeReplica, group, letter, serve_console


class ReadingReplica(FakeReplica):
    """One that has caught up whenever it was looked into."""

    def _seen(self, scope: Any) -> Any:
        self.state = Freshness("live", 1.0, NOW_MS, 0)
        return super()._seen(scope)


@pytest.mark.parametrize("path", ["/", "/failures", "/letters", "/failures/f00d"])
def test_a_page_that_was_behind_when_it_was_asked_for_says_so(path: str) -> None:
    replica = ReadingReplica([letter()], [group()], Freshness("catching_up", 1.0, NOW_MS - 60_000, 98_365))
    html = serve_console(replica, more=[acting.build_acting_routes]).browser().get(path).text
    assert (">Catching up</span> 98,365 behind" in html, ">Live<" in html) == (True, False)
    assert replica.state.state == "live", "it has caught up meanwhile"


def test_the_api_says_it_too() -> None:
    replica = ReadingReplica([letter()], [group()], Freshness("catching_up", 1.0, NOW_MS - 60_000, 98_365))
    told = serve_console(replica, more=[acting.build_acting_routes]).browser().get("/api/now").json()["freshness"]
    assert (told["state"], replica.state.state) == ("catching_up", "live")
