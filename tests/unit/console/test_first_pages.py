"""Now, Failures, Letters and Letter: what they say, what they hide, and how they are when there is nothing, or nothing yet."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from html import unescape

import pytest

from retry.clock import Deadline
from retry.console import server as acting
from retry.console.reading.payloads import Scanned
from retry.console.rows import Freshness, Held, Scope
from retry.console.web import letter as web_letter
from retry.console.web import letters
from retry.console.web.now import describe_now
from retry.console.web.rights import Granted, Role, Sight, make_token
from retry.delay_queue import entry_keys
from retry.errors import BrokersUnreachable, CursorStale, RebuildInProgress, RecordUnwritten
from retry.operations.letter_filter.parse import parse
from tests.support.console import NOW_MS, ORIGIN, FakeReplica, csrf_of, group, letter, record, serve_console
from tests.support.open_page import DEADLINE_S, looking, run

XSS = "<script>alert(1)</script>\x1b[2J\u202eabc"
PAGES = ("/", "/failures", "/letters", "/failures/f00d", "/letters/parked/0/1")
ACTING = ("/act", "/actions", "/pauses", "/policies", "/schedules", "/tasks", "/timers", "/audit")


def full(**fields: object) -> FakeReplica:
    """A replica of one letter and its group."""
    replica = FakeReplica([letter(1, **fields)], [group()])
    replica.payloads.records["parked/0/1"] = record(
        "parked/0/1", b'{"order": 4711, "to": ["ada", null]}', [("x-tenant", b"acme"), ("kafka_dlt-exception-message", b"late")]
    )
    return replica


def test_the_first_sentence_says_what_matters() -> None:
    replica = full()
    now = replica.load_now(None)
    paused = Held("pause", "team", "payments", NOW_MS, None, "bank is down", "ann")
    held = Held("action", "retry", "abc", NOW_MS, None, "", "ann")
    of = lambda **fields: describe_now(type(now)(**{  # noqa: E731
        **{name: getattr(now, name) for name in now.__slots__}, "waiting": 0, "parked": 0, "new_groups": 0, "held": (), **fields,
    }))  # fmt: skip
    assert of() == "Nothing waits."
    assert of(waiting=12_304, new_groups=3, held=(paused,)) == "12,304 wait, 3 failures are new and payments is paused."
    assert of(waiting=1, new_groups=1) == "1 waits and 1 failure is new."
    assert of(parked=2) == "Nothing waits and 2 are parked."
    assert of(waiting=1, held=(held, Held("pause", "all", "", 0, None, "", ""))) == (
        "1 waits, an action (retry) is on hold and everything is paused."
    )


def test_now_tells_what_is_held_and_why() -> None:
    replica = full()
    replica.held = (Held("pause", "team", "payments", NOW_MS - 60_000, NOW_MS + 60_000, "bank is down", "ann", 7),)
    html = serve_console(replica).browser().get("/").text
    assert "payments is paused" in html
    assert all(part in html for part in ("bank is down", "ann", "1 min ago", "in 1 min"))
    assert re.search(r"<td class=\"n\">60 % <meter", html)


def test_the_empty_console_says_how_to_attach() -> None:
    browser = serve_console().browser()
    html = browser.get("/").text
    assert ("Nothing waits." in html, "How to attach" in html, "retry discover" in html) == (True, True, True)
    assert "Nothing fails." in browser.get("/failures").text
    assert "Nothing waits." in browser.get("/letters").text


@pytest.mark.parametrize("path", PAGES + ACTING)
def test_every_page_says_how_old_its_data_is(path: str) -> None:
    replica = full()
    browser = serve_console(replica, more=[acting.build_acting_routes]).browser()
    html = browser.get(path).text
    # Only what keeps a page fresh says that it is live; the other pages say that they are not.
    assert (">Live<" in html, "As of <time" in html) == (False, True)
    assert ("hx-sse:connect" in html) != ("This page does not refresh itself: <a href=" in html)
    replica.state = Freshness("old", 1.0, NOW_MS - 120_000, 5, "no broker answered")
    html = browser.get(path).text
    assert all(part in html for part in (">Old<", "2 min ago", "no broker answered"))


def test_what_is_wrong_with_topics_is_told_to_who_sees_every_team() -> None:
    token, line = make_token("ada", Granted({"payments": Role.ADMIN}))
    every, of_all = make_token("eve", Granted({"*": Role.VIEWER}))
    replica = full()
    replica.state = Freshness("old", 1.0, NOW_MS, 5, "zz-foreign.parked/0/17: no outcome")
    made = serve_console(replica, tokens=f"{line}\n{of_all}", more=[acting.build_acting_routes])
    for who, told in ((token, False), (every, True)):
        browser = made.browser()
        browser.post("/sign-in", data={"token": who}, headers={"Origin": ORIGIN})
        for path in ("/", "/letters/parked/0/1", "/api/now"):
            assert ("zz-foreign" in browser.get(path).text) == told, path
        sight = Sight(None if told else frozenset({"payments"}), frozenset())
        assert ("zz-foreign" in made.console.live._parts["freshness"](sight, "")) == told
    health = made.browser().get("/health/ready").json()
    assert (health["state"], health["error"]) == ("old", "the log of the console says what")


def test_a_page_of_what_payloads_say_is_not_kept_fresh() -> None:
    browser = serve_console(full()).browser()
    for path in ("/letters", "/failures"):
        assert "hx-sse:connect" in browser.get(path, params={"q": "team:payments"}).text
        assert "does not refresh itself" in browser.get(path, params={"q": "value.$.order=4711"}).text


@pytest.mark.parametrize("path", PAGES)
def test_while_the_replica_is_built_pages_say_how_far_it_is(path: str) -> None:
    replica = full()
    replica.trouble, replica.state = RebuildInProgress(0.25), Freshness("rebuilding", 0.25, None, 100)
    answer = serve_console(replica).browser().get(path)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert "25 %" in answer.text
    ready = serve_console(replica).browser().get("/health/ready")
    assert (ready.status_code, ready.json()["progress"]) == (503, 0.25)


def test_a_stale_cursor_and_an_unknown_field_are_refused() -> None:
    replica = full()
    browser = serve_console(replica).browser()
    paths = ["/letters?qq=team:a", "/failures?x=1", "/?q=a", "/letters/parked/0/1?x=1", "/letters?q=a&q=b", "/failures?show=x"]
    for path in paths:
        assert browser.get(path).status_code == 400, path
    replica.trouble = CursorStale()
    answer = browser.get("/letters?after=nonsense")
    assert (answer.status_code, "go back to the first page" in answer.text) == (409, True)


def test_a_filter_that_is_none_names_the_column_and_stays_in_its_line() -> None:
    answer = serve_console(full()).browser().get("/letters", params={"q": "team:payments stat:parked"})
    assert answer.status_code == 400
    assert "filter, column 15" in answer.text
    assert 'value="team:payments stat:parked"' in answer.text
    assert "<mark>stat:parked</mark>" in answer.text


def test_where_nothing_matches_the_term_that_excludes_all_is_marked() -> None:
    replica = FakeReplica(nothing_matches="attempt:9..")
    html = serve_console(replica).browser().get("/letters", params={"q": "team:payments attempt:9.."}).text
    assert ("Nothing matches." in html, "<mark><code>attempt:9..</code></mark>" in html) == (True, True)


def test_the_next_page_goes_on_with_the_same_filter() -> None:
    replica = FakeReplica([letter(n) for n in range(101)])
    html = serve_console(replica).browser().get("/letters", params={"q": "team:payments"}).text
    assert html.count("<tr id=") == 100
    assert 'href="/letters?q=team%3Apayments&amp;after=next"' in html
    assert 'href="/act?q=team%3Apayments"' in html


def test_a_letter_is_redacted_to_its_shape_until_it_is_revealed() -> None:
    made = serve_console(full())
    browser = made.browser()
    html = browser.get("/letters/parked/0/1").text
    assert not any(part in html for part in ("4711", "acme", "ada"))
    assert all(part in html for part in ("$.order", "text of 3, null", "x-tenant", "4 bytes", "late"))
    assert made.audit.told == []
    revealed = browser.post("/letters/parked/0/1/reveal", data={"csrf": csrf_of(html)}, headers={"Origin": ORIGIN})
    assert all(part in revealed.text for part in ("4711", "acme"))
    assert made.audit.told == [("reveal", "local", "", ["parked/0/1"], ["payments"])]


def test_nothing_is_revealed_where_the_audit_does_not_have_it() -> None:
    made = serve_console(full())
    made.audit.trouble = RecordUnwritten("nobody has acknowledged it")
    browser = made.browser()
    token = csrf_of(browser.get("/letters/parked/0/1").text)
    answer = browser.post("/letters/parked/0/1/reveal", data={"csrf": token}, headers={"Origin": ORIGIN})
    assert (answer.status_code, "4711" in answer.text) == (503, False)


@pytest.mark.parametrize(("reveal", "status"), [(frozenset(), 403), (frozenset({"orders"}), 403), (frozenset({"payments"}), 200)])
def test_payloads_and_filters_on_them_take_the_right_to_reveal(reveal: frozenset[str], status: int) -> None:
    token, line = make_token("ada", Granted({"payments": Role.ADMIN}, reveal))
    made = serve_console(full(), tokens=line)
    browser = made.browser()
    browser.post("/sign-in", data={"token": token}, headers={"Origin": ORIGIN})
    html = browser.get("/failures/f00d").text
    answer = browser.post("/letters/parked/0/1/reveal", data={"csrf": csrf_of(html)}, headers={"Origin": ORIGIN})
    assert (answer.status_code, "4711" in answer.text) == (status, status == 200)
    for term in ("value.$.order=4711", "header.x-tenant:acme", "-(team:a or value.$.a=b)"):
        assert browser.get("/letters", params={"q": term}).status_code == status
    assert [told[0] for told in made.audit.told] == ["reveal"] * (4 if status == 200 else 0)


def test_a_filter_on_payloads_says_how_far_it_looked_and_is_in_the_audit() -> None:
    made = serve_console(full())
    html = made.browser().get("/letters", params={"q": "value.$.order=4711"}).text
    assert all(part in html for part in ("40 letters", "until the time was up", "Next page"))
    assert made.audit.told == [("reveal", "local", "filter value.$.order=4711", ["parked/0/7"], ["payments"])]


def test_the_top_of_a_page_is_there_while_payloads_are_looked_into_and_its_link_stops_that() -> None:
    made, ended = serve_console(full()), threading.Event()
    payloads = made.replica.payloads

    def slow(_scope: Scope, _meant: object, _after: object, _limit: int, is_cancelled: Callable[[], bool]) -> Scanned:
        deadline = Deadline(DEADLINE_S)
        while not is_cancelled():
            assert not deadline.has_passed()
        ended.set()
        return Scanned([], 40, "cancelled", "on")

    async def test() -> None:
        payloads.scan = slow  # type: ignore[method-assign]
        async with looking(made, "", "/letters", "q=value.$.order%3D4711") as stream:
            await stream.until(lambda text: '<a class="button" href="/letters">Stop looking</a>' in text)
            assert (stream.status, "Payloads were looked into" in stream.text, ended.is_set()) == (200, False, False)
        # Whoever follows the link closes the page.
        await asyncio.to_thread(ended.wait, DEADLINE_S)

    run(test())
    assert ended.is_set()
    with ExitStack() as held:
        for _ in range(4):
            held.enter_context(letters._room())


def test_what_goes_wrong_with_a_look_into_payloads_is_told_and_nothing_is_shown() -> None:
    made = serve_console(full())
    browser = made.browser()
    assert browser.get("/letters?q=value.$.a=1&after=stale").status_code == 409
    for error, told in ((RecordUnwritten("not written"), "not written"), (ZeroDivisionError(), "a fault of the console")):
        made.audit.trouble = error
        html = browser.get("/letters?q=value.$.a=1").text
        assert (told in html, "parked/0/7" in html, "</html>" in html) == (True, False, True)


def test_few_look_into_payloads_at_a_time_so_that_others_get_their_pages() -> None:
    browser = serve_console(full()).browser()
    ask = lambda: browser.get("/letters", params={"q": "value.$.order=4711"})  # noqa: E731
    with ExitStack() as held:
        for _ in range(4):
            held.enter_context(letters._scans)
        refused = ask()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert (browser.get("/letters").status_code, browser.get("/health/live").status_code) == (200, 200)
    assert ask().status_code == 200


def test_the_letter_that_another_waits_behind_is_the_first_of_its_key_and_team() -> None:
    behind = letter(2, state="waiting", due_at_ms=20, behind=True, key=b"k")
    others = [letter(3, "orders", state="waiting", due_at_ms=5, key=b"k"), letter(4, state="waiting", due_at_ms=6, behind=True)]
    replica = FakeReplica([*others, letter(1, state="waiting", due_at_ms=10, key=b"k", offset=77), behind])
    made = serve_console(replica)
    head = web_letter._head(made.console, behind)
    assert head is not None
    assert str(entry_keys.read_source(head)) == "10/orders.DLT/0/77"
    assert str(replica.asked[-1][1]) == "topic:orders.DLT key:k state:waiting"
    assert web_letter._head(made.console, letter(1)) is None
    replica.rows = []
    assert web_letter._head(made.console, behind) is None


def test_a_letter_whose_record_cannot_be_read_shows_the_rest() -> None:
    replica = full()
    replica.payloads.trouble = BrokersUnreachable("b:1", "down")
    html = serve_console(replica).browser().get("/letters/parked/0/1").text
    assert all(part in html for part in ("its record cannot be read now", "a.GatewayTimeout", "What happened to it"))


@pytest.mark.parametrize("path", PAGES)
def test_what_records_say_is_shown_as_text_alone(path: str) -> None:
    fields = dict.fromkeys(("message", "exception", "cause", "target", "policy", "reason", "consumer_group", "topic"), XSS)
    kind = group(message=XSS, cause=XSS, owner=XSS, note=XSS, link=f"javascript:{XSS}")
    replica = FakeReplica([letter(1, **fields, key=XSS.encode())], [kind])
    replica.payloads.records["parked/0/1"] = record("parked/0/1", XSS.encode(), [(XSS, XSS.encode())])
    html = serve_console(replica).browser().get(path).text
    assert "<script>alert" not in html
    assert not any(char in html for char in "\x1b\u202e")
    assert 'href="javascript:' not in html
    if path != "/":
        assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[2J\\u202eabc" in html


def test_what_takes_a_role_is_offered_to_who_has_it() -> None:
    for role, offered in ((Role.VIEWER, False), (Role.OPERATOR, True)):
        token, line = make_token("ada", Granted({"payments": role}))
        browser = serve_console(full(), tokens=line).browser()
        browser.post("/sign-in", data={"token": token}, headers={"Origin": ORIGIN})
        kinds, listed = browser.get("/failures").text, browser.get("/letters").text
        assert ('<form method="post" action="/failures" id="merging">' in kinds) == offered
        assert bool(csrf_of(kinds.partition('id="merging"')[2])) == offered
        assert ('formaction="/failures/f00d/merge"' in kinds) == offered
        assert ("/act" in listed, "Act on" in listed, 'type="checkbox" name="name"' in listed) == (offered,) * 3


def test_a_filter_is_completed_by_fields_and_by_what_there_is() -> None:
    browser = serve_console(full()).browser()
    found = lambda text: re.findall(r'data-value="([^"]*)"', browser.get("/letters/complete", params={"q": text}).text)  # noqa: E731
    assert found("team:payments st") == ["team:payments state:"]
    assert found("-topic:ord") == ["-topic:orders.DLT"]
    assert found("exception:gate") == ["exception:a.GatewayTimeout"]
    assert "value:" not in found("")
    assert found("message:x y") == []


def test_the_group_page_offers_what_its_viewer_may_do() -> None:
    for role, offered in ((Role.VIEWER, False), (Role.OPERATOR, True)):
        token, line = make_token("ada", Granted({"payments": role}))
        browser = serve_console(full(), tokens=line).browser()
        browser.post("/sign-in", data={"token": token}, headers={"Origin": ORIGIN})
        html = browser.get("/failures/f00d").text
        assert ("Resolve it" in html, "Merge it into this one" in html, "Make each a group" in html) == (offered,) * 3
        assert 'href="/letters?q=group%3Af00d+topic%3Aorders.DLT"' in html
        assert "merged 0bad into it" in html


def test_letters_that_kafka_deletes_soon_are_linked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = FakeReplica([letter()])
    now = replace(replica.load_now(None), near_retention=3, near_retention_age_ms=6 * 86_400_000)
    monkeypatch.setattr(replica, "load_now", lambda _: now)
    browser = serve_console(replica).browser()
    page = browser.get("/").text
    assert "3 letters are near the end of their retention" in page
    (address,) = re.findall(r'href="(/letters[^"]+)">Letters that failed first more than 6 d ago', page)
    assert browser.get(unescape(address)).status_code == 200
    assert replica.asked[-1][1] == parse("(state:parked or state:discarded) age:>6d")
    # With no retry sent, as on the first day.
    monkeypatch.setattr(replica, "load_now", lambda _: replace(now, near_retention=0, near_retention_age_ms=None, recovery=()))
    page = browser.get("/").text
    assert ("retention" in page, "No retry was sent within a day.</p>" in page) == (False, True)
