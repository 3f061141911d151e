"""A preview says whose order an action is about: record keys with most letters, and of very many keys only how many letters."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from retry.cli import act_output
from retry.delay_queue import entry_keys
from retry.delay_queue.action_records import Action
from retry.operations.act import choose
from retry.operations.act.action_report import order_objects, order_told, preview_object
from retry.operations.act.choose import Chosen
from retry.operations.act.preview import Preview
from retry.operations.act.request import renew_action

NOW_MS = 1_790_000_000_000


def chosen_of(keys: list[bytes | None], topic: str = "orders.DLT", *, ordered: bool = True) -> Chosen:
    chosen = Chosen(NOW_MS)
    chosen.keys = [[]]
    lane = entry_keys.lane("shop", topic, "orders.retry", ordered)
    for key in keys:
        failure = SimpleNamespace(exception=None)
        letter: Any = SimpleNamespace(
            team="shop", topic=topic, target="orders.retry", failure=failure, reason=None, first_failed_ms=None, key=key
        )
        chosen.count_in(letter, lane, letter.target)
        chosen.keys[0].append(lane)
    return chosen


def test_keys_with_most_letters_come_first_and_others_are_told_together() -> None:
    chosen = chosen_of([b"%d" % n for n in range(20) for _ in range(n + 1)] + [None] * 3)
    *named, rest = order_objects(chosen)
    assert [(each["key"], each["letters"]) for each in named] == [(str(n), n + 1) for n in reversed(range(10, 20))]
    assert rest == {"topic": "orders.DLT", "key": None, "letters": sum(range(1, 11)) + 3}
    assert chosen.ordered == sum(each["letters"] for each in order_objects(chosen))


def test_no_more_keys_are_counted_than_are_held_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "ORDERS_MAX", 3)
    chosen = chosen_of([b"%d" % (n % 9) for n in range(90)])
    assert {key: n for (_, key), n in chosen.orders.items()} == {None: 60, b"0": 10, b"1": 10, b"2": 10}
    assert chosen.ordered == 90


def test_the_command_prints_whose_order_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    def run_and_read(chosen: Chosen) -> str:
        found = Preview(renew_action(Action("discard", "ann", 0, [], 0)), chosen, NOW_MS, [])
        assert preview_object(found)["ordered"] == chosen.ordered
        act_output.print_preview(found, as_json=False)
        return capsys.readouterr().out

    told = run_and_read(chosen_of([b"a\x1b[2J", b"a\x1b[2J", b"\xff"]))
    assert f"3 keep an order: {order_told('discard')}" in told
    assert "\x1b" not in told
    assert "key a\\x1b[2J of orders.DLT: 2" in told
    assert "keep an order" not in run_and_read(chosen_of([b"a"], ordered=False))


def test_values_beyond_those_that_are_shown_are_told_together() -> None:
    chosen = Chosen(NOW_MS)
    chosen.groups["topic"] = Counter({f"topic-{n:02}": n + 1 for n in range(32)})
    chosen.groups["team"] = Counter({"shop": 528})
    shown = preview_object(Preview(renew_action(Action("discard", "ann", 0, [], 0)), chosen, NOW_MS, []))
    assert list(shown["groups"]["topic"]) == [f"topic-{n}" for n in reversed(range(22, 32))]
    assert shown["more_groups"] == {"topic": {"values": 22, "letters": sum(range(1, 23))}}
