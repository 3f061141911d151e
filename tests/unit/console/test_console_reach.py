"""How far somebody's look and hand reach: not to payloads by a way round, and not to what is other teams', too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from retry.console.acting import api
from retry.console.web import letters
from retry.console.web.rights import Role, Viewer
from tests.support.acting_console import ActingConsole
from tests.support.console import FakeAudit, group

ANN = Viewer("ann", {"shop": Role.OPERATOR})
REV = Viewer("rev", {"shop": Role.VIEWER}, frozenset({"shop"}))
BOTH = Viewer("bob", {"shop": Role.OPERATOR, "bank": Role.OPERATOR})
BY_HEADER = "header.card:4711*"


@pytest.fixture
def console() -> Iterator[ActingConsole]:
    made = ActingConsole()
    made.replica.kinds = [group("aa", ("shop",)), group("bb", ("shop", "bank"))]
    yield made
    made.close()


@pytest.mark.parametrize("part", ["failures", "letters"])
def test_a_part_that_is_kept_fresh_filters_by_no_payload(console: ActingConsole, part: str) -> None:
    render = console.console.live._parts[part]
    assert render(REV.sight(), f"q={BY_HEADER}") == ""
    assert render(REV.sight(), "q=team:shop") != ""


@pytest.mark.parametrize("path", ["/failures", "/api/groups"])
def test_kinds_of_failures_by_payload_are_for_who_may_reveal_once_it_is_written_down(console: ActingConsole, path: str) -> None:
    assert console.ask(ANN, "GET", f"{path}?q={BY_HEADER}").status_code == 403
    assert console.ask(REV, "GET", f"{path}?q=team:shop").status_code == 200
    audit = console.audit
    assert isinstance(audit, FakeAudit)
    assert audit.told == []
    assert console.ask(REV, "GET", f"{path}?q={BY_HEADER}").status_code == 200
    assert [(kind, by, BY_HEADER in reason) for kind, by, reason, *_ in audit.told] == [("reveal", "rev", True)]
    audit.trouble = RuntimeError("not written")
    answer = console.ask(REV, "GET", f"{path}?q={BY_HEADER}")
    assert (answer.status_code, "ConnectException" in answer.text) == (500, False)


def test_looks_into_payloads_by_the_api_leave_threads_for_pages_too(console: ActingConsole) -> None:
    held = 0
    try:
        while letters._scans.acquire(blocking=False):
            held += 1
        answer = console.ask(REV, "GET", "/api/letters?q=value.$.card=4711")
        assert (held, answer.status_code, answer.headers["retry-after"]) == (letters._SCANS_MAX, 503, "5")
    finally:
        for _ in range(held):
            letters._scans.release()
    assert console.ask(REV, "GET", "/api/letters?q=value.$.card=4711").status_code == 200
    assert api.scan is letters.scan


@pytest.mark.parametrize("what", ["note", "merge", "split", "resolve", "reopen"])
def test_a_kind_that_is_of_several_teams_is_changed_by_operators_of_all_of_them(console: ActingConsole, what: str) -> None:
    form = {"merge": {"group": "aa"}, "split": {"by": "topic"}}.get(what, {})
    notes = console.replica.notes
    refused = console.ask(ANN, "POST", f"/failures/bb/{what}", form)
    assert (refused.status_code, "bank" in refused.text, notes.calls) == (403, False, [])
    # Nor is what is only of one's own made a part of it, or it of that.
    if what == "merge":
        assert console.ask(ANN, "POST", "/failures/aa/merge", {"group": "bb"}).status_code == 403
    notes.standing["bb"] = [("c1", "0bad counts as bb", "bert", 1)]
    page = console.ask(ANN, "GET", "/failures/bb").text
    assert ("bert" in page, "bert" in console.ask(BOTH, "GET", "/failures/bb").text) == (False, True)
    assert ("/failures/bb/note" in page, 'data-act="all"' in page) == (False, True)
    assert console.ask(BOTH, "POST", f"/failures/bb/{what}", form).status_code == 303
    assert len(notes.calls) == 1


PATCH, LONG = '{"kind":"patch","filter":"team:shop","merge_patch":', "x" * 1_001
DEEP = '{"a":' * 400 + "1" + "}" * 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/actions", PATCH + DEEP + "}"),
        ("/api/actions", PATCH + '{"a":' * 100_000),
        ("/api/actions/0123456789abcdef/hold", f'{{"reason":"{LONG}"}}'),
        ("/api/pauses", f'{{"scope":"team","name":"shop","reason":"{LONG}"}}'),
        ("/api/pauses", f'{{"scope":"topic","name":"{LONG}","force":true}}'),
    ],
)
def test_what_is_sent_is_neither_too_long_for_the_changelog_nor_too_deep(console: ActingConsole, path: str, body: str) -> None:
    answer = console.ask(ANN, "POST", path, body)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
