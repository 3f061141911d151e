"""The bench runs as `make bench` calls it, on few letters, and sees when a letter is not there exactly once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench import check
from tests.bench.letters import Incorrect, key, letter

ROOT = Path(__file__).parents[2]
LETTERS = 20


class Record:
    """The parts of a record that the check looks at when it came back."""

    def __init__(self, number: int, value: bytes | None = None, headers: tuple[Any, ...] = ()) -> None:
        self._number, self._value = number, letter(number, 1_800_000_000_000) if value is None else value
        self._headers = [("x-origin", b"bench"), ("retry-attempt", b"1"), *headers]

    def key(self) -> bytes:
        return key(self._number)

    def value(self) -> bytes:
        return self._value

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers


def test_each_letter_once_is_right() -> None:
    check.retries([(0.0, [Record(n) for n in range(LETTERS)])], LETTERS)


@pytest.mark.parametrize(
    ("numbers", "odd", "found"),
    [
        (range(1, LETTERS), [], "1 lost [0]"),
        (range(LETTERS), [Record(3)], "1 more than once [3]"),
        (range(LETTERS), [Record(LETTERS)], "1 unknown [20]"),
        (range(LETTERS - 1), [Record(19, b"other")], "1 lost [19]"),
        (range(LETTERS - 1), [Record(19, letter(18, 1_800_000_000_000))], "1 changed"),
        (range(LETTERS - 1), [Record(19, headers=(("retry-at-ms", b"1"),))], "1 changed"),
    ],
    ids=["lost", "doubled", "unknown", "no letter", "value of another", "stale header"],
)
def test_whatever_is_wrong_is_said(numbers: range, odd: list[Record], found: str) -> None:
    with pytest.raises(Incorrect) as error:
        check.retries([(0.0, [*(Record(n) for n in numbers), *odd])], LETTERS)
    assert found in str(error.value)


@pytest.mark.slow
def test_every_rate_is_measured_and_every_letter_accounted_for(tmp_path: Path) -> None:
    told = tmp_path / "bench.json"
    asked = ["--letters", "5000", "--only", "copy,intake,sweep,drain", "--json", str(told)]
    run = [sys.executable, "-m", "tests.bench", *asked]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = {line["figure"]: line["value"] for line in json.loads(told.read_text())["figures"]}
    rates = ("copy limit", "intake", "intake until folded", "sweep, due to last", "drain, start to last")
    assert all(figures[name] > 0 for name in rates), figures
