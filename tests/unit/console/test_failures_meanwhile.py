"""New failures beside an action: those like its letters, of its teams, that failed first after it was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from retry.console.acting.standing_actions import count_new_failures
from retry.delay_queue.action_records import Action, Tally
from retry.operations.act.action_report import count_arrived, remove_state_terms
from retry.operations.act.overview import ActionOverview
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.syntax import Filter
from retry.operations.listing import Cursor
from tests.support.console import NOW_MS, FakeReplica, letter

ASKED_MS = NOW_MS - 60_000


def make_overview(words: str, teams: list[str]) -> ActionOverview:
    action = Action("retry", "ann", ASKED_MS, [1], 3, filter=words, teams=teams)
    return ActionOverview(bytes(8), action, None, None, Tally(), [0], 0)


def ask_failures(words: str, teams: list[str]) -> tuple[Any, ...]:
    replica = FakeReplica([letter(1), letter(2, "bank")])
    found = count_new_failures(replica, None, make_overview(words, teams), NOW_MS)  # type: ignore[arg-type]
    assert found is not None
    ((scope, letter_filter, *_),) = replica.asked
    return scope, str(letter_filter), found.count


def test_they_are_counted_in_whichever_state_and_of_the_teams_of_the_action_alone() -> None:
    assert ask_failures("exception:*Timeout state:parked", ["payments"]) == (
        frozenset({"payments"}),
        "exception:*Timeout age:..1m",
        1,
    )
    assert ask_failures("state:waiting", []) == (None, "age:..1m", 2)


@pytest.mark.parametrize("words", ["action 00aa", "key:1 --letter a/0/1", "value.$.a=1", "header.tenant:acme"])
def test_where_no_filter_of_the_replica_says_what_it_is_about_there_is_no_count(words: str) -> None:
    replica = FakeReplica([letter(1)])
    assert count_new_failures(replica, None, make_overview(words, []), NOW_MS) is None  # type: ignore[arg-type]
    assert replica.asked == []


class Waiting:
    """Three letters that wait, of two teams."""

    def find_letters(self, letter_filter: Filter, _after: Cursor) -> Iterator[SimpleNamespace]:
        assert str(letter_filter) == "exception:*Timeout age:..1m"
        return (SimpleNamespace(team=team) for team in ("payments", "bank", None))


@pytest.mark.parametrize(("teams", "count"), [(["payments"], 1), ([], 3), (["", "bank"], 2)])
def test_the_command_counts_the_same_without_a_replica(teams: list[str], count: int) -> None:
    action = make_overview("exception:*Timeout state:parked", teams).action
    assert count_arrived(Waiting(), action, NOW_MS) == count  # type: ignore[arg-type]
    assert count_arrived(Waiting(), make_overview("action 00aa", []).action, NOW_MS) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("state:parked", ""), ("-state:parked", ""), ("state:parked or team:a", ""), ("team:a or team:b", "team:a or team:b"),
        ("(team:a or team:b) -(state:parked key:1) key:2", "(team:a or team:b) key:2"), ("-team:a", "-team:a"),
    ],
)  # fmt: skip
def test_what_is_said_of_states_is_left_out(words: str, left: str) -> None:
    assert str(remove_state_terms(parse(words))) == left
