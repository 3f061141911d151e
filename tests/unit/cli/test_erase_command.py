"""`retry erase`: which key it takes, what it asks before it does anything, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from retry.__main__ import main
from retry.cli import erase as module
from retry.operations import control_requests
from retry.operations.act import erase as operations
from retry.operations.act import erase as told
from retry.operations.act import start
from retry.operations.act.choose import Chosen
from retry.operations.act.erase import Remnant
from retry.policies.registry import Registry


class Around:
    """Brokers that have so many letters with the key at each look, one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *counts: int, code: int = 0, compacted: Sequence[Any] = ()) -> None:
        self.keys: list[bytes] = []
        self.counts, self.started, self.nulls = list(counts), 0, list[Any]()
        self.code = code
        remains = [Remnant("app-parked/0", "2 records", 1_000, 2_000), Remnant("app-lineage", "hashes", None, None)]
        monkeypatch.setattr(control_requests, "ShardNumbers", lambda _: SimpleNamespace(admin=None))
        monkeypatch.setattr(start, "demand_readiness", lambda *_: None)
        monkeypatch.setattr(told, "find_remnants", lambda *_: remains)
        monkeypatch.setattr(module, "load_workers_policies", lambda _: Registry())
        monkeypatch.setattr(module, "_preview", self._preview)
        monkeypatch.setattr(module, "start_action", self._start)
        monkeypatch.setattr(operations, "list_compacted", lambda *_: list(compacted))
        monkeypatch.setattr(operations, "write_nulls", lambda _shards, _erasing, places: self.nulls.append(places))

    def _preview(self, _shards: Any, erasing: Any, *_: Any, asked: bool) -> Any:
        self.keys.append(erasing.key)
        chosen = Chosen()
        chosen.keys = [[b"k"] * self.counts.pop(0)]
        chosen.refused["named"], chosen.refused["returned"] = 1, 4
        return SimpleNamespace(chosen=chosen, at_ms=0)

    def _start(self, *_: Any, as_json: bool) -> int:
        self.started += 1
        return self.code

    def run(self, *options: str, given: str = "") -> Result:
        return CliRunner().invoke(main, ["erase", *options, "--file", "policies.yaml"], input=given)


def test_without_yes_it_only_says_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    around = Around(monkeypatch, 3, 0)
    done = around.run("--key", "k")
    assert (done.exit_code, around.started, around.counts) == (0, 0, [0])
    assert "3 letters to erase: 3 wait, 0 rest" in done.output
    assert "1 schedules, tasks or timers have this key" in done.output
    assert "4 more rest and are never returned" in done.output
    assert "app-parked/0: 2 records, newest of 1970-01-01T00:00:01.000+00:00: until 1970-01-01T00:00:02.000+00:00" in done.output
    assert "  app-lineage: hashes\n" in done.output


def test_json_has_each_place(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = json.loads(Around(monkeypatch, 3).run("--key", "k", "--json").output)
    assert (shown["letters"], shown["wait"], shown["rest"], shown["erased"], shown["named"]) == (3, 3, 0, 4, 1)
    assert [each["until"] for each in shown["remains"]] == ["1970-01-01T00:00:02.000+00:00", None]


def test_the_key_is_a_text_or_the_bytes_of_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    around, file = Around(monkeypatch, 0, 0, 0), tmp_path / "key"
    file.write_bytes(b"\0\xff\n")
    around.run("--key", "ü")
    around.run("--key-file", str(file))
    around.run("--key-file", "-", given="typed\n")
    assert around.keys == ["ü".encode(), b"\0\xff\n", b"typed\n"]


@pytest.mark.parametrize("options", [[], ["--key", "k", "--key-file", "-"], ["--key", "k", "--yes", "--dry-run"]])
def test_options_that_do_not_go_together_are_refused(monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    around = Around(monkeypatch)
    assert (around.run(*options).exit_code, around.keys) == (2, [])


def test_nothing_found_is_nothing_done(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Around(monkeypatch, 0).run("--key", "k").exit_code == 3
    around = Around(monkeypatch, 0, 0)
    assert (around.run("--key", "k", "--yes").exit_code, around.started) == (3, 0)


@pytest.mark.parametrize(("count", "options", "told"), [
    (3, ["--expect", "2"], "3 letters have this key, not 2"), (1_001, [], "give --expect 1001"),
])  # fmt: skip
def test_another_number_than_was_meant_is_refused(
    monkeypatch: pytest.MonkeyPatch, count: int, options: list[str], told: str
) -> None:
    around = Around(monkeypatch, count)
    done = around.run("--key", "k", "--yes", *options)
    assert (done.exit_code, around.started, told in done.output) == (3, 0, True)


@pytest.mark.parametrize(("after", "code"), [(0, 0), (2, 1)])
def test_at_its_end_it_looks_once_more(monkeypatch: pytest.MonkeyPatch, after: int, code: int) -> None:
    around = Around(monkeypatch, 3, after)
    done = around.run("--key", "k", "--yes", "--expect", "3")
    assert (done.exit_code, around.started, around.counts) == (code, 1, [])
    assert ("2 letters have this key by now" in done.output) is bool(after)


def test_what_is_held_or_not_done_yet_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    around = Around(monkeypatch, 3, code=4, compacted=[("parked", 0)])
    assert (around.run("--key", "k", "--yes").exit_code, around.counts, around.nulls) == (4, [], [])


def test_compacted_topics_get_nulls_also_where_no_letter_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    around = Around(monkeypatch, 0, 0, compacted=[("parked", 0)])
    assert (around.run("--key", "k", "--yes").exit_code, around.nulls) == (0, [[("parked", 0)]])
