"""The bench runs as `make bench` calls it, on few letters; what it measures there means nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_every_rate_is_measured_and_every_letter_accounted_for(tmp_path: Path) -> None:
    told = tmp_path / "bench.json"
    asked = ["--letters", "5000", "--only", "copy,intake,sweep,drain", "--json", str(told)]
    done = subprocess.run([sys.executable, "-m", "tests.bench", *asked], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = {line["figure"]: line["value"] for line in json.loads(told.read_text())["figures"]}
    rates = ("copy limit", "intake", "intake until folded", "sweep, due to last", "drain, start to last")
    assert all(figures[name] > 0 for name in rates), figures
