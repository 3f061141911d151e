"""The page of one failure, as its viewers get it: links that filter, what is advised, and what is offered to whom."""

from __future__ import annotations

import json
import os
import re
from html import unescape
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from retry.console import server as acting
from retry.console.reading.advice import find_group_advice
from retry.console.reading.group_details import PastEvent
from retry.console.rows import FailureState
from retry.console.web.rights import make_token, read_roles
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import AllOf, Moment, Range, Term
from tests.support.console import NOW_MS, ORIGIN, FakeReplica, Served, csrf_of, group, letter, serve_console

PAGE = "/failures/f00d"


def serve_group(**fields: object) -> Served:
    return serve_console(FakeReplica([letter()], [group(**fields)]), more=[acting.build_acting_routes])


def filters_of(html: str) -> list[str]:
    """The filters that links to letters have."""
    links = (urlsplit(unescape(each)) for each in re.findall(r'href="(/letters\?[^"]*)"', html))
    return [parse_qs(each.query)["q"][0] for each in links]


@pytest.mark.parametrize(("period", "wide", "narrow"), [("1h", 20, 10), ("24h", 24, 12), ("7d", 21, 7)])
def test_each_bar_is_a_link_that_filters_by_its_time(period: str, wide: int, narrow: int) -> None:
    html = serve_group().browser().get(f"{PAGE}?period={period}").text
    times = [
        part.value for each in filters_of(html) if isinstance(asked := parse(each, groups=True), AllOf)
        for part in asked.of if isinstance(part, Term) and part.field == "failed"
    ]  # fmt: skip
    assert len(times) == wide + narrow
    spans = [(each.low.ms, each.high.ms + 1) for each in times if isinstance(each, Range) and isinstance(each.low, Moment)]  # type: ignore[union-attr]
    for some in (spans[:wide], spans[wide:]):
        assert all(end == begin for (_, end), (begin, _) in pairwise(some))
        assert some[0][0] < NOW_MS
    assert (spans[0][0], spans[wide - 1][1]) == (spans[wide][0], spans[-1][1])
    assert f'href="{PAGE}?period={period}" aria-current="page"' in html
    assert "style=" not in html


def test_an_unknown_period_is_refused() -> None:
    answer = serve_group().browser().get(f"{PAGE}?period=1y")
    assert (answer.status_code, "period is one of 1h, 24h, 7d" in answer.text) == (400, True)


def test_what_letters_share_leads_to_those_that_share_it() -> None:
    found = filters_of(serve_group().browser().get(PAGE).text)
    expected = {
        "group:f00d topic:orders.DLT", "group:f00d topic:orders.DLT partition:3", "group:f00d version:2.14.1",
    }  # fmt: skip
    assert expected <= set(found)
    for each in found:
        parse(each, groups=True)


def test_what_became_of_retries_is_drawn_and_told() -> None:
    html = serve_group().browser().get(PAGE).text
    assert "6 recovered · 4 failed again · 1 not known yet" in html
    widths = [float(each) for each in re.findall(r'class="(?:recovered|failed|unknown)"[^>]* width="([\d.]+)%"', html)]
    assert widths == [54.55, 36.36, 9.09]


def test_what_was_done_before_stands_in_one_line_each() -> None:
    made = serve_group()
    made.replica.before = (
        PastEvent(NOW_MS - 60_000, "retry", "ana", "<b>bank</b>", "00000000000000aa", 1_814, 1_811),
        PastEvent(NOW_MS - 40 * 86_400_000, "discard", "ivo", "", "00000000000000bb", 12, 12),
        PastEvent(NOW_MS, "note", "eve", "owner \u202eeve"),
    )
    html = made.browser().get(PAGE).text
    lines = [re.sub(r"<[^>]+>", "", each).strip() for each in re.findall(r"<li>(.*?)</li>", html) if "<b>" in each]
    assert [unescape(each).partition(") ")[2] for each in lines] == [
        "ana retried 1,811 of 1,814 letters: <b>bank</b>", "ivo discarded 12 of 12 letters", r"eve wrote: owner \u202eeve",
    ]  # fmt: skip
    assert ('href="/actions/00000000000000aa"' in html, 'href="/audit?action=00000000000000bb"' in html) == (True, True)


def make_advice_row(team: str, exception: str, letters: int, where: str = "") -> dict[str, object]:
    return {
        "team": team, "exception": exception, "where": where, "letters": letters, "verdict": "fewer", "attempts": 2,
        "attempts_now": 6, "delays_ms": {"1": 60_000}, "saved": 512.0, "kept_low": 0.95, "recoveries_now": 3.0,
        "recoveries_at_risk": 0.1, "missing": 0,
    }  # fmt: skip


def test_the_advice_for_a_failure_stands_with_its_base(tmp_path: Path) -> None:
    file, made = tmp_path / "advice.json", serve_group()
    html = made.browser().get(PAGE).text
    assert "What analytics advise" not in html
    made.console.settings = msgspec.structs.replace(made.console.settings, console_advice=file)
    assert "cannot be read: No such file" in made.browser().get(PAGE).text
    rows = [
        make_advice_row("orders", "java.net.ConnectException", 90_000), make_advice_row("payments", "other", 70_000),
        make_advice_row("payments", "java.net.ConnectException", 300, "orders.DLT"),
        make_advice_row("payments", "java.net.ConnectException", 800, "refunds.DLT"),
    ]  # fmt: skip
    file.write_text(json.dumps({"advice": rows}))
    html = made.browser().get(PAGE).text
    assert "2 of 6 attempts, attempt 1 after 1m, saves 512 retries, keeps at least 95.0% of the recoveries." in html
    assert "It is based on 300 letters of team payments (orders.DLT)" in html
    file.write_text(json.dumps({"advice": rows[:2]}))
    assert "They say nothing of this exception" in made.browser().get(PAGE).text


def test_advice_is_read_again_when_its_file_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "advice.json"
    for letters in (300, 400):
        file.write_text(json.dumps({"advice": [make_advice_row("payments", "java.net.ConnectException", letters)]}))
        os.utime(file, ns=(letters, letters))
        found = find_group_advice(file, group())
        assert found is not None
        assert found.letters == letters


ACTIONS = ("Retry<", "Ramp…", "Pause…", "Discard…", "Assign to me", "Resolve it")


def test_actions_stand_on_top_for_those_who_may() -> None:
    grants = {"ann": "payments:operator", "vic": "payments:viewer"}
    tokens = {name: make_token(name, read_roles(grant.split()) or pytest.fail(grant)) for name, grant in grants.items()}
    made = serve_console(
        FakeReplica([letter()], [group()]), tokens="\n".join(line for _, line in tokens.values()),
        more=[acting.build_acting_routes],
    )  # fmt: skip
    for name, (token, _) in tokens.items():
        browser = made.browser()
        page = browser.get("/sign-in").text
        browser.post("/sign-in", data={"csrf": csrf_of(page), "token": token}, headers={"Origin": ORIGIN})
        html = browser.get(PAGE).text
        assert [each in html for each in ACTIONS] == [name == "ann"] * len(ACTIONS), name


def test_assigning_is_a_form_that_names_this_page() -> None:
    html = serve_group(note="bank is down").browser().get(PAGE).text
    assert re.search(f'<form method="post" id="assigning" action="{PAGE}/assign">.*name="page" value="failure"></form>', html)
    assert '<button form="assigning"' in html


@pytest.mark.parametrize(
    ("state", "badge"),
    [
        (FailureState.NEW, '<span class="badge bad">New</span>'),
        (FailureState.CAME_AGAIN, '<span class="badge warn">Came again</span>'),
        (FailureState.RESOLVED, '<span class="badge good">Resolved</span>'), (FailureState.ONGOING, ""),
    ],
)  # fmt: skip
def test_the_state_is_the_same_as_in_the_list(state: FailureState, badge: str) -> None:
    title = re.search("<h1>(.*?)</h1>", serve_group(state=state).browser().get(PAGE).text)
    assert title is not None
    assert title[1].partition('<span class="text">')[0].strip() == badge


def test_a_group_without_letters_is_not_acted_on() -> None:
    html = serve_group(waiting=0, parked=0).browser().get(PAGE).text
    assert [each in html for each in ACTIONS] == [False] * 4 + [True, True]
    html = serve_group(owner="ivo").browser().get(PAGE).text
    assert ("Assign to me" in html, "Assign…" in html) == (False, True)
