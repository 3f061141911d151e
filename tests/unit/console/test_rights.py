"""Who may see and do what: by team, by role, and what files grant."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.exceptions import HTTPException

from retry.console.web import rights
from retry.console.web.rights import LOCAL, Granted, Role, Tokens, Viewer, demand_role, make_token, viewer_of
from retry.errors import SettingsInvalid

SOME = Viewer("ada", {"payments": Role.OPERATOR, "orders": Role.VIEWER}, frozenset({"payments"}))
EVERY = Viewer("eve", {"*": Role.VIEWER, "payments": Role.ADMIN}, frozenset({"payments"}))


def test_who_has_roles_in_some_teams_sees_these_alone() -> None:
    assert SOME.scope() == frozenset({"payments", "orders"})
    assert [SOME.may(Role.VIEWER, team) for team in ("payments", "orders", "others", None)] == [True, True, False, False]
    assert [SOME.may(Role.OPERATOR, team) for team in ("payments", "orders")] == [True, False]
    assert not SOME.may(Role.ADMIN, "payments")
    assert SOME.may_anywhere(Role.OPERATOR)
    assert not SOME.may_anywhere(Role.ADMIN)


def test_who_has_a_role_in_every_team_sees_letters_of_no_known_team_too() -> None:
    assert EVERY.scope() is None
    assert EVERY.may(Role.VIEWER, None)
    assert not EVERY.may(Role.OPERATOR, None)
    assert EVERY.may(Role.ADMIN, "payments")
    assert LOCAL.may(Role.ADMIN, None)
    assert LOCAL.may_reveal(None)


def test_payloads_take_a_right_of_their_own_and_a_role_too() -> None:
    assert SOME.may_reveal("payments")
    assert not SOME.may_reveal("orders")
    assert not Viewer("x", {"orders": Role.ADMIN}, frozenset({"payments"})).may_reveal("payments")
    assert not EVERY.may_reveal(None)


def test_a_filter_on_payloads_takes_the_right_for_every_team_that_is_seen() -> None:
    assert not SOME.reveals_all()
    assert not EVERY.reveals_all()
    assert Viewer("x", {"payments": Role.VIEWER}, frozenset({"payments"})).reveals_all()
    assert Viewer("x", {"payments": Role.VIEWER}, frozenset({"*"})).reveals_all()


@pytest.mark.parametrize(("role", "team", "status"), [
    (Role.VIEWER, "others", 404), (Role.ADMIN, "others", 404), (Role.OPERATOR, "orders", 403), (Role.VIEWER, None, 404),
])  # fmt: skip
def test_what_is_of_another_team_does_not_exist_and_what_is_not_allowed_is_forbidden(role: Role, team: str, status: int) -> None:
    with pytest.raises(HTTPException) as refused:
        demand_role(SOME, role, team)
    assert refused.value.status_code == status
    demand_role(SOME, Role.OPERATOR, "payments")


def test_grants_are_read_as_they_are_written() -> None:
    granted = Granted({"payments": Role.OPERATOR, "*": Role.VIEWER}, frozenset({"payments"}))
    assert rights.read_roles(granted.format_grant().split()) == granted
    assert rights.read_roles(["a:viewer,a:admin"]) == Granted({"a": Role.ADMIN})
    more = Granted({"a": Role.OPERATOR, "b": Role.VIEWER}, frozenset("b"))
    assert rights.combine_grants([Granted({"a": Role.VIEWER}), more]) == more


@pytest.mark.parametrize("text", [
    "", "payments", "payments:owner", "pay ments:viewer", "a:viewer,", "a:viewer b", "a:viewer reveal:", "a:viewer reveal:a x",
    "reveal:a",
])  # fmt: skip
def test_what_is_no_grant_is_refused(text: str) -> None:
    assert rights.read_roles(text.split()) is None


def test_a_token_of_the_file_names_who_has_it(tmp_path: Path) -> None:
    token, line = make_token("ada", Granted({"payments": Role.OPERATOR}, frozenset({"payments"})))
    file = tmp_path / "tokens"
    file.write_text(f"# people\n\n{line}\n")
    tokens = Tokens(file)
    found = tokens.find(token)
    assert found is not None
    assert viewer_of(found) == Viewer("ada", {"payments": Role.OPERATOR}, frozenset({"payments"}))
    assert tokens.of_digest(found.digest) == found
    assert tokens.find(token + "x") is None
    assert tokens.find("\ud800") is None
    assert token not in line


@pytest.mark.parametrize("line", [
    "ada", "ada 12 a:viewer", f"ada {'a' * 64}", f"a b {'a' * 64} a:viewer", f"ada {'A' * 64} a:viewer",
])  # fmt: skip
def test_a_line_of_another_form_names_itself(tmp_path: Path, line: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# people\n{line}\n")
    with pytest.raises(SettingsInvalid, match=r"tokens:2: make the line with retry console token"):
        Tokens(file)
