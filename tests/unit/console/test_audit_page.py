"""The page of the audit and its API ask for what was typed, and go on with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest

from retry.console.rows import AuditRow, Page
from retry.console.web.rights import Role, Viewer
from tests.support.acting_console import ActingConsole
from tests.support.console import NOW_MS

ANN = Viewer("ann", {"shop": Role.VIEWER})
ASKED = {"by": "ada", "kind": "retry", "team": "shop", "letter": "orders.DLT/0/1", "action": "00000000000000aa"}


@pytest.fixture
def console() -> Iterator[ActingConsole]:
    made = ActingConsole()
    yield made
    made.close()


@pytest.mark.parametrize(("path", "rows"), [("/audit", 50), ("/api/audit", 100)])
def test_each_field_is_asked_for_within_the_teams_of_who_asks(console: ActingConsole, path: str, rows: int) -> None:
    query = "&".join(f"{name}={value}" for name, value in ASKED.items())
    for given, wanted in ((query, ASKED), ("by=+ada+&kind=&team=", {"by": "ada"}), ("", {})):
        assert console.ask(ANN, "GET", f"{path}?{given}").status_code == 200
        assert console.replica.asked[-1] == (frozenset({"shop"}), wanted, None, rows)


def test_what_was_typed_stays_and_older_ones_are_of_the_same(console: ActingConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    row = AuditRow(NOW_MS, "", "retry", "ada", "", 0, 1, 1, {}, (), "shop")
    monkeypatch.setattr(console.replica, "list_audit_rows", lambda *_: Page([row], "on", 1))
    page = console.ask(ANN, "GET", "/audit?by=ada&kind=&letter=orders.DLT/0/1").text
    older = unescape(re.findall(r'rel="next" href="([^"]+)"', page)[0])
    assert parse_qs(urlsplit(older).query) == {"by": ["ada"], "letter": ["orders.DLT/0/1"], "after": ["on"]}
    assert all(f'value="{value}"' in page for value in ("ada", "orders.DLT/0/1"))
    # Other teams are not offered.
    assert ('<option value="shop">' in page, "bank" in page) == (True, False)


def test_where_nothing_is_like_that_it_is_said(console: ActingConsole) -> None:
    assert "Nothing like this was done" in console.ask(ANN, "GET", "/audit?by=eve").text
    assert "Nothing was done yet" in console.ask(ANN, "GET", "/audit?by=").text
