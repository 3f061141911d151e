"""What only brokers know is asked for beside the pages: workers that are silent, letters that are overdue, and why."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from retry.console.web.looked_up import LookedUp
from retry.console.web.overdue_lanes import OverdueLane
from retry.console.web.silent_workers import Workers, silent_workers
from retry.errors import BrokersUnreachable
from retry.kafka import consumer_groups
from tests.support.console import NOW_MS, FakeReplica, letter, served
from tests.support.process import await_that


def test_no_page_waits_for_the_brokers_and_they_are_asked_by_one_at_a_time() -> None:
    asked, answer = [], threading.Event()

    def look(before: int) -> int:
        asked.append(before)
        answer.wait(60)
        return before + 1

    looked_up = LookedUp("it", look, 0)
    assert [looked_up.newest() for _ in range(5)] == [0] * 5
    answer.set()
    await_that("it is found", lambda: looked_up.newest() == 1)
    assert asked == [0]


def test_where_brokers_do_not_answer_it_is_not_known() -> None:
    ended = threading.Event()

    def look(_before: str) -> str:
        try:
            raise BrokersUnreachable("b:1", "down")
        finally:
            ended.set()

    looked_up = LookedUp("it", look, "unknown")
    assert looked_up.newest() == "unknown"
    assert ended.wait(60)
    assert looked_up.newest() == "unknown"


def test_no_worker_is_seen_since_the_first_look_that_found_none(monkeypatch: Any) -> None:
    now, members = [1_000], [0]
    made = served()
    made.console.clock_ms = lambda: now[0]
    monkeypatch.setattr(made.console, "cluster", lambda: SimpleNamespace(admin=None, names=SimpleNamespace(table_group="t")))
    monkeypatch.setattr(consumer_groups, "members", lambda _admin, _group: members[0])
    look = silent_workers(made.console)._look
    first = look(Workers(None))
    now[0] = 2_000
    second = look(first)
    members[0] = 2
    assert (first, second, look(second)) == (Workers(0, 1_000), Workers(0, 1_000), Workers(2, None))


def test_a_lane_is_seen_by_its_team() -> None:
    lane = OverdueLane("payments", "a.DLT", "a.retry", NOW_MS, "paused")
    assert [lane.is_in(scope) for scope in (None, frozenset({"payments"}), frozenset({"orders"}))] == [True, True, False]


def test_now_says_that_it_looks_why_letters_are_overdue() -> None:
    replica = FakeReplica([letter(1, state="waiting", due_at_ms=NOW_MS - 60_000)])
    replica.overdue = 3
    html = served(replica).browser().get("/").text
    assert "3 letters are overdue; what keeps them is being looked for." in html
