"""Sets that many batches of a stream wrote, merged: the same readers see the same rows, and the same stream goes on."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from retry.errors import RetryError
from tests.support.streamed import Streamed

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from retry.analytics import compact, datasets, file_list
from retry.analytics.compact import Compacted, Compaction
from retry.analytics.file_list import FileList

pytestmark = pytest.mark.check

HOUR_MS = 3_600_000


@pytest.fixture
def letters(spark: SparkSession, tmp_path: Path) -> Streamed:
    return Streamed(spark, tmp_path)


def test_the_files_of_many_batches_become_one_for_each_day_and_team_and_every_reader_sees_each_row_once(
    letters: Streamed, spark: SparkSession
) -> None:
    letters.write(batches=12)
    before = letters.rows()
    assert len(letters.counting()) == 12 * letters.FOLDERS
    # Whoever asked before the switch still reads what it was told of.
    earlier = datasets.read_set(spark, str(letters.data), datasets.LETTERS)
    planned = earlier.select("id")
    assert planned.count() == before.total()
    assert _letters(letters) == Compacted(merged=10 * letters.FOLDERS, made=letters.FOLDERS)
    assert len(letters.counting()) == 3 * letters.FOLDERS
    assert letters.rows() == before
    assert planned.count() == before.total()
    assert Counter(row["id"] for row in spark.read.parquet(str(letters.data / "letters")).collect()) == before
    # Nothing is left to do, and the stream goes on where it was, over the batches that repeat the list.
    assert _letters(letters) == Compacted()
    letters.write(batches=9)
    assert letters.rows().total() == before.total() + 9 * letters.FOLDERS
    assert _letters(letters).made == letters.FOLDERS
    assert set(letters.rows().values()) == {1}


@pytest.mark.slow
def test_what_was_merged_is_deleted_when_the_stream_has_repeated_its_list_and_the_time_is_over(letters: Streamed) -> None:
    letters.write(batches=11)
    _letters(letters)
    present = letters.present()
    assert _letters(letters, keep_ms=0).removed == 0
    assert letters.present() == present
    letters.write(batches=9)
    assert _letters(letters, keep_ms=HOUR_MS).removed == 0
    before = letters.rows()
    letters.write(batches=10)
    letters.age(2 * HOUR_MS)
    stray = letters.data / "letters" / "day=2026-06-01" / "team=a" / "part-of-a-batch-that-was-killed.parquet"
    stray.write_bytes(b"half")
    # What a folder itself says counts for nothing: on object stores it is always of now.
    half, at_work = ((letters.data / "letters" / "_compacting" / name / "part.parquet") for name in ("killed", "at work"))
    for each in (half, at_work):
        each.parent.mkdir(parents=True)
        each.write_bytes(b"half")
    for old in (stray, half, at_work.parent):
        os.utime(old, (0, 0))
    assert _letters(letters, keep_ms=HOUR_MS).removed > 10 * letters.FOLDERS
    assert not stray.exists()
    assert not half.parent.exists()
    assert at_work.exists()
    assert set(letters.rows().values()) == {1}
    assert letters.rows() >= before
    assert set(letters.counting()) <= set(letters.present())


def test_a_stream_that_read_the_list_before_the_switch_undoes_the_merge_and_nothing_is_lost_or_deleted(
    letters: Streamed, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters.write(batches=10)
    usual = FileList.replace

    def late(self: FileList, *arguments: Any) -> None:
        letters.write(batches=10)
        usual(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(FileList, "replace", late)
        patched.setattr(compact, "choose_small_files", _once(compact.choose_small_files))
        assert _letters(letters).merged == 10 * letters.FOLDERS
    # The list that counts is the stream's; what was merged for nothing does not count.
    assert len(letters.counting()) == 20 * letters.FOLDERS
    assert set(letters.rows().values()) == {1}
    assert _letters(letters, keep_ms=0).merged == 20 * letters.FOLDERS
    assert set(letters.rows().values()) == {1}


def test_days_that_somebody_deleted_are_not_listed_for_ever_and_teams_keep_their_folders(letters: Streamed) -> None:
    letters.write(batches=10, teams=("a", "007", "a/b", "Ä[x]"))
    before = letters.rows()
    gone = letters.delete_day("2026-06-01")
    assert _letters(letters).made == 4
    assert all("day=2026-06-02" in name for name in letters.counting())
    assert letters.rows() == before - gone
    assert {name.split("/")[1] for name in letters.counting()} == letters.folders("day=2026-06-02")


def test_columns_that_older_runs_did_not_write_and_newer_ones_did_are_kept(letters: Streamed, spark: SparkSession) -> None:
    letters.write(batches=5, without="cause")
    letters.write(batches=5, more="of_a_later_version")
    _letters(letters)
    files = [str(letters.data / "letters" / name) for name in letters.counting()]
    found = spark.read.parquet(*files)
    assert "of_a_later_version" in found.columns
    assert found.where("of_a_later_version is not null").count() == found.where("cause is not null").count() == found.count() / 2


def test_a_folder_without_sets_and_a_list_of_another_version_change_nothing(letters: Streamed, tmp_path: Path) -> None:
    assert set(Compaction(letters.spark, str(tmp_path / "none")).run().values()) == {Compacted()}
    letters.write(batches=10)
    listed = letters.data / "letters" / "_spark_metadata" / "9.compact"
    (listed.parent / ".9.compact.crc").unlink()
    listed.write_text(listed.read_text().replace("v1", "v2", 1))
    with pytest.raises(RetryError, match="v2"):
        _letters(letters)


def test_the_list_is_there_at_every_moment_of_the_switch(letters: Streamed, monkeypatch: pytest.MonkeyPatch) -> None:
    letters.write(batches=10)
    before, lists = letters.rows(), letters.data / "letters" / "_spark_metadata"

    def fail_felled(made: Path, path: str) -> None:
        assert made.is_file() and Path(path) == lists / "9.compact" and Path(path).is_file()
        raise OSError("felled")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fail_felled)
        with pytest.raises(OSError, match="felled"):
            _letters(letters)
    assert letters.rows() == before
    assert _letters(letters).made == letters.FOLDERS
    assert letters.rows() == before


def test_where_a_list_cannot_be_replaced_in_one_step_nothing_is_merged(
    letters: Streamed, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters.write(batches=10)
    present = letters.present()
    monkeypatch.setattr(file_list, "_LOCAL", "another")
    with pytest.raises(RetryError, match="in one step"):
        _letters(letters)
    assert letters.present() == present


def _letters(streamed: Streamed, keep_ms: int = HOUR_MS) -> Compacted:
    return Compaction(streamed.spark, str(streamed.data), keep_ms=keep_ms).run()[datasets.LETTERS]


def _once(chosen: Any) -> Any:
    """Choose as before for the first step, which asks twice, and nothing to merge afterwards."""
    asked: list[int] = []

    def choose(*arguments: Any) -> Any:
        asked.append(1)
        return chosen(*arguments) if len(asked) <= 2 else []

    return choose
