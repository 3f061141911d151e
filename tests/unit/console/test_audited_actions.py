"""The audit with a row for each action, as the replica has it and as the page says it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from retry.console.reading.lists import AuditedAction, load_audited_actions
from retry.console.rows import AuditRow, Page, Scope
from retry.console.web.rights import Role, Viewer
from retry.operations.act.audit import PERSON_KEY, AuditLetter, AuditRecord, encode_person_act
from tests.support.acting_console import ActingConsole
from tests.support.plans import registry_of
from tests.support.replicas import NOW_MS, OWN, GivenReplica

POLICIES = """
teams:
  payments: {topics: [{dead_letters: orders.DLT, retry_to: orders.retry}]}
  refunds: {topics: [{dead_letters: refunds.DLT, retry_to: refunds.retry}]}
"""
RETRIED, DISCARDED = "0a" * 8, "0b" * 8


def done(
    action: str, at_ms: int, topic: str, *results: str, kind: str = "retry", by: str = "ann", shard: int = 0
) -> tuple[bytes, bytes]:
    """Make the audit record of one transaction of a worker."""
    letters = [AuditLetter(result, f"{topic}/0/{at_ms + n}") for n, result in enumerate(results)]
    record = AuditRecord(action, kind, by, NOW_MS + at_ms, shard, letters, "bank is back", [topic.removesuffix(".DLT")])
    return action.encode(), msgspec.json.encode({"v": 1, **msgspec.to_builtins(record)})


@pytest.fixture
def replica(tmp_path: Path) -> GivenReplica:
    """Two actions whose transactions lie among each other, an order, and what somebody was shown."""
    made = GivenReplica(tmp_path, registry_of(POLICIES))
    made.finish()
    order = encode_person_act("hold", "eve", "bank is slow", NOW_MS + 35, [], ["payments"], RETRIED)
    shown = encode_person_act("reveal", "joe", "", NOW_MS + 60, ["1/orders.DLT/0/7"], ["payments"])
    made.fold(
        OWN.audit, done(RETRIED, 10, "orders.DLT", "done", "done", "gone"),
        done(DISCARDED, 20, "refunds.DLT", "done", kind="discard"),
        done(RETRIED, 30, "orders.DLT", "done", "gone", shard=1), (RETRIED.encode(), order),
        done(RETRIED, 40, "refunds.DLT", "moved"), (PERSON_KEY, shown),
    )  # fmt: skip
    return made


def load_page(
    replica: GivenReplica, scope: Scope = None, after: str | None = None, limit: int = 10, **wanted: str
) -> Page[AuditedAction]:
    with replica.readers.reading(0.0) as connection:
        return load_audited_actions(connection, replica.file.id, scope, after, limit, wanted)


def test_an_action_is_one_row_with_all_that_was_written_of_it(replica: GivenReplica) -> None:
    page = load_page(replica)
    assert [(each.what.by, each.what.kind, each.what.letters, each.what.done) for each in page.rows] == [
        ("joe", "reveal", 1, 1), ("ann", "retry", 6, 3), ("ann", "discard", 1, 1),
    ]  # fmt: skip
    retried = page.rows[1]
    assert (retried.what.results, retried.what.reason) == ({"gone": 2, "moved": 1}, "bank is back")
    assert (retried.since_ms, retried.what.at_ms, retried.teams) == (NOW_MS + 10, NOW_MS + 40, ("payments", "refunds"))
    parts = [(part.by, part.kind, part.letters) for part in retried.parts]
    assert parts == [("ann", "retry", 3), ("ann", "retry", 2), ("eve", "hold", 0), ("ann", "retry", 1)]
    assert (page.count, page.after, retried.more) == (3, None, 0)


def test_pages_go_on_where_the_last_one_ended_and_no_action_comes_twice(replica: GivenReplica) -> None:
    first = load_page(replica, limit=1)
    second = load_page(replica, after=first.after, limit=1)
    third = load_page(replica, after=second.after, limit=1)
    assert [page.rows[0].what.kind for page in (first, second, third)] == ["reveal", "retry", "discard"]
    assert third.after is None


def test_a_viewer_sees_what_concerns_their_letters_alone_and_conditions_hold_of_parts(replica: GivenReplica) -> None:
    theirs = load_page(replica, frozenset({"refunds"}))
    assert [(each.what.kind, each.what.letters, each.what.results) for each in theirs.rows] == [
        ("retry", 1, {"moved": 1}), ("discard", 1, {}),
    ]  # fmt: skip
    by_eve = load_page(replica, by="eve").rows
    assert [(each.what.kind, each.what.by, len(each.parts)) for each in by_eve] == [("hold", "eve", 1)]
    assert [each.what.kind for each in load_page(replica, letter="orders.DLT/0/30").rows] == ["retry"]
    assert load_page(replica, frozenset()).rows == []


def test_of_many_transactions_fifty_are_shown_and_all_are_counted(replica: GivenReplica) -> None:
    replica.fold(OWN.audit, *(done(DISCARDED, 100 + n, "refunds.DLT", "done", "gone", kind="discard") for n in range(80)))
    (found,) = load_page(replica, action=DISCARDED).rows
    assert (len(found.parts), found.more, found.what.letters, found.what.results) == (50, 31, 161, {"gone": 80})


def test_the_page_says_what_an_operator_did_and_unfolds_to_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    console = ActingConsole()
    work = AuditRow(NOW_MS, RETRIED, "retry", "ann<b>", "bank is back", 0, 4, 4, {}, ("orders.DLT/0/1",) * 4, "shop")
    hold = AuditRow(NOW_MS + 1, RETRIED, "hold", "eve", "slow", -1, 0, 0, {}, (), "shop")
    rows = [AuditedAction(work, NOW_MS, ("shop",), (work, hold), 2)]
    monkeypatch.setattr(console.replica, "list_audited_actions", lambda *_: Page(rows, None, 1))
    page = console.ask(Viewer("vic", {"shop": Role.VIEWER}), "GET", "/audit").text
    console.close()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    assert "ann&lt;b&gt; retried 4 letters of shop 4 steps" in text
    assert "eve held it: slow" in text
    assert "4 letters in shard 0: 4 done" in text
    assert "+1 more" in text and "+2 more" in text
    assert f'<a href="/actions/{RETRIED}">retried 4 letters</a>' in page
    assert "<details>" in page
