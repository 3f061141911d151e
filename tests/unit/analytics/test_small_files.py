"""Which files of a set are merged together."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from retry.analytics.compact import FULL_BYTES, SMALL_BYTES, choose_small_files, count_files
from retry.analytics.file_list import Listed


def test_small_files_of_a_folder_are_merged_and_one_alone_or_a_large_one_is_left() -> None:
    files = [
        _file("day=1/team=a/x"), _file("day=1/team=a/y"), _file("day=1/team=a/large", SMALL_BYTES),
        _file("day=1/team=b/x"), _file("day=2/team=b/x"), _file("day=2/team=b/y", SMALL_BYTES - 1),
    ]  # fmt: skip
    assert _names(files, 100) == [["day=1/team=a/x", "day=1/team=a/y"], ["day=2/team=b/x", "day=2/team=b/y"]]


def test_many_files_are_merged_in_steps_that_never_part_a_folder() -> None:
    files = [_file(f"day={day}/{n:02}") for day in range(3) for n in range(10)]
    assert list(map(len, _names(files, 1))) == [10]
    assert list(map(len, _names(files, 11))) == [10, 10]
    assert _names([], 1) == []


def test_folders_whose_names_begin_alike_are_not_taken_for_each_other() -> None:
    files = [_file("day=1/team=a/y"), _file("day=1/team=a-b/x"), _file("day=1/team=a/z")]
    assert _names(files, 9) == [["day=1/team=a/y", "day=1/team=a/z"]]


def test_what_is_made_of_a_folder_is_bounded_and_no_file_of_it_is_small() -> None:
    assert count_files([_file("day=1/team=a/x", SMALL_BYTES), _file("day=1/team=a/y", SMALL_BYTES)]) == {}
    many = [_file(f"day=1/team=a/{n}", SMALL_BYTES - 1) for n in range(5)]
    counts = count_files([*many, _file("day=2/team=a/x"), _file("day=2/team=a/y")])
    assert counts == {"day=1/team=a": 3}
    assert SMALL_BYTES <= sum(each.bytes for each in many) / 3 <= FULL_BYTES


def _names(files: list[Listed], most: int) -> list[list[str]]:
    return [[each.name for each in folder] for folder in choose_small_files(files, most)]


def _file(name: str, size: int = 1) -> Listed:
    return Listed(name, size, 0, "")
