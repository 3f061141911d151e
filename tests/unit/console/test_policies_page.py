"""The page of policies: the topics of the viewer's teams, what becomes of a letter, and what rescheduling would change."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retry.console.acting import policy_pages
from retry.console.reading.advice import ROWS_MAX
from retry.console.web.rights import Role, Viewer
from retry.delay_queue.entry_keys import Source
from retry.delivery.redecide import Move
from retry.operations.waiting_entries import Example, Rehearsed
from tests.support.acting_console import ActingConsole
from tests.support.console import NOW_MS

ANN, ADA = Viewer("ann", {"shop": Role.OPERATOR, "bank": Role.VIEWER}), Viewer("ada", {"*": Role.ADMIN})
EVE = Viewer("eve", {"bank": Role.VIEWER})


@pytest.fixture
def console() -> Iterator[ActingConsole]:
    made = ActingConsole()
    yield made
    made.close()


def test_the_topics_of_other_teams_are_not_there(console: ActingConsole) -> None:
    own = console.ask(EVE, "GET", "/policies").text
    assert ("loans.DLT" in own, "orders.DLT" in own, "10/s" in own) == (True, False, False)
    page = console.ask(ADA, "GET", "/policies").text
    assert ("loans.DLT" in page, "orders.DLT" in page, "10/s" in page) == (True, True, True)
    assert console.registry.digest in page


def test_what_becomes_of_a_letter_is_explained_as_by_the_command(console: ActingConsole) -> None:
    given = "topic=orders.DLT&attempt=1&exception=a.Timeout&cause=&message=&stage=&age=&header=a%3A+b&group=&origin="
    page = console.ask(ANN, "GET", f"/policies/explain?{given}").text
    assert "Retry 1 is made, to orders.retry." in page
    assert 'value="a.Timeout"' in page
    assert console.ask(EVE, "GET", f"/policies/explain?{given}").status_code == 404
    # No team's topic is the default's, which nobody has a role in.
    assert console.ask(EVE, "GET", "/policies/explain?topic=x.DLT").status_code == 404
    assert console.ask(ADA, "GET", "/policies/explain?topic=x.DLT").status_code == 200


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("attempt=0", "attempt"), ("attempt=²", "attempt"), ("age=soon", "age"), ("header=nothing", "header"),
        ("attemp=1", "attemp"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(console: ActingConsole, query: str, told: str) -> None:
    answer = console.ask(ANN, "GET", f"/policies/explain?topic=orders.DLT&{query}")
    assert (answer.status_code, told in answer.text) == (400, True)


def test_rescheduling_is_shown_for_a_team_of_ones_own_and_one_at_a_time(
    console: ActingConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    @contextmanager
    def open_folded_table(_settings: Any) -> Iterator[str]:
        yield "table"

    def rehearse_move(_table: str, _judge: Any, request: Any) -> Rehearsed:
        asked.append(request)
        busy = console.ask(ANN, "GET", "/policies/reschedule?team=shop")
        assert (busy.status_code, "another one is worked out" in busy.text) == (409, True)
        example = Example(Source(NOW_MS, "orders.DLT", 0, 7), NOW_MS + 5, "orders.retry", None)
        moved = next(move for move in Move if move is not Move.UNCHANGED)
        return Rehearsed({("shop", "shop/orders.DLT"): Counter({moved: 3})}, {moved: [example]}, 2)

    monkeypatch.setattr(type(console.console), "cluster", lambda _: None)
    monkeypatch.setattr(policy_pages.waiting_entries, "make_redecider", lambda *_: None)
    monkeypatch.setattr(policy_pages.waiting_entries, "rehearse_request", rehearse_move)
    monkeypatch.setattr(policy_pages.waiting_entries, "open_changelog_table", open_folded_table)
    for team in ("", "bank", "x"):
        refused = console.ask(ANN, "GET", f"/policies/reschedule?team={team}&of_topic=")
        assert (refused.status_code, "name one of your teams" in refused.text) == (400, True)
    for viewer in (ANN, ADA):
        page = console.ask(viewer, "GET", "/policies/reschedule?team=shop&of_topic=orders.DLT").text
        # Those that are left alone are other teams', too.
        assert ("2 left alone" in page, f"{NOW_MS}/orders.DLT/0/7" in page) == (viewer is not ANN, True)
    (team, topic, digest), _ = [(each.team, each.topic, each.policies) for each in asked]
    assert (team, topic, digest) == ("shop", "orders.DLT", console.registry.digest)


def advice_row(team: str, exception: str, **fields: Any) -> dict[str, Any]:
    """A row as `retry analytics advise --json` writes it, with more than is read here."""
    given = {
        "team": team, "exception": exception, "topics": ["x.DLT"], "where": "", "letters": 700, "verdict": "fewer",
        "attempts": 3, "attempts_now": 8, "delays_ms": {"2": 120_000}, "saved": 512.4, "kept_low": 0.994,
        "recoveries_now": 600.0, "recoveries_at_risk": 4.0, "missing": 0, "hazards": [{"attempt": 1}],
    }  # fmt: skip
    return {**given, **fields}


def test_what_analytics_advise_is_shown_to_the_teams_that_it_is_about(console: ActingConsole, tmp_path: Path) -> None:
    file = tmp_path / "advice.json"
    console.console.settings = msgspec.structs.replace(console.console.settings, console_advice=file)
    assert "names cannot be read: No such file" in console.ask(ANN, "GET", "/policies").text
    rows = [
        advice_row("shop", "a.Timeout"),
        advice_row("bank", "b.Invalid<i>", verdict="unknown", missing=31),
        advice_row("other", "c.C"),
    ]
    file.write_text(json.dumps({"advice": rows, "saving": {}, "rules": 1, "diff": ["+  - {exception: c.C}"]}))
    page = console.ask(ADA, "GET", "/policies").text
    told = "3 of 8 attempts, attempt 2 after 2m, saves 512 retries, keeps at least 99.4% of the recoveries"
    assert all(part in page for part in (told, "too few; 31 more", "Invalid&lt;i&gt;", "+  - {exception: c.C}"))
    own = console.ask(EVE, "GET", "/policies").text
    assert ("too few; 31 more" in own, "Timeout" in own, "c.C" in own, "c.<wbr>C" in own) == (True, False, False, False)
    file.write_text(json.dumps({"advice": rows[2:]}))
    assert "It says nothing of your teams" in console.ask(EVE, "GET", "/policies").text
    for text in ("{", '{"advice": [{"team": 7}]}', '"'):
        file.write_text(text)
        answer = console.ask(ADA, "GET", "/policies")
        assert (answer.status_code, "RETRY_CONSOLE_ADVICE names cannot be read" in answer.text) == (200, True)


def test_no_more_advice_is_shown_than_can_be_read(console: ActingConsole, tmp_path: Path) -> None:
    file = tmp_path / "advice.json"
    file.write_text(json.dumps({"advice": [advice_row("shop", f"e{n}.E") for n in range(ROWS_MAX + 7)]}))
    console.console.settings = msgspec.structs.replace(console.console.settings, console_advice=file)
    page = console.ask(ANN, "GET", "/policies").text
    assert ("7 more are left out" in page, page.count("saves 512 retries")) == (True, ROWS_MAX)
