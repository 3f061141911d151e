"""A policy file is looked at again: an empty one stops nobody, and a large one keeps nobody waiting."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from retry import clock
from retry.policies.registry import Registry
from retry.process.policy_reload import PolicyFile, watch_policies
from retry.settings import Settings

TEAMS = "teams: {shop: {topics: [{dead_letters: orders.DLT, retry_to: orders}]}}\n"


def used_after(path: Path, first: str, second: str, *, allow_empty: bool = False) -> tuple[PolicyFile, list[Registry]]:
    """The policy file after a change, and what came into use by that."""
    path.write_text(first)
    file, used = PolicyFile(Settings(policies=path), allow_empty=allow_empty), list[Registry]()
    path.write_text(second)
    file.request_reload()
    file.refresh_registry(used.append)
    return file, used


@pytest.mark.parametrize("empty", ["", "# nothing\n", "teams: {}\n"])
def test_an_empty_file_does_not_take_the_place_of_one_with_teams_unless_that_is_allowed(tmp_path: Path, empty: str) -> None:
    path = tmp_path / "policies.yaml"
    file, used = used_after(path, TEAMS, empty)
    assert (used, file.refusals, file.registry.reads_topic("orders.DLT")) == ([], 1, True)
    assert "--allow-empty" in (file.trouble or "")
    file, used = used_after(path, TEAMS, empty, allow_empty=True)
    assert (len(used), file.trouble, file.registry.list_routes()) == (1, None, [])


def test_a_console_keeps_the_old_file_too_and_says_so_but_may_start_with_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(clock, "monotonic_s", lambda: now_s[0])
    path = tmp_path / "policies.yaml"
    path.write_text("")
    registry = watch_policies(Settings(policies=path))
    assert not registry().list_routes()
    for text in (TEAMS, "teams: {}\n"):
        path.write_text(text)
        now_s[0] += 2.1
        assert registry().reads_topic("orders.DLT")
    assert "the policy file is not used, the old one stays" in caplog.text
    assert "has no team and no task" in caplog.text and "if that is meant, start the console again" in caplog.text
    assert not watch_policies(Settings(policies=path))().list_routes()


def test_an_empty_file_may_follow_an_empty_one_and_be_followed_by_one_with_teams(tmp_path: Path) -> None:
    path = tmp_path / "policies.yaml"
    for first, second in (("", "teams: {}\n"), ("", TEAMS)):
        file, used = used_after(path, first, second)
        assert (used, file.trouble) == ([file.registry], None)


def test_the_interpreter_is_shared_more_often_while_a_file_is_read_and_as_before_afterwards(tmp_path: Path) -> None:
    path, before_s, during_s = tmp_path / "policies.yaml", sys.getswitchinterval(), list[float]()
    path.write_text("")
    file = PolicyFile(Settings(policies=path))
    path.write_text(TEAMS)
    file.request_reload()
    file.refresh_registry(lambda _registry: during_s.append(sys.getswitchinterval()))
    assert during_s[0] <= 0.001 < before_s
    assert sys.getswitchinterval() == before_s
