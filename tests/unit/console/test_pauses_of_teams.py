"""Pauses from the console: whose deliveries a scope holds back says who may pause it, and who sees that it is paused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from retry.console.acting import pauses, standing_actions
from retry.console.reading import lists
from retry.console.reading.now import NowQuery
from retry.console.web.rights import Role, Viewer
from retry.delay_queue import control_records
from retry.delay_queue.control_records import Pause
from retry.errors import RebuildInProgress
from retry.policies.policy_file import parse as policy_file
from retry.policies.registry import Registry
from tests.support.acting_console import POLICIES, ActingConsole
from tests.support.console import NOW_MS
from tests.support.replicas import OWN, GivenReplica

REGISTRY = policy_file(POLICIES, "policies.yaml")
SHOP, BANK = Viewer("ann", {"shop": Role.OPERATOR}), Viewer("eve", {"bank": Role.OPERATOR})
BOTH, LOOKS = Viewer("bob", {"shop": Role.OPERATOR, "bank": Role.OPERATOR}), Viewer("vic", {"shop": Role.VIEWER})
ALL = Viewer("ada", {"*": Role.OPERATOR})
NAMED = (("all", ""), ("team", "shop"), ("topic", "orders.DLT"), ("target", "orders.retry"), ("target", "slow"))


@pytest.fixture
def console() -> Iterator[ActingConsole]:
    made = ActingConsole()
    yield made
    made.close()


@pytest.fixture
def questions(console: ActingConsole, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The questions that are asked of the shards, which the replica has when it is looked at for the third time."""
    told: list[tuple[Any, ...]] = []
    monkeypatch.setattr(standing_actions, "_POLL_S", 0.0)
    monkeypatch.setattr(standing_actions, "load_shard_numbers", lambda _: SimpleNamespace())
    rows, unread = dict(console.replica.control_records[0]), list[list[Any]]()

    def ask(scope: str, name: str, pause: Pause | None) -> None:
        told.append((scope, name, pause))
        unread.append([2, control_records.pause_key(scope, name), None if pause is None else control_records.encode(pause)])

    def read() -> list[dict[bytes, bytes]]:
        for each in unread:
            each[0] -= 1
        while unread and unread[0][0] < 0:
            _, key, value = unread.pop(0)
            rows.pop(key, None) if value is None else rows.update({key: value})
        return [rows]

    monkeypatch.setattr(console.replica, "controls", read)
    monkeypatch.setattr(pauses.control_requests, "pause", lambda _shards, scope, name, pause: ask(scope, name, pause))
    monkeypatch.setattr(pauses.control_requests, "resume", lambda _shards, scope, name: ask(scope, name, None))
    return told


def test_who_has_paused_or_resumed_sees_so_at_once(console: ActingConsole, questions: list[Any]) -> None:
    shown = lambda: [(each["name"], each["reason"]) for each in console.ask(SHOP, "GET", "/api/pauses").json()["pauses"]]  # noqa: E731
    for reason in ("the bank is away", "and it stays away"):
        done = console.ask(SHOP, "POST", "/api/pauses", json={"scope": "team", "name": "shop", "reason": reason})
        assert (done.status_code, shown()) == (201, [("shop", reason)]), "also where a pause of the same stood before"
    assert console.ask(SHOP, "DELETE", "/api/pauses?scope=team&name=shop").status_code == 204
    assert shown() == []
    assert len(questions) == 3


def test_where_that_takes_too_long_the_answer_says_that_it_is_done_and_not_shown(
    console: ActingConsole, questions: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_actions, "WITHIN_S", 0.01)
    monkeypatch.setattr(console.replica, "controls", lambda: [{}])
    late = console.ask(SHOP, "POST", "/api/pauses", json={"scope": "team", "name": "shop"})
    told = "it is done, and this console does not show it yet"
    assert (late.status_code, late.headers["content-type"]) == (202, "application/problem+json")
    assert late.json()["detail"].startswith(told)
    page = console.ask(SHOP, "POST", "/pauses", {"scope": "team", "name": "shop"})
    assert (page.status_code, told in page.text, len(questions)) == (202, True, 2)
    standing = {control_records.pause_key("team", "shop"): control_records.encode(Pause(NOW_MS, "why"))}
    monkeypatch.setattr(console.replica, "controls", lambda: [standing])
    assert console.ask(SHOP, "DELETE", "/api/pauses?scope=team&name=shop").status_code == 202

    def is_rebuilt() -> None:
        raise RebuildInProgress(0.5)

    monkeypatch.setattr(console.replica, "controls", is_rebuilt)
    assert console.ask(SHOP, "DELETE", "/api/pauses?scope=team&name=shop").status_code == 202


def test_while_shards_differ_every_page_shows_the_same_pause(console: ActingConsole, tmp_path: Path) -> None:
    key, replica = control_records.pause_key("team", "shop"), GivenReplica(tmp_path)
    by_shard = [control_records.encode(Pause(NOW_MS, reason, by="ann")) for reason in ("of the first", "of the second")]
    for shard, record in enumerate(by_shard):
        replica.fold(OWN.changelog, (key, record), partition=shard)
    replica.finish()
    with replica.readers.reading(0.0) as connection:
        console.replica.control_records = lists.read_controls(connection)  # type: ignore[assignment]
        assert [each.reason for each in NowQuery(connection, None, Registry(), {}, NOW_MS).load_now([]).held] == ["of the first"]
    assert [each.reason for each in pauses.list_standing_pauses(console.console).values()] == ["of the first"]
    blocked = lists.merge_controls(console.replica.control_records)
    assert "of the first" in str(control_records.find_pause(blocked, "shop", "orders.DLT", "orders.retry", NOW_MS))


@pytest.mark.parametrize(
    ("scope", "name", "teams"),
    [
        ("team", "shop", {"shop"}), ("topic", "loans.DLT", {"bank"}), ("topic", "nobodys.DLT", set()),
        ("target", "loans.retry", {"bank"}), ("target", "slow", {"shop", "bank"}), ("target", "elsewhere", set()),
        ("all", "", set()),
    ],
)  # fmt: skip
def test_whose_deliveries_a_pause_holds_back(scope: str, name: str, teams: set[str]) -> None:
    assert pauses.list_paused_teams(REGISTRY, scope, name) == teams


@pytest.mark.parametrize(
    ("viewer", "may"),
    [
        (SHOP, [403, 201, 201, 201, 404]), (BANK, [403, 404, 404, 404, 404]), (LOOKS, [403] * 5),
        (BOTH, [403, 201, 201, 201, 201]), (ALL, [201] * 5),
    ],
    ids=lambda each: each.name if isinstance(each, Viewer) else "",
)  # fmt: skip
def test_who_may_pause_what(console: ActingConsole, questions: list[Any], viewer: Viewer, may: list[int]) -> None:
    done = [console.ask(viewer, "POST", "/api/pauses", json={"scope": scope, "name": name}).status_code for scope, name in NAMED]
    assert done == may
    assert [(scope, name) for scope, name, _ in questions] == [each for each, code in zip(NAMED, may, strict=True) if code == 201]
    assert {kind for kind, *_ in console.audit.told} <= {"pause"}
    ended = [console.ask(viewer, "DELETE", f"/api/pauses?scope={scope}&name={name}").status_code for scope, name in NAMED]
    assert ended == [{201: 204}.get(code, code) for code in may]


def test_who_pauses_is_remembered_with_until_when_and_why(console: ActingConsole, questions: list[Any]) -> None:
    until = "2026-09-30T12:00:00+00:00"
    form = {"scope": "team", "name": "shop", "until": until, "reason": "the bank is away"}
    assert console.ask(SHOP, "POST", "/pauses", form).status_code == 303
    assert questions == [("team", "shop", Pause(NOW_MS, "the bank is away", 1_790_769_600_000, "ann"))]
    assert console.audit.told == [("pause", "ann", "team shop: the bank is away", [], ["shop"])]


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"scope": "team", "name": "shop", "until": "soon"}, "is no moment"),
        ({"scope": "team", "name": ""}, "a name for all but the first"),
        ({"scope": "host", "name": "a"}, "say one of all, team, topic, target"),
    ],
)
def test_what_is_no_pause_is_refused_in_words(
    console: ActingConsole, questions: list[Any], form: dict[str, str], told: str
) -> None:
    answer = console.ask(ALL, "POST", "/pauses", form)
    assert (answer.status_code, told in answer.text, questions) == (400, True, [])


def test_a_name_that_the_policy_file_does_not_know_takes_to_be_said_twice(console: ActingConsole, questions: list[Any]) -> None:
    form = {"scope": "team", "name": "shpo"}
    refused = console.ask(ALL, "POST", "/pauses", form)
    assert (refused.status_code, "knows no team shpo" in refused.text, questions) == (400, True, [])
    assert console.ask(ALL, "POST", "/pauses", {**form, "force": "yes"}).status_code == 303
    assert len(questions) == 1


def test_a_pause_is_shown_to_those_whose_deliveries_it_holds_back(console: ActingConsole) -> None:
    why = control_records.encode(Pause(NOW_MS, "why <b>"))
    rows = {control_records.pause_key(*named): why for named in NAMED}
    rows[control_records.pause_key("team", "bank")] = control_records.encode(Pause(1, "over", NOW_MS - 1))
    console.replica.control_records = [rows, rows]
    for viewer, seen in ((ALL, 5), (SHOP, 5), (BANK, 2), (LOOKS, 5)):
        told = console.ask(viewer, "GET", "/api/pauses").json()["pauses"]
        assert len(told) == seen, viewer.name
    page = console.ask(SHOP, "GET", "/pauses").text
    assert ("why &lt;b&gt;" in page, "dead-letter topic orders.DLT" in page) == (True, True)
    assert "/pauses/resume" not in console.ask(LOOKS, "GET", "/pauses").text


def test_a_pause_is_resumed_from_its_row_by_who_may(console: ActingConsole, questions: list[Any]) -> None:
    why = control_records.encode(Pause(NOW_MS, "why"))
    console.replica.controls()[0].update({control_records.pause_key(*named): why for named in NAMED})
    offered = lambda html: set(re.findall(r'name="paused" value="([^"]+)"', html))  # noqa: E731
    own, every = {"team/shop", "topic/orders.DLT", "target/orders.retry"}, {"/".join(each) for each in NAMED}
    for viewer, may in ((SHOP, own), (BANK, set()), (LOOKS, set()), (BOTH, own | {"target/slow"}), (ALL, every)):
        fresh = console.console.live._parts["pauses"](viewer.sight(), "")
        assert offered(fresh) == offered(console.ask(viewer, "GET", "/pauses").text) == may
    assert console.ask(SHOP, "POST", "/pauses/resume", {"paused": "team/shop", "reason": "mended"}).status_code == 303
    assert console.ask(SHOP, "POST", "/pauses/resume", {"paused": "all/"}).status_code == 403
    assert console.ask(SHOP, "POST", "/pauses/resume", {"reason": "mended"}).status_code == 400
    assert questions == [("team", "shop", None)]
    assert console.audit.told == [("resume", "ann", "team shop: mended", [], ["shop"])]
