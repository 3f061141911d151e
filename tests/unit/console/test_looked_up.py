"""What only brokers know is asked for beside the pages: workers that are silent, letters that are overdue, and why."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from retry.console.acting import api_answers
from retry.console.rows import BreakerState, WorkerState
from retry.console.web.now import OverdueLane
from retry.console.web.workers import LookedUp, Workers, list_silences, watch_silent_workers
from retry.errors import BrokersUnreachable
from retry.kafka import consumer_groups
from tests.support.console import NOW_MS, FakeReplica, letter, serve_console
from tests.support.process import await_that


def test_no_page_waits_for_the_brokers_and_they_are_asked_by_one_at_a_time() -> None:
    asked, answer = [], threading.Event()

    def look(before: int) -> int:
        asked.append(before)
        answer.wait(60)
        return before + 1

    looked_up = LookedUp("it", look, 0)
    assert [looked_up.read_latest() for _ in range(5)] == [0] * 5
    answer.set()
    await_that("it is found", lambda: looked_up.read_latest() == 1)
    assert asked == [0]


def test_where_brokers_do_not_answer_it_is_not_known() -> None:
    ended = threading.Event()

    def look(_before: str) -> str:
        try:
            raise BrokersUnreachable("b:1", "down")
        finally:
            ended.set()

    looked_up = LookedUp("it", look, "unknown")
    assert looked_up.read_latest() == "unknown"
    assert ended.wait(60)
    assert looked_up.read_latest() == "unknown"


def test_no_worker_is_seen_since_the_first_look_that_found_none(monkeypatch: Any) -> None:
    now, members = [1_000], [0]
    made = serve_console()
    made.console.clock_ms = lambda: now[0]
    monkeypatch.setattr(made.console, "cluster", lambda: SimpleNamespace(admin=None, names=SimpleNamespace(table_group="t")))
    monkeypatch.setattr(consumer_groups, "count_members", lambda _admin, _group: members[0])
    look = watch_silent_workers(made.console)._look
    first = look(Workers(None))
    now[0] = 2_000
    second = look(first)
    members[0] = 2
    assert (first, second, look(second)) == (Workers(0, 1_000), Workers(0, 1_000), Workers(2, None))


def worker(name: str = "w1", *, silent: bool = False, ended: bool = False, at_ms: int = NOW_MS - 60_000) -> WorkerState:
    return WorkerState(name, f"host of {name}" if name else "", 3, NOW_MS - 3_600_000, at_ms, silent, ended)


def test_one_silent_worker_of_several_is_told_and_since_when() -> None:
    running, group = worker("w2"), Workers(1)
    assert list_silences([running, worker("w3", ended=True)], group) == []
    (told,) = list_silences([worker(silent=True), running], group)
    assert (told.text.startswith("Worker w1 on host of w1 is silent. What waits in its 3 shards"), told.since_ms) == (
        True, NOW_MS - 60_000
    )  # fmt: skip
    (hidden,) = list_silences([worker("", silent=True), running], Workers(None))
    assert hidden.text.startswith("A worker is silent.")


def test_that_no_worker_runs_is_told_with_when_the_last_was_heard_of_also_after_a_restart_of_the_console() -> None:
    none, unheard = Workers(0, NOW_MS), Workers(None)
    silent, ended = worker(silent=True), worker("w2", ended=True, at_ms=NOW_MS - 50_000)
    for said, group, since_ms in (
        ([silent, ended], none, NOW_MS - 50_000), ([worker()], none, NOW_MS - 60_000), ([], none, NOW_MS),
        ([silent], unheard, NOW_MS - 60_000), ([ended], unheard, NOW_MS - 50_000),
    ):  # fmt: skip
        (told,) = list_silences(said, group)
        assert (told.text, told.since_ms) == ("No worker runs, and nothing is sent until one starts.", since_ms)
    assert list_silences([], unheard) == []


def test_now_shows_breakers_and_silent_workers_to_every_viewer() -> None:
    replica = FakeReplica([letter(1, state="waiting", due_at_ms=NOW_MS)])
    replica.workers = (worker(silent=True), worker("w2"))
    replica.breakers = (
        BreakerState("orders.retry", "open", "it refuses: too large", NOW_MS - 60_000, 2, 17),
        BreakerState("refunds.retry", "closed", "", None, 0, 0),
    )  # fmt: skip
    browser = serve_console(replica).browser()
    html = browser.get("/").text
    assert all(part in html for part in ("Worker w1 on host of w1 is silent", "Heard of last", "it refuses: too large"))
    assert (">open<" in html, "refunds.retry" in html) == (True, False), "a breaker that is closed holds nothing"
    html = browser.get("/workers").text
    assert "Worker w1 on host of w1 is silent" in html
    assert html.index(">open<") < html.index("refunds.retry") < html.index(">closed<")
    told = api_answers.build_now_object(replica.load_now(None), replica.freshness(), None)
    assert (told["workers"][0]["silent"], told["breakers"][0]["letters"]) == (True, 17)


def test_a_lane_is_seen_by_its_team() -> None:
    lane = OverdueLane("payments", "a.DLT", "a.retry", NOW_MS, "paused")
    assert [lane.is_in(scope) for scope in (None, frozenset({"payments"}), frozenset({"orders"}))] == [True, True, False]


def test_now_says_that_it_looks_why_letters_are_overdue() -> None:
    replica = FakeReplica([letter(1, state="waiting", due_at_ms=NOW_MS - 60_000)])
    replica.overdue = 3
    html = serve_console(replica).browser().get("/").text
    assert "3 letters are overdue; what keeps them is being looked for." in html
