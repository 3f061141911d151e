"""Which file of classes a session takes, and what becomes of one that Java did not make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from retry.analytics import spark_session
from retry.errors import RetryError


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a b"))


def java(writes: bytes | None) -> Callable[[str], None]:
    """Stand in for a Java that is told to write the file when it ends."""

    def run(options: str) -> None:
        if writes is not None:
            Path(options.partition('ArchiveClassesAtExit="')[2].partition('"')[0]).write_bytes(writes)

    return run


def test_what_was_made_is_found_and_java_is_told_to_use_it() -> None:
    assert (spark_session.find_archive(), spark_session.build_java_options()) == (None, "")
    made = spark_session.create_archive(java(b"classes"))
    assert spark_session.find_archive() == made
    assert f'-XX:SharedArchiveFile="{made}" -Xshare:auto' in spark_session.build_java_options()


def test_a_file_that_was_cut_off_is_none() -> None:
    made = spark_session.create_archive(java(b"classes"))
    made.write_bytes(b"class")
    assert spark_session.find_archive() is None
    again = spark_session.create_archive(java(b"class"))
    assert spark_session.find_archive() == again


@pytest.mark.parametrize("other", ["release", "version", "jars"])
def test_another_java_or_spark_has_a_file_of_its_own(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, spark = tmp_path / "java", tmp_path / "pyspark"
    for file in (home / "bin" / "java", home / "release", spark / "__init__.py", spark / "jars" / "one.jar"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("one")
    (home / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setattr("pyspark.__file__", str(spark / "__init__.py"))
    made = spark_session.create_archive(java(b"classes"))
    assert spark_session.find_archive() == made
    if other == "release":
        (home / "release").write_text("two")
    elif other == "version":
        monkeypatch.setattr("pyspark.__version__", "4.0.1")
    else:
        (spark / "jars" / "two.jar").write_text("two")
    assert spark_session.find_archive() is None


def test_a_java_that_keeps_nothing_or_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(RetryError, match="starts without"):
        spark_session.create_archive(java(None))

    def dies(options: str) -> None:
        java(b"half")(options)
        raise RetryError("Java ended with 1")

    with pytest.raises(RetryError, match="ended with 1"):
        spark_session.create_archive(dies)
    assert not [*(tmp_path / "a b").rglob("spark*")]


def test_a_cache_that_cannot_be_written_or_found_is_said_and_no_session_ends_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(RetryError, match="name another folder as XDG_CACHE_HOME"):
        spark_session.create_archive(java(b"classes"))
    assert spark_session.build_java_options() == ""

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("retry.analytics.spark_session.find_cache_dir", nowhere)
    assert spark_session.build_java_options() == ""
