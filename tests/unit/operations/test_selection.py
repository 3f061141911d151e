"""Which letters a filter and names mean together, in which states, and of which teams."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from retry.operations.act.selection import select_letters
from retry.operations.explain.search import parse_location

WAITS, RESTS = "1790000000000/orders.DLT/0/1", "orders.parked/0/9"


def letter(state: str = "waiting", team: str | None = "shop", name: str = WAITS, source: str | None = "orders.DLT/0/1") -> Any:
    return SimpleNamespace(state=state, team=team, name=name, source=source and parse_location(source))


@pytest.mark.parametrize(
    ("words", "states"),
    [
        ("", {"waiting"}), ("team:shop", {"waiting"}), ("state:parked", {"parked"}), ("-state:parked", {"waiting"}),
        ("state:waiting or state:parked", {"waiting", "parked"}), ("state:discarded", {"discarded"}),
        ("team:shop (state:parked or state:discarded)", {"parked", "discarded"}),
    ],
)  # fmt: skip
def test_who_names_no_state_means_what_waits(words: str, states: set[str]) -> None:
    selection = select_letters(words, [], 0)
    assert selection.states == states
    assert {state for state in ("waiting", "parked", "discarded") if selection.selects(letter(state))} == states
    assert selection.rests == bool(states & {"parked", "discarded"})


def test_a_letter_that_is_named_is_meant_wherever_it_rests() -> None:
    selection = select_letters("", [WAITS, RESTS], 0)
    assert selection.states == {"waiting", "parked", "discarded"}
    assert selection.selects(letter())
    assert selection.selects(letter("parked", name=RESTS))
    assert selection.selects(letter("discarded", name=RESTS))
    assert not selection.selects(letter(name="1/orders.DLT/0/2", source="orders.DLT/0/2"))
    assert select_letters("state:parked", [WAITS, RESTS], 0).states == {"parked"}
    assert selection.words == f"--letter {WAITS} --letter {RESTS}"
    assert select_letters("", [f"a/0/{n}" for n in range(30)], 0).words.endswith("--letter a/0/19 and 10 more")


def test_a_letter_is_named_by_where_it_failed_as_explain_names_it() -> None:
    selection = select_letters("", ["orders.DLT/0/1"], 0)
    assert selection.selects(letter())
    assert selection.selects(letter("parked", name=RESTS))
    assert not selection.selects(letter(name="2/orders.DLT/0/2", source="orders.DLT/0/2"))
    assert not selection.selects(letter("parked", name=RESTS, source=None))
    assert select_letters("", [WAITS], 0).states == {"waiting"}


def test_former_versions_of_a_letter_are_named_by_where_it_failed_only_if_the_filter_says_discarded() -> None:
    assert not select_letters("", ["orders.DLT/0/1"], 0).selects(letter("discarded", name=RESTS))
    assert select_letters("state:discarded", ["orders.DLT/0/1"], 0).selects(letter("discarded", name=RESTS))


def test_of_some_teams_no_other_letter_is_meant_and_none_of_no_known_team() -> None:
    selection = select_letters("state:waiting", [], 0)
    theirs = selection.of_teams(frozenset({"shop"}))
    assert [theirs.selects(letter(team=team)) for team in ("shop", "bank", None)] == [True, False, False]
    assert selection.of_teams(None) is selection
    assert not selection.of_teams(frozenset()).selects(letter())


@pytest.mark.parametrize("name", ["", "a/b", "a/0/x", "x/orders.DLT/0/1", "1/2/3/4/5"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name or "^$"):
        select_letters("", [name], 0)
