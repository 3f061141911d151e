"""A year of passes every ten minutes, merged by `retry analytics compact` that is killed: each record is there once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.process import ROOT, await_that
from tests.support.streamed import Streamed
from tests.support.year import DAYS, Year

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

COMPACT_S = 3_600.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * COMPACT_S)]
# The stream repeats its list every tenth batch, and has two days of its own.
REPEATED, OWN_DAYS = 10, 2
# Files that one step takes away at least: five thousand are merged at once, and whole days.
STEP = 4_900


def test_a_year_of_passes_is_merged_and_each_record_is_there_once_wherever_it_was_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    letters = Streamed(spark, tmp_path)
    year = Year(letters)
    before = Year.PASSES + REPEATED * OWN_DAYS
    assert year.listed() == len(letters.present()) == before
    for is_reached in _points(year):
        _killed_when(is_reached, letters)
        assert year.rows() == year.ids
    # Several steps were done for good, and it was in the midst of another.
    assert DAYS + OWN_DAYS < year.listed() < before
    done = compact_letters(letters)
    assert done["made"] > 0
    assert year.listed() == DAYS + OWN_DAYS
    _each_is_there_once(year)
    # The stream goes on from the new list, repeats it, and then the small files may be removed.
    letters.write(batches=REPEATED, teams=("a",))
    assert compact_letters(letters, "--keep", "1ms")["removed"] >= Year.PASSES
    _each_is_there_once(year)
    # One for each day, and what the last run has merged: it is kept for readers.
    assert len(letters.present()) == DAYS + OWN_DAYS + (REPEATED + 1) * OWN_DAYS
    assert not [*(year.folder / "_compacting").iterdir()]


def _points(year: Year) -> list[Callable[[], bool]]:
    """List the moments of the kills: merged files are moved to their places; count for the first time; for the second."""
    whole = year.listed()

    def count_fewer(steps: int) -> Callable[[], bool]:
        return lambda: year.listed() <= whole - steps * STEP

    return [
        lambda: any(year.folder.glob("day=*/*/compacted-*.parquet")),
        count_fewer(1),
        count_fewer(2),
    ]


def _killed_when(is_reached: Callable[[], bool], letters: Streamed) -> None:
    with (letters.data.parent / "compact.log").open("a") as log:
        process = subprocess.Popen(_command(letters), cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    try:
        await_that("it came to the point", lambda: is_reached() or process.poll() is not None, COMPACT_S)
        assert process.poll() is None, (letters.data.parent / "compact.log").read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def compact_letters(letters: Streamed, *options: str) -> dict[str, int]:
    done = subprocess.run(
        _command(letters, *options), cwd=ROOT, capture_output=True, text=True, timeout=COMPACT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout)["letters"])


def _command(letters: Streamed, *options: str) -> list[str]:
    return [sys.executable, "-m", "retry", "analytics", "compact", str(letters.data), *options]


def _each_is_there_once(year: Year) -> None:
    rows = year.letters.rows()
    assert set(rows.values()) == {1}
    assert rows >= year.ids
