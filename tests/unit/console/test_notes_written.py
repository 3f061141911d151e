"""Notes beside kinds of failures are written by operators of every team whose letters they are, and never hold code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest

from retry.console.folding.regrouping import build_part_id
from retry.console.reading.notes import CHARS_MAX
from retry.console.web.rights import Role, Viewer
from tests.support.acting_console import ActingConsole
from tests.support.console import group

ANN, EVE = Viewer("ann", {"shop": Role.OPERATOR}), Viewer("eve", {"bank": Role.ADMIN})
VIC = Viewer("vic", {"shop": Role.VIEWER, "x": Role.OPERATOR})
BOTH = Viewer("bob", {"shop": Role.OPERATOR, "bank": Role.VIEWER})
ADA = Viewer("ada", {"*": Role.OPERATOR})


@pytest.fixture
def console() -> Iterator[ActingConsole]:
    made = ActingConsole()
    made.replica.kinds = [group("aa", ("shop",)), group("bb", ("shop", "bank")), group("cc", ("bank",))]
    made.replica.notes.standing["aa"] = [("c1", "merged bb", "ann", 1)]
    yield made
    made.close()


FORMS: dict[str, dict[str, Any]] = {
    "note": {"owner": "ann", "note": "call them", "link": "https://t.example.com/1"}, "merge": {"group": "bb"},
    "split": {"by": "frames"}, "undo": {"change": "c1"}, "resolve": {}, "reopen": {},
}  # fmt: skip


@pytest.mark.parametrize("what", FORMS)
def test_who_may_write(console: ActingConsole, what: str) -> None:
    for viewer, status in ((EVE, 404), (VIC, 403)):
        assert console.ask(viewer, "POST", f"/failures/aa/{what}", FORMS[what]).status_code == status
    assert console.ask(BOTH, "POST", "/failures/bb/resolve").status_code == 403
    assert console.replica.notes.calls == []
    assert console.ask(ADA, "POST", f"/failures/aa/{what}", FORMS[what]).status_code == 303
    assert [call[0] for call in console.replica.notes.calls] == [{"note": "set_note"}.get(what, what)]


def test_what_was_written_is_what_was_typed(console: ActingConsole) -> None:
    done = console.ask(ANN, "POST", "/failures/aa/note", FORMS["note"])
    assert done.headers["location"] == "/failures/aa"
    console.ask(ADA, "POST", "/failures/aa/merge", {"group": ["bb", "cc", "bb", "aa"]})
    console.ask(ANN, "POST", "/failures/aa/split", {"by": "topic"})
    assert console.replica.notes.calls == [
        ("set_note", "aa", "ann", "call them", "https://t.example.com/1", "ann", ("shop",)), ("merge", ["bb", "cc"], "aa", "ada"),
        ("split", "aa", "topic", "ann"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "form", "status"),
    [
        ("note", {"link": "javascript:alert(1)"}, 400), ("note", {"link": "https://a b"}, 400),
        ("note", {"owner": "x" * 201}, 400), ("note", {"note": "x" * 4_001}, 400), ("merge", {}, 400),
        ("merge", {"group": "aa"}, 400), ("merge", {"group": "zz"}, 404), ("merge", {"group": "cc"}, 404),
        ("split", {"by": "value"}, 400), ("undo", {"change": "c9"}, 404),
    ],
)  # fmt: skip
def test_what_is_refused(console: ActingConsole, what: str, form: dict[str, str], status: int) -> None:
    assert console.ask(ANN, "POST", f"/failures/aa/{what}", form).status_code == status
    assert console.replica.notes.calls == []


def test_a_form_takes_as_much_as_its_fields_say_and_every_group_may_be_merged(console: ActingConsole) -> None:
    page = console.ask(ANN, "GET", "/failures/aa").text
    said = {name: int(most) for name, most in re.findall(r'<(?:input|textarea)[^>]* name="(\w+)"[^>]* maxlength="(\d+)"', page)}
    most = {field: CHARS_MAX[field] for field in ("owner", "link", "note")}
    assert {**said, **most} == said
    # A browser counts the end of a line once, and sends two characters.
    lines, link = "a\r\n" * (most["note"] // 2), "https://t.example/".ljust(most["link"], "1")
    typed = {"owner": "o" * most["owner"], "link": link, "note": lines}
    assert console.ask(ANN, "POST", "/failures/aa/note", typed).status_code == 303
    assert console.replica.notes.calls[-1][2:5] == (typed["owner"], typed["note"].replace("\r\n", "\n").strip(), typed["link"])
    for field in most:
        assert console.ask(ANN, "POST", "/failures/aa/note", {**typed, field: typed[field] + "11"}).status_code == 400
    pattern = re.compile(unescape(re.findall(r'id="merge-group"[^>]* pattern="([^"]+)"', page)[0]))
    part = build_part_id("0123456789abcdef", "topic", "orders.DLT")
    assert all(pattern.fullmatch(each) for each in ("0123456789abcdef", part, build_part_id(part, "frames", None)))
    assert not any(pattern.fullmatch(each) for each in ("", "group:0123", "0123~", "x", "https://retry/failures/0123"))


def test_filters_are_kept_for_a_team_by_its_operators_and_for_everybody_by_those_of_all(console: ActingConsole) -> None:
    form = {"name": "late ones", "text": "age:>2h", "team": "shop"}
    assert console.ask(EVE, "POST", "/filters", form).status_code == 404
    assert console.ask(Viewer("vic", {"shop": Role.VIEWER}), "POST", "/filters", form).status_code == 403
    assert console.ask(ANN, "POST", "/filters", {**form, "team": ""}).status_code == 404
    assert console.ask(ANN, "POST", "/filters", {**form, "name": ""}).status_code == 400
    done = console.ask(ANN, "POST", "/filters", form)
    assert (done.status_code, done.headers["location"]) == (303, "/letters?q=age%3A%3E2h")
    assert console.ask(ADA, "POST", "/filters", {**form, "team": ""}).status_code == 303
    assert console.ask(ANN, "POST", "/filters/delete", {"name": "late ones", "team": "shop"}).status_code == 303
    assert console.replica.notes.calls == [
        ("save_filter", "late ones", "age:>2h", "shop", "ann"), ("save_filter", "late ones", "age:>2h", "", "ada"),
        ("delete_filter", "late ones", "shop", "ann"),
    ]  # fmt: skip
