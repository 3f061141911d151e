"""Each page says so where there is nothing, nothing yet, not all, or where something went wrong."""

from __future__ import annotations

import pytest

from retry.console import server as acting
from retry.console.acting import named_pages
from retry.console.acting.other_entries import Answer
from retry.console.reading.group_list import GroupPage
from retry.console.reading.replica import Replica
from retry.console.rows import Freshness, Page
from retry.console.web.app import NAV
from retry.errors import BrokersUnreachable, RebuildInProgress
from tests.support.console import NOW_MS, FakeReplica, Served, group, letter, serve_console, settings_with_rules

LETTER, GROUP = "/letters/parked/0/1", "/failures/f00d"
SAID = {
    "/": ("Nothing waits.", "retry discover"), "/failures": ("Nothing fails.",), "/letters": ("Nothing waits.",),
    "/actions": ("Nothing was asked for in the last 30 days.",), "/pauses": ("Nothing is paused.",),
    "/policies": ("This console has no policy file",), "/schedules": ("No schedule waits.",),
    "/tasks": ("No task waits for its next run.",), "/timers": ("No timer waits.",), "/audit": ("Nothing was done yet.",),
    "/workers": ("No worker was heard of within a week.",),
    "/notifications": ("Nobody was told of anything yet.",),
}  # fmt: skip
RULES = "targets:\n  ops: {apprise: ops.url}\nrules:\n- {to: ops, events: [new_failure]}\n"


def serve_replica(replica: FakeReplica) -> Served:
    return serve_console(replica, more=[acting.build_acting_routes], settings=settings_with_rules(RULES))


@pytest.mark.parametrize("path", [path for _, path in NAV])
def test_where_there_is_nothing_a_page_says_so(path: str) -> None:
    html = serve_replica(FakeReplica()).browser().get(path).text
    assert all(part in html for part in SAID[path])


@pytest.mark.parametrize("path", [*(path for _, path in NAV), "/act", GROUP, LETTER, "/actions/00000000000000aa"])
def test_where_there_is_nothing_yet_a_page_says_how_far_it_is(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = FakeReplica(state=Freshness("rebuilding", 0.25, None, 100), trouble=RebuildInProgress(0.25))
    monkeypatch.setattr(replica, "controls", lambda: replica.list_letters(None, None))  # type: ignore[arg-type]
    monkeypatch.setattr(replica, "list_audit_rows", lambda *_, **__: replica.list_letters(None, None))  # type: ignore[arg-type]
    monkeypatch.setattr(replica.told, "list_told", lambda: replica.list_letters(None, None))  # type: ignore[arg-type]
    answer = serve_replica(replica).browser().get(path)
    assert ">Loading</span> The topics are being read: 25 % so far." in answer.text
    # What the policy file says needs no topics.
    assert answer.status_code == (200 if path == "/policies" else 503)
    assert ("Read so far" in answer.text) == (path != "/policies")


@pytest.mark.parametrize(("remaining_ms", "told"), [(None, "98,365 behind; as of "), (25_000, "98,365 behind, about 25 s; ")])
def test_a_page_that_is_behind_is_not_called_live_and_acting_warns(remaining_ms: int | None, told: str) -> None:
    behind = Freshness("catching_up", 1.0, NOW_MS - 60_000, 98_365, remaining_ms=remaining_ms)
    browser = serve_replica(FakeReplica([letter()], [group()], behind)).browser()
    for path in ("/", "/failures", "/letters"):
        html = browser.get(path).text
        assert (">Catching up</span> " + told in html, ">Live<" in html) == (True, False), path
    assert "The console is 98,365 records behind" in browser.get("/act").text
    fresh = browser.get("/api/now").json()["freshness"]
    assert (fresh["state"], fresh["lag_records"], fresh["remaining_ms"]) == ("catching_up", 98_365, remaining_ms)


def test_a_list_that_is_not_all_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = FakeReplica([letter()], [group()])
    for rows, count in (([group()], 1), ([], 0)):
        partial = GroupPage(rows, None, count, True, None, True)
        monkeypatch.setattr(replica, "list_groups", lambda *_, partial=partial, **__: partial)
        html = serve_replica(replica).browser().get("/failures", params={"q": "message:x"}).text
        assert ("Not all letters were looked at" in html, "Nothing matches" in html) == (True, False)
    monkeypatch.setattr(replica, "list_letters", lambda *_: Page([letter()], "on", 1, True, None, True))
    assert "Not all of this page was found" in serve_replica(replica).browser().get("/letters?q=message:x").text
    monkeypatch.setattr(replica, "list_letters", lambda *_: Page([], "on", 0, True, None, True))
    assert "Nothing was found in the time there is. <a" in serve_replica(replica).browser().get("/letters?q=message:x").text


@pytest.mark.parametrize("path", [path for _, path in NAV])
def test_records_that_cannot_be_read_are_told_on_every_page(path: str) -> None:
    replica = FakeReplica(state=Freshness("live", 1.0, NOW_MS, 0, "a record cannot be read and is passed over: a/0/1"))
    assert "Partial</span> a record cannot be read and is passed over: a/0/1" in serve_replica(replica).browser().get(path).text


def test_a_scheduler_that_does_not_answer_and_a_search_that_ended_early_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Answer("eu", [], 0, "it did not answer: refused")
    monkeypatch.setattr(named_pages.other_entries, "ask_schedulers", lambda *_: [away])
    html = serve_replica(FakeReplica()).browser().get("/schedules").text
    assert ("eu: it did not answer: refused" in html, "where there was an answer" in html) == (True, True)
    rows = [letter(n, kind="task", label=f"t{n}") for n in range(3)]
    monkeypatch.setattr(named_pages, "_SEARCHED_MAX", 2)
    assert "among the first" in serve_replica(FakeReplica(rows)).browser().get("/tasks").text


@pytest.mark.parametrize("path", [*(path for _, path in NAV), "/act", GROUP, LETTER])
def test_what_went_wrong_is_told_in_words(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise BrokersUnreachable("b:1", "refused")

    replica = FakeReplica([letter()], [group()])
    for name in vars(Replica):
        if not name.startswith("_") and name not in ("freshness", "generation") and hasattr(replica, name):
            monkeypatch.setattr(replica, name, fails)
    monkeypatch.setattr(replica.told, "list_told", fails)
    made = serve_replica(replica)
    if path == "/policies":
        made.console.registry = fails  # type: ignore[assignment]
    answer = made.browser().get(path)
    assert (answer.status_code, 'role="alert"' in answer.text, "b:1" in answer.text) == (503, True, True)
    assert "As of <time" in answer.text
