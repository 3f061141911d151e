"""Merges the small files of a set into one for each day and team, while others read the set and the ingest writes to it.

A pass of the ingest leaves a file for each day and team that has something new. What has more than 128 MiB becomes some files.
Merging takes three steps, and whatever is killed between two of them, or within one, every record counts once:

1. write: merged files are made in a folder of their own, then moved beside those whose place they take. Nobody knows them yet
2. switch: the list of the files that count is replaced, see `retry.analytics.file_list`
3. remove: what counts no longer is deleted, in a later run

**Why later.** Whoever began to read before the switch still reads the files that were merged. And the ingest may have read the
list before the switch and write a longer one after it, in which they count again: then nothing is merged, and nothing is lost.
A file is deleted only when the ingest has repeated its list since the last switch, and files are older than that and than the
time to keep.

What the last few batches wrote is not in the part of the list that can be replaced: up to nine files of a day and team stay
small.
"""

from __future__ import annotations

import posixpath
import uuid
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from retry import clock
from retry.analytics import datasets
from retry.analytics.decisions import apply_settings
from retry.analytics.file_list import FileList, Listed, Whole
from retry.analytics.spark_session import translate_failures

KEEP_MS = 6 * 3_600_000
# A file is made of at most so many bytes, which makes two of them anything but small: what was merged is left alone.
SMALL_BYTES, FULL_BYTES = 64 << 20, 128 << 20
# A year of passes is merged in steps: what was merged stays so, whenever the rest is ended.
_FILES_AT_ONCE = 5_000
_STAGED, _MERGED = "_compacting", "compacted-"
_AS_TEXT = "spark.sql.sources.partitionColumnTypeInference.enabled"


class Compacted(NamedTuple):
    """Counts of the files of one set: how many small ones were `merged` into how many `made`, and how many were `removed`."""

    merged: int = 0
    made: int = 0
    removed: int = 0


class Compaction:
    """Compacts the sets of one folder of any file system that Spark knows; merged files stay for `keep_ms` for their readers."""

    def __init__(self, spark: SparkSession, data: str, *, keep_ms: int = KEEP_MS) -> None:
        self._spark, self._data, self._keep_ms = spark, data.rstrip("/"), keep_ms

    def run(self) -> dict[str, Compacted]:
        """Merge and remove what can be, a second time nothing; raises RetryError where the folder cannot be read or written."""
        # A team that is called 007 keeps its folder.
        with translate_failures(f"{self._data} cannot be compacted"), apply_settings(self._spark, {_AS_TEXT: "false"}):
            return {name: self._compact(name) for name in datasets.SETS}

    def _compact(self, name: str) -> Compacted:
        files = FileList(self._spark, f"{self._data}/{name}")
        files.demand_one_step()
        removed, merged, made = self._remove(files), 0, 0
        while whole := files.find_whole_list():
            chosen = [each for alike in choose_small_files(whole.files, _FILES_AT_ONCE) for each in alike]
            if not chosen:
                break
            there = files.within({posixpath.dirname(each.name) for each in chosen})
            old = [each for alike in choose_small_files([x for x in chosen if x.name in there], len(chosen)) for each in alike]
            new = self._write(files, name, whole.batch, old) if old else []
            # What somebody has deleted, as whole days may be, need not be listed for ever.
            gone = {each.name for each in old} | {each.name for each in chosen if each.name not in there}
            files.replace(whole, [each.line for each in whole.files if each.name not in gone] + new)
            merged, made = merged + len(old), made + len(new)
        return Compacted(merged, made, removed)

    def _write(self, files: FileList, name: str, batch: int, small: list[Listed]) -> list[str]:
        """Merge files into one for each of their folders; returns the lines that list these."""
        below, root = f"{_STAGED}/{uuid.uuid4().hex}", f"{self._data}/{name}"
        columns = [part.partition("=")[0] for part in posixpath.dirname(small[0].name).split("/")]
        reader = self._spark.read.option("basePath", root).option("mergeSchema", "true")
        rows = reader.parquet(*(f"{root}/{each.name}" for each in small))
        shared = rows.repartition(*columns, *_share_large_folders(rows, columns, small))
        shared.write.partitionBy(*columns).parquet(f"{root}/{below}")
        lines = []
        for made in sorted(files.list_present(below)):
            folder, file = posixpath.split(made)
            lines.append(files.move_file(below, made, f"{folder}/{_MERGED}{batch}-{file}"))
        files.delete(below)
        return lines

    def _remove(self, files: FileList) -> int:
        """Delete what counts no longer, was killed before it counted, or was left half made."""
        whole, old_ms = files.find_whole_list(), clock.wall_ms() - self._keep_ms
        for below, modified_ms in files.folders(_STAGED).items():
            if modified_ms <= old_ms:
                files.delete(below)
        if whole is None or not _is_repeated(whole, old_ms):
            return 0
        present = files.list_present()
        listed = {each.name for each in whole.files} | files.since(whole.batch)
        gone = [n for n, modified_ms in present.items() if n not in listed and modified_ms <= min(old_ms, whole.modified_ms)]
        for file in gone:
            files.delete(file)
        return len(gone)


def choose_small_files(listed: list[Listed], most: int) -> list[list[Listed]]:
    """Choose small files of each folder that has several: about as many files as are given in all, or all of one folder."""
    small = sorted((each for each in listed if each.bytes < SMALL_BYTES), key=lambda each: posixpath.split(each.name))
    chosen: list[list[Listed]] = []
    for _, group in groupby(small, key=lambda each: posixpath.dirname(each.name)):
        alike = list(group)
        if len(alike) > 1:
            chosen.append(alike)
        if sum(map(len, chosen)) >= most:
            break
    return chosen


def count_files(small: Iterable[Listed]) -> dict[str, int]:
    """Count the files that the small ones of each folder become, where that is more than one."""
    sizes: Counter[str] = Counter()
    for each in small:
        sizes[posixpath.dirname(each.name)] += each.bytes
    return {folder: -(-size // FULL_BYTES) for folder, size in sizes.items() if size > FULL_BYTES}


def _share_large_folders(rows: DataFrame, columns: list[str], small: Iterable[Listed]) -> list[Column]:
    """Choose which of a folder's files, and so which task, a row comes to; nothing to choose where each folder becomes one."""
    counts = count_files(small)
    if not counts:
        return []
    folder = F.concat_ws("/", *[F.concat(F.lit(f"{name}="), F.col(name)) for name in columns])
    known = F.create_map(*[F.lit(each) for pair in counts.items() for each in pair])
    return [F.pmod(F.xxhash64(*rows.columns), F.coalesce(F.try_element_at(known, folder), F.lit(1)))]


def _is_repeated(whole: Whole, old_ms: int) -> bool:
    """Whether the ingest has repeated the list since files were merged last, and that is long enough ago."""
    merged = [each for each in whole.files if posixpath.basename(each.name).startswith(_MERGED)]
    of_this = f"{_MERGED}{whole.batch}-"
    return all(each.modified_ms <= old_ms and not posixpath.basename(each.name).startswith(of_this) for each in merged)
