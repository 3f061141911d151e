"""Spark's classes in a file: Java makes it, uses it, and does without where it is none of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from retry.analytics import spark_session
from tests.support.process import ROOT

# What a session loads and answers, and which files Java has mapped into its memory.
SESSION = """
from pathlib import Path
from retry.analytics.spark_session import open_session
with open_session("test", kafka=False) as spark:
    assert spark.range(7).selectExpr("sum(id)").first()[0] == 21
    pid = spark.sparkContext._jvm.ProcessHandle.current().pid()
    print(".jsa" in Path(f"/proc/{pid}/maps").read_text().replace("classes.jsa", "").replace("classes_nocoops.jsa", ""))
"""


@pytest.mark.slow
def test_a_file_that_java_did_not_make_is_not_used_and_the_session_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    spark_session.create_archive(lambda options: _write(options, os.urandom(100_000)))
    assert spark_session.find_archive()
    assert _run(tmp_path, "-c", SESSION).splitlines() == ["False"]


@pytest.mark.slow
def test_prepare_makes_a_file_that_the_next_session_uses_a_second_run_leaves_and_none_uses_once_damaged(tmp_path: Path) -> None:
    assert _run(tmp_path, "-c", SESSION).splitlines() == ["False"]
    made = Path(_run(tmp_path, "-m", "retry", "analytics", "prepare").strip())
    assert made.parent == tmp_path / "dead-letter-retry"
    assert made.stat().st_size > 1 << 20
    assert _run(tmp_path, "-c", SESSION).splitlines() == ["True"]
    began = made.stat().st_mtime_ns
    assert _run(tmp_path, "-m", "retry", "analytics", "prepare").strip() == str(made)
    assert made.stat().st_mtime_ns == began
    assert [*made.parent.iterdir()] == [made]
    _damage(made)
    assert _run(tmp_path, "-c", SESSION).splitlines() == ["False"]


def _write(options: str, content: bytes) -> None:
    Path(options.partition('ArchiveClassesAtExit="')[2].partition('"')[0]).write_bytes(content)


def _damage(file: Path) -> None:
    """Damage a file as a failing disk does: here and there other bytes, and the size as it was."""
    file.chmod(0o600)
    with file.open("r+b") as archive:
        for at in range(2_000_000, file.stat().st_size - 4_096, 4_000_000):
            archive.seek(at)
            archive.write(os.urandom(4_096))


def _run(cache: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=os.environ | {"XDG_CACHE_HOME": str(cache)}, capture_output=True,
        text=True, timeout=1_500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
