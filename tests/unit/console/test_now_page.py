"""Now answers who is woken up; every page writes times in one way, and has a title that says how many and a key."""

from __future__ import annotations

import re

import pytest

from retry.console import server as acting
from retry.console.reading.urgent_failures import Rates
from retry.console.rows import BreakerState, Held
from retry.console.web.app import NAV, assign_keys
from retry.delay_queue import action_records
from retry.delay_queue.action_records import Action, Order
from retry.delay_queue.ramp_records import Ramp
from tests.support.console import NOW_MS, FakeReplica, group, letter, serve_console, settings_with_rules

HOUR_MS = 3_600_000


def answers(html: str) -> dict[str, str]:
    """The text of each answer, by its question, without marks."""
    sections = re.findall(r'<h2 id="(\w+)-title">.*?</h2>(.*?)</section>', html, re.DOTALL)
    return {name: re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", text)).strip() for name, text in sections}


RAMP = Ramp(0.9, [10, 90], 1_000, 1_000)


def woken_up(ramp: Ramp | None = RAMP) -> FakeReplica:
    replica = FakeReplica([letter(1)], [group(), group("beef", owner="ann", link="https://t/1")])
    replica.rates = Rates(340, 85 * 60_000, 264, 22 * HOUR_MS)
    replica.held = (Held("pause", "team", "payments", NOW_MS - 60_000, None, "bank is down", "ann", 7),)
    replica.breakers = (BreakerState("orders.retry", "open", "it refuses", NOW_MS - 60_000, 1, 17),)
    ids = [bytes([n]) * 8 for n in (1, 2)]
    heads = [Action("retry", "bob", NOW_MS - HOUR_MS, [1], 100, ramp=ramp), Action("discard", "eve", NOW_MS, [1], 5)]
    replica.control_records = [{
        **{action_records.build_head_key(id_): action_records.encode(head) for id_, head in zip(ids, heads, strict=True)},
        action_records.build_held_key(ids[1]): action_records.encode(Order("worker", NOW_MS, "too few recover")),
    }]  # fmt: skip
    return replica


def test_each_question_has_its_answer_in_sentences_with_links() -> None:
    html = serve_console(woken_up()).browser().get("/").text
    told, held = answers(html), answers(html)["held"]
    failure = "java.net.ConnectException order # failed"
    assert told["new"].startswith(f"{failure}: 3 letters of payments, first 1 h ago; nobody is on it.")
    rates = "340 failed in the last 1 h 25 min, 240 an hour; in the 22 h before that it was 12 an hour"
    assert f"{rates}; ann is on it." in told["growing"]
    assert "team payments was paused by ann 1 min ago until somebody resumes it: bank is down. 7 letters wait" in held
    assert "The discard of 5 letters was put on hold by worker now: too few recover. 0 of 5 letters done." in held
    assert "Nothing is sent to orders.retry: its circuit breaker is open (1 min ago): it refuses. 17 letters wait" in held
    assert told["running"] == "The retry of 100 letters that bob asked for 1 h ago: 0 of 100 letters done, step 1 of 2."
    assert "ann is on java.net.ConnectException order # failed: 3 letters, https://t/1." in told["owners"]
    assert "Nobody is on 1 failure that is new or growing." in told["owners"]
    for address in ("/failures/f00d", "/failures/beef", "/pauses", "/workers", f"/actions/{'01' * 8}", f"/actions/{'02' * 8}"):
        assert f'href="{address}"' in html, address
    assert "2 failures are growing" in html


def test_where_nothing_is_wrong_each_question_says_so() -> None:
    told = answers(serve_console(FakeReplica([letter(1)], [])).browser().get("/").text)
    assert told["new"].startswith("No failure was first seen within a day")
    assert told["growing"].startswith("No failure comes twice as often")
    assert told["held"].startswith("Nothing is held")
    assert told["running"] == "No action runs."
    assert told["owners"].startswith("Nobody has written a name")


def test_offsets_and_shards_are_on_the_page_of_workers_for_who_sees_every_team() -> None:
    browser = serve_console(woken_up()).browser()
    assert "Partitions of the changelog" not in browser.get("/").text
    html = browser.get("/workers").text
    assert all(part in html for part in ("Partitions of the changelog", ">10<", ">12<", "orders.retry"))


def test_the_title_says_how_many_and_what_is_new_first() -> None:
    browser = serve_console(woken_up()).browser()
    html = browser.get("/").text
    assert "<title>(1 new) Now: 0 waiting, 1 parked · retry</title>" in html
    assert 'data-title="(1 new) Now: 0 waiting, 1 parked"' in html
    for address, title in (("/letters", "1 letter"), ("/letters?q=team:%22%3Cb%3E%22", "1 letter: team:&#34;&lt;b&gt;&#34;")):
        html = browser.get(address).text
        assert (f"<title>{title} · retry</title>" in html, f'data-title="{title}"' in html) == (True, True), address
    empty = serve_console().browser().get("/").text
    assert "<title>Now: 0 waiting, 0 parked · retry</title>" in empty


PAGES = ["/", "/failures", "/letters", "/failures/f00d", "/letters/parked/0/1", "/actions", "/audit", "/workers"]
TIME = r'datetime="\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z" data-as="(full|brief|minute|ago|ago-brief)"'
# Where a time may be written out: what a pointer or a screen reader is told, and charts.
SAID = r"<time .*?</time>|<button.*?</button>|(title|aria-label)=\"[^\"]*\"|<title>[^<]*UTC[^<]*</title>"


@pytest.mark.parametrize("path", PAGES)
def test_every_time_on_a_page_is_a_time_that_the_script_can_write_anew(path: str) -> None:
    replica = woken_up(ramp=None)
    html = serve_console(replica, more=[acting.build_acting_routes]).browser().get(path).text
    times = re.findall(r"<time ([^>]*)>", html)
    assert times
    for attributes in times:
        assert re.match(TIME, attributes), attributes
    rest = re.sub(SAID, "", html, flags=re.DOTALL)
    assert not re.search(r"\d\d:\d\d(:\d\d)?|\d (min|h|d) ago", rest), "a time that is none for the script"


def test_each_page_has_a_key_of_its_own_which_the_help_tells() -> None:
    links = assign_keys(NAV)
    assert len({link.key for link in links}) == len(links)
    keys = {link.text: link.key for link in links}
    assert [keys[text] for text in ("Now", "Failures", "Letters", "Actions", "Pauses", "Policies")] == list("nflapo")
    settings = settings_with_rules("targets: {chat: {apprise: /run/secrets/chat}}")
    html = serve_console(more=[acting.build_acting_routes], settings=settings).browser().get("/").text
    for text, path, key in links:
        assert f'<a href="{path}" data-key="{key}"' in html
        assert f"<kbd>g</kbd> <kbd>{key}</kbd></dt><dd>go to {text}</dd>" in html
