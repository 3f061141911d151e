"""What `retry act` refuses before it asks any broker, and in which words."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from retry.__main__ import main
from retry.cli import act, options
from retry.cli.act import confirm_count, parse_options, request
from retry.delay_queue.action_records import Patch
from retry.delay_queue.ramp_records import Ramp
from retry.errors import ActionRefused
from retry.operations import cluster, control_requests
from retry.operations.act import preview, start
from retry.operations.act.choose import Chosen
from retry.operations.act.options import choose_ramp
from retry.operations.act.preview import Preview
from retry.operations.act.request import Request
from retry.operations.act.start import PREVIEW_MS_MAX
from retry.policies.registry import Registry
from tests.unit.operations.test_acting_requests import Shards, letter

OPTIONS = {
    "at": None, "spread": None, "postpone": None, "to": None, "value_file": None, "set_headers": (), "removed": (),
    "merge_patch": None, "ramp": None, "keep": None, "settle": None, "silence": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "code", "told"),
    [
        ("retry", 2, "say which letters"),
        ("send team:a", 2, "'send' is not one of"),
        ("retry team:a --yes --dry-run", 2, "give --dry-run or --yes"),
        ("retry team:a --to x", 2, "--to does not go with retry"),
        ("discard team:a --at 10m", 2, "--at does not go with discard"),
        ("park team:a --set-header a=b --merge-patch {}", 2, "--merge-patch, --set-header does not go with park"),
        ("retry team:a --at 10m --spread 1h", 2, "give one of --at, --spread and --postpone"),
        ("retry team:a --at 10m --ramp", 2, "a ramp sends letters now"),
        ("redirect team:a --to x --spread 1h --keep 0.8", 2, "a ramp sends letters now"),
        ("retry team:a --no-ramp --silence 1m", 2, "--silence is of a ramp, and there is to be none"),
        ("park team:a --ramp", 2, "--ramp does not go with park"),
        ("retry team:a --keep 1", 2, "0.0<x<1.0"),
        ("redirect team:a", 2, "redirect needs --to, a topic"),
        ("edit team:a", 2, "edit needs --value-file"),
        ("edit team:a --value-file /no/such/file", 2, "does not exist"),
        ("patch team:a --set-header =b", 2, "'=b' is not NAME=VALUE"),
        ("patch team:a", 3, "the patch changes nothing"),
        ("patch team:a --merge-patch {", 3, "the merge patch is no JSON"),
        ("patch team:a --set-header retry-attempt=1", 3, "retry-attempt is this service's own"),
        ("retry team:a --spread soon", 2, "soon"),
        ("retry team:a --expect many", 2, "many"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_words(typed: str, code: int, told: str, tmp_path: Path) -> None:
    policies = tmp_path / "policies.yaml"
    policies.write_text("teams: {a: {topics: [{dead_letters: a.DLT, retry_to: a}]}}")
    done = CliRunner().invoke(main, ["act", *typed.split()], env={"RETRY_POLICIES": str(policies)})
    assert (done.exit_code, told in re.sub(r"\s+", " ", done.output)) == (code, True), done.output


@pytest.mark.parametrize("command", ["act retry team:a", "act park --letter a/0/1", "erase --key k"])
def test_nothing_is_previewed_without_the_policies_of_the_workers(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RETRY_POLICIES", raising=False)
    done = CliRunner().invoke(main, command.split())
    assert (done.exit_code, "say which policy file the workers have" in done.output) == (3, True), done.output


def test_a_preview_before_which_somebody_sat_too_long_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        def close(self) -> None:
            pass

    class Asked(Shards):
        admin = None

        def make_reader(self) -> Nothing:
            return Nothing()

    def preview_all(_settings: Any, _registry: Any, asked: Request, _fits: Any, now_ms: int, *_: Any, **__: Any) -> Preview:
        chosen = Chosen(now_ms)
        chosen.keys = [[letter(1)[0]]]
        return Preview(asked, chosen, now_ms, [])

    shards = Asked(1, PREVIEW_MS_MAX + 1)
    monkeypatch.setattr(control_requests, "ShardNumbers", lambda _: shards)
    monkeypatch.setattr(cluster, "Cluster", lambda _: None)
    monkeypatch.setattr(start, "demand_readiness", lambda *_: None)
    monkeypatch.setattr(act, "load_workers_policies", lambda _: Registry())
    monkeypatch.setattr(preview, "preview", preview_all)
    done = CliRunner().invoke(main, ["act", "park", "team:a", "--yes", "--file", "policies.yaml"])
    assert (done.exit_code, shards.log.read("changelog")) == (3, []), done.output
    assert "the preview is older than 50 minutes, and what waits may have changed; ask again" in done.output


def test_options_are_what_is_asked_for(tmp_path: Path) -> None:
    value = tmp_path / "value"
    value.write_bytes(b"\0new")
    about = {"by": "ann", "reason": "mended", "filter": "key:1", "policies": "ab"}
    given = parse_options({**OPTIONS, "value_file": value, "set_headers": ("a=b=c",), "removed": ("d",)})
    edited = request("edit", given, **about)
    assert edited.edit == (b"\0new", {"d": None, "a": "b=c"}, None, False)
    assert (edited.action.by, edited.action.reason, edited.action.filter, edited.action.patch) == ("ann", "mended", "key:1", None)
    patched = request("patch", parse_options({**OPTIONS, "merge_patch": "{}", "set_headers": ("a=",)}), **about)
    assert (patched.action.patch, patched.edit) == (Patch({"a": ""}, "{}"), None)
    assert request("redirect", parse_options({**OPTIONS, "to": "slow", "spread": 5}), **about).due == (None, 5, 0)


def test_many_letters_that_are_due_now_go_in_steps_unless_somebody_says_otherwise() -> None:
    def choose_ramp_for(kind: str, letters: int, **given: Any) -> Ramp | None:
        return choose_ramp(kind, parse_options({**OPTIONS, **given}), letters)

    assert choose_ramp_for("retry", 1_000) is None
    assert choose_ramp_for("retry", 1_001) == Ramp(0.9, [1, 2, 5, 20, 50, 200, 723], 10_000, 120_000)
    assert choose_ramp_for("redirect", 4, ramp=True, keep=0.5, settle=1, silence=2) == Ramp(0.5, [1, 2, 1], 1, 2)
    assert choose_ramp_for("retry", 3, keep=0.5) == Ramp(0.5, [1, 2], 10_000, 120_000)
    for others in ({"ramp": False}, {"at": 5}, {"spread": 5}, {"postpone": 5}):
        assert choose_ramp_for("retry", 1_000_000, **others) is None
    assert choose_ramp_for("discard", 1_000_000) is None


def test_the_number_of_many_letters_is_typed_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("1000\n"))
    with pytest.raises(ActionRefused, match="that is another number"):
        confirm_count(1_001)
    monkeypatch.setattr("sys.stdin", Terminal("all\n"))
    with pytest.raises(click.Abort):
        confirm_count(1_001)
    monkeypatch.setattr("sys.stdin", Terminal("1001\n"))
    confirm_count(1_001)
    monkeypatch.setattr("sys.stdin", StringIO("1001\n"))
    with pytest.raises(ActionRefused, match="these are 1,001 letters: give --expect 1001"):
        confirm_count(1_001)


def test_whoever_has_no_name_is_known_by_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr(options.socket, "gethostname", lambda: "host")
    monkeypatch.setattr(options.getpass, "getuser", lambda: "ann")
    assert options.identify_user() == "ann@host"
    monkeypatch.setattr(options.getpass, "getuser", nobody)
    monkeypatch.setattr(options.os, "getuid", lambda: 4711)
    assert options.identify_user() == "4711@host"
