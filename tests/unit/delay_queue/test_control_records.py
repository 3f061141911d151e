"""What an operator asked of every shard: what it stops, what it says, and what it cannot be mistaken for."""

from __future__ import annotations

import pytest

from retry.delay_queue import control_records
from retry.delay_queue.control_records import Pause, Reschedule
from retry.delay_queue.table.interface import CONTROL
from retry.errors import EntryUnreadable

NOW_MS = 1_700_000_000_000
LETTER = ("orders", "orders.DLT", "orders.retry")


def standing_pause(*scopes: tuple[str, str], reason: str = "") -> dict[bytes, bytes]:
    return {control_records.pause_key(*scope): control_records.encode(Pause(NOW_MS, reason)) for scope in scopes}


def test_where_nothing_is_asked_everything_goes() -> None:
    assert control_records.find_pause({}, *LETTER, NOW_MS) is None


@pytest.mark.parametrize(
    ("scope", "name", "said"),
    [
        ("all", "", "paused by all"),
        ("team", "orders", "paused by team orders"),
        ("topic", "orders.DLT", "paused by topic orders.DLT"),
        ("target", "orders.retry", "paused by target orders.retry"),
    ],
)
def test_a_pause_of_each_scope_says_which_it_is(scope: str, name: str, said: str) -> None:
    assert control_records.find_pause(standing_pause((scope, name)), *LETTER, NOW_MS) == said
    assert (
        control_records.find_pause(standing_pause((scope, name), reason="bad deploy"), *LETTER, NOW_MS) == f"{said}: bad deploy"
    )


@pytest.mark.parametrize(
    "scope",
    [("team", "order"), ("team", "orders.DLT"), ("topic", "orders"), ("target", "orders.DLT"), ("topic", ""), ("all", "orders")],
)
def test_a_pause_of_something_else_stops_nothing(scope: tuple[str, str]) -> None:
    assert control_records.find_pause(standing_pause(scope), *LETTER, NOW_MS) is None


def test_the_widest_of_several_pauses_is_told() -> None:
    both = standing_pause(("target", "orders.retry"), ("all", ""))
    assert control_records.find_pause(both, *LETTER, NOW_MS) == "paused by all"


def test_a_pause_ends_by_itself_at_its_time_and_not_before() -> None:
    pause = Pause(NOW_MS - 9, "r", until_ms=NOW_MS, by="ann@desk")
    records = {control_records.pause_key("all", ""): control_records.encode(pause)}
    said = "paused by all until 2023-11-14T22:13:20.000+00:00: r (ann@desk)"
    assert control_records.find_pause(records, *LETTER, NOW_MS - 1) == said
    assert control_records.read_pauses(records, NOW_MS - 1) == {("all", ""): pause}
    assert control_records.find_pause(records, *LETTER, NOW_MS) is None
    assert control_records.read_pauses(records, NOW_MS) == {}


def test_behind_a_pause_that_has_ended_a_narrower_one_still_stands() -> None:
    records = standing_pause(("target", "orders.retry"))
    records[control_records.pause_key("all", "")] = control_records.encode(Pause(1, until_ms=NOW_MS))
    assert control_records.find_pause(records, *LETTER, NOW_MS) == "paused by target orders.retry"


def test_what_a_pause_does_not_say_is_not_written() -> None:
    assert control_records.encode(Pause(1, "r")) == b'{"since_ms":1,"reason":"r"}'


def test_pauses_are_told_by_scope_and_name() -> None:
    asked = {("all", ""), ("team", "a/b"), ("topic", "ü.DLT")}
    request = {control_records.reschedule_key(5): control_records.encode(Reschedule(5))}
    assert control_records.read_pauses(standing_pause(*asked, reason="r") | request, NOW_MS) == dict.fromkeys(
        asked, Pause(NOW_MS, "r")
    )


def test_requests_to_reschedule_are_told_and_stop_nothing() -> None:
    asked = [Reschedule(NOW_MS + n, team, topic) for n, (team, topic) in enumerate([("a", None), (None, "b"), (None, None)])]
    records = {control_records.reschedule_key(each.since_ms): control_records.encode(each) for each in reversed(asked)}
    assert list(control_records.read_reschedules(records | standing_pause(("all", ""))).values()) == asked
    assert control_records.find_pause(records, *LETTER, NOW_MS) is None


def test_keys_are_those_of_controls() -> None:
    assert control_records.pause_key("team", "a") == CONTROL + b"pause/team/a"
    assert control_records.reschedule_key(7) == CONTROL + b"reschedule/7"
    assert {control_records.pause_key(scope, "")[:1] for scope in control_records.SCOPES} == {CONTROL}


@pytest.mark.parametrize("value", [b"", b"{}", b"null", b"[1]", b'{"since_ms":"then"}', b"\xff"])
def test_a_pause_that_cannot_be_read_is_never_taken_for_none(value: bytes) -> None:
    records = {control_records.pause_key("all", ""): value}
    with pytest.raises(EntryUnreadable):
        control_records.find_pause(records, *LETTER, NOW_MS)
    with pytest.raises(EntryUnreadable):
        control_records.read_pauses(records, NOW_MS)


def test_fields_that_a_later_version_adds_are_no_trouble() -> None:
    record = {control_records.pause_key("all", ""): b'{"since_ms":1,"reason":"r","later":9}'}
    assert control_records.read_pauses(record, NOW_MS) == {("all", ""): Pause(1, "r")}
