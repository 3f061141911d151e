"""A letter is drawn from its failure to what is next: every event has its place, long waits fit, and it is told in words, too."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from retry.console.rows import DepartedLetter, LineageEvent
from retry.console.web.letter_timeline import Stop, Timeline, draw_timeline, find_last_stop, place_stops
from retry.console.web.rights import Granted, Role, make_token
from tests.support.console import NOW_MS, ORIGIN, FakeReplica, group, letter, serve_console

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
FAILED_MS = NOW_MS - 3 * HOUR_MS
EVENTS = [
    LineageEvent(FAILED_MS, "failed", 0, "orders.DLT/0/1"),
    LineageEvent(FAILED_MS + 30 * MINUTE_MS, "due", 1),
    LineageEvent(FAILED_MS + 30 * MINUTE_MS + 200, "sent", 1, "orders.retry"),
    LineageEvent(FAILED_MS + 30 * MINUTE_MS + 2_200, "came back", 1, "orders.DLT/0/2"),
    LineageEvent(NOW_MS + HOUR_MS, "waiting", 2, "orders.retry"),
]


def draw(*events: LineageEvent) -> Timeline:
    drawn = draw_timeline(events, NOW_MS)
    assert drawn is not None
    return drawn


def spans(drawn: Timeline) -> list[str]:
    return re.findall(r'<rect class="([\w-]+)"', drawn.drawing)


def read_label(drawn: Timeline) -> str:
    return re.findall(r'aria-label="([^"]*)"', drawn.drawing)[0]


def test_it_goes_from_the_failure_over_each_retry_to_now_and_to_what_is_next() -> None:
    drawn = draw(*EVENTS)
    assert spans(drawn) == ["waits", "runs", "waits", "waits"]
    assert drawn.numbers == {0: 1, 2: 2, 3: 3, 4: 4}
    assert re.findall(r'<circle class="([\w-]+)"', drawn.drawing) == ["failed", "sent", "came-back", "waiting"]
    assert read_label(drawn) == (
        "It failed; after 30 min retry 1 was sent; after 2 s it failed again; after 2 h 29 min now; in 1 h due for retry 2."
    )


@pytest.mark.parametrize(
    ("last", "does", "words"),
    [
        (LineageEvent(NOW_MS - 9_000, "waiting", 2), "late", "due for retry 2; after 9 s now."),
        (LineageEvent(NOW_MS - 9_000, "sent", 2), "runs", "retry 2 was sent; after 9 s now."),
        (LineageEvent(NOW_MS - 9_000, "passed", 2), "recovers", "its consumer group passed it; after 9 s now."),
        (LineageEvent(NOW_MS - 9_000, "parked", 2), "rests", "it was parked; after 9 s now."),
        (LineageEvent(NOW_MS - 9_000, "discarded"), "rests", "it was discarded; after 9 s now."),
        (LineageEvent(NOW_MS - 9_000, "action"), "waits", "somebody acted on it; after 9 s now."),
    ],
)
def test_its_end_says_whether_it_waits_is_late_recovered_or_rests(last: LineageEvent, does: str, words: str) -> None:
    drawn = draw(*EVENTS[:-1], last)
    assert (spans(drawn)[-1], read_label(drawn).endswith(words)) == (does, True), read_label(drawn)


def test_ten_times_as_long_is_one_step_longer_and_nothing_is_too_narrow_to_be_numbered() -> None:
    moments = [0, 0]
    for step_ms in (9_000, 99_000, 999_000, 9_999_000):
        moments.append(moments[-1] + step_ms)
    wide = [end - begin for begin, end in pairwise(place_stops([Stop("sent", at_ms) for at_ms in moments]))]
    steps = [later - earlier for earlier, later in pairwise(wide)]
    assert steps == pytest.approx([steps[0]] * 4)
    assert steps[0] > 0
    crowd = place_stops([Stop("sent", 0)] * 8 + [Stop("now", 30 * DAY_MS)])
    # Two circles of ten pixels side by side, on a phone.
    assert min(end - begin for begin, end in pairwise(crowd)) * 340 / 100 >= 20


def test_of_many_events_the_first_and_the_newest_are_drawn_and_the_rest_is_counted() -> None:
    many = [LineageEvent(NOW_MS - (40 - n) * HOUR_MS, "came back" if n % 2 else "sent", n) for n in range(20)]
    drawn = draw(*many)
    assert list(drawn.numbers) == [0, 1, 14, 15, 16, 17, 18, 19]
    assert (drawn.left_out, spans(drawn).count("folded"), "12 more that are only listed" in read_label(drawn)) == (12, 1, True)


def test_what_has_no_time_is_not_drawn_and_nothing_alone_is_no_line() -> None:
    assert draw_timeline([], NOW_MS) is None
    assert draw_timeline([LineageEvent(None, "parked"), LineageEvent(NOW_MS, "due", 1)], NOW_MS) is None
    assert read_label(draw(LineageEvent(NOW_MS + MINUTE_MS, "waiting", 1))) == "Now; in 1 min due for retry 1."
    # The brokers' clocks are their own.
    assert read_label(draw(LineageEvent(NOW_MS, "failed", 0), LineageEvent(NOW_MS, "parked", 1))).endswith("after 0 s now.")


def test_the_page_of_a_letter_has_the_line_and_its_numbers_in_the_list() -> None:
    html = serve_console(FakeReplica([letter()], [group()])).browser().get("/letters/parked/0/1").text
    assert '<svg class="lifeline" role="img" aria-label="It failed; after 0 s it was parked; after 0 s now."' in html
    assert re.findall(r'<b class="stop ([\w-]+)">(\d)</b>', html) == [("failed", "1"), ("parked", "2")]
    assert "style=" not in html.partition('class="lifeline"')[2].partition("</svg>")[0]


def test_the_page_lists_what_is_not_drawn_without_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = FakeReplica([letter()], [group()])
    monkeypatch.setattr(replica, "lineage", lambda *_: EVENTS)
    html = serve_console(replica).browser().get("/letters/parked/0/1").text
    assert re.findall(r'<li>(?:<b class="stop [\w-]+">(\d)</b> )?<span', html) == ["1", "", "2", "3", "4"]


NAME, PLACE = "1700000000000/orders.DLT/0/1", "orders.DLT/0/1"
DEPARTED = DepartedLetter(PLACE, "00f067aa0ba902b7", "com.acme.Declined", "f00df00df00df00d")


def test_the_last_that_happened_is_the_newest_of_the_past() -> None:
    assert find_last_stop(EVENTS, NOW_MS) == Stop("came back", FAILED_MS + 30 * MINUTE_MS + 2_200, 1)
    assert find_last_stop([LineageEvent(NOW_MS + 1, "waiting", 1), LineageEvent(None, "parked")], NOW_MS) is None


def test_the_page_of_a_letter_that_has_left_says_what_became_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = FakeReplica([], [group()], departed={NAME: DEPARTED})
    monkeypatch.setattr(replica, "lineage", lambda *_: EVENTS[:3])
    page = serve_console(replica).browser().get(f"/letters/{NAME}")
    assert (page.status_code, "waits and rests no more: retry 1 was sent" in page.text) == (200, True)
    assert 'href="/failures/f00df00df00df00d"' in page.text
    assert '<svg class="lifeline"' in page.text
    assert "What came back of it" not in page.text


def test_what_came_back_of_a_letter_that_has_left_is_named() -> None:
    replica = FakeReplica([letter()], [group()], departed={NAME: replace(DEPARTED, letter="orders.DLT/0/0", present=(letter(),))})
    html = serve_console(replica).browser().get(f"/letters/{NAME}").text
    assert re.search(r'<a href="/letters/parked/0/1">.*</a> <span class="badge parked">parked</span>', html)


def test_a_letter_that_waits_until_another_time_is_found_by_its_former_name() -> None:
    postponed = letter()
    departed = {NAME: replace(DEPARTED, letter=postponed.letter or "", present=(postponed,))}
    browser = serve_console(FakeReplica([postponed], [group()], departed=departed)).browser()
    answer = browser.get(f"/letters/{NAME}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/letters/parked/0/1")


@pytest.mark.parametrize(("team", "status"), [("payments", 200), ("orders", 404)])
def test_nobody_sees_what_became_of_another_teams_letter(team: str, status: int) -> None:
    token, line = make_token("ada", Granted({team: Role.VIEWER}))
    browser = serve_console(FakeReplica([], [group()], departed={NAME: DEPARTED}), tokens=line).browser()
    browser.post("/sign-in", data={"token": token}, headers={"Origin": ORIGIN})
    assert browser.get(f"/letters/{NAME}").status_code == status
