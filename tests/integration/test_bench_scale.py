"""`make bench-scale` on few entries: every part has its figures, and an entry that overtakes another is seen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import waiting
from tests.bench.figures import Figure
from tests.bench.herd import count_in_order
from tests.bench.letters import Incorrect, key, letter
from tests.bench.scale import table

ROOT = Path(__file__).parents[2]
SHARDS = 4


class Record:
    """The parts of an entry that are looked at when it came back."""

    def __init__(self, number: int, due_ms: int) -> None:
        self._number, self._due_ms = number, due_ms

    def key(self) -> bytes:
        return key(self._number)

    def value(self) -> bytes:
        return letter(self._number, self._due_ms, waiting.HERD)

    def partition(self) -> int:
        return 0


def test_due_times_are_scattered_and_each_is_there_once() -> None:
    due_ms = waiting.scattered(10_000, 5_000, 1_000_000)
    assert sorted(map(due_ms, range(10_000))) == [5_000 + n * 100 for n in range(10_000)]


def test_order_counts_within_a_shard_only() -> None:
    together = [n for n in range(40) if waiting.shard(key(n), SHARDS) == 0]
    elsewhere = next(n for n in range(40) if waiting.shard(key(n), SHARDS) == 1)
    in_order = [Record(n, 7) for n in together]
    assert count_in_order([(0.0, [*in_order, Record(elsewhere, 1)])], SHARDS) == len(in_order) + 1
    for overtaken in ([Record(together[0], 7), Record(together[1], 6)], [Record(together[1], 7), Record(together[0], 7)]):
        with pytest.raises(Incorrect, match="1 entries were overtaken"):
            count_in_order([(0.0, overtaken)], SHARDS)


def test_the_table_has_ratios_to_the_first_column() -> None:
    told = table("curve", {"10": [Figure("RSS", 100, "MB")], "20": [Figure("RSS", 150, "MB")]})
    assert told.splitlines()[-1] == "| RSS | MB | 100 | 150 (1.50×) |"


@pytest.mark.slow
def test_every_part_is_measured_and_every_entry_accounted_for(tmp_path: Path) -> None:
    told = tmp_path / "scale.json"
    asked = ["--sizes", "500", "--due", "500", "--topics", "20", "--shards", "8", "--herd", "3000", "--json", str(told)]
    run = [sys.executable, "-m", "tests.bench.scale", "--per-s", "100", "--seconds", "2", *asked]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = json.loads(told.read_text())["parts"]
    for part, column, figures in (
        ("curve", "500", ("RSS waiting", "disk, waiting", "sweep, due to last", "lateness, p99", "restart, tables wiped")),
        ("topics", "20", ("start to ready", "lateness, p99", "CPU, steady")),
        ("shards", "8", ("start to ready", "lateness, p99", "CPU, steady")),
        ("herd", "3,000", ("herd, due to last", "peak RSS of the drain", "other team's lateness during, p99")),
    ):
        assert all(parts[part][column][name]["value"] > 0 for name in figures), parts[part]
