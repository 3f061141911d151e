"""A Java that is not there, too old, or too new for Spark: one sentence says which to install."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from click.testing import CliRunner

from retry import jars
from retry.__main__ import main
from retry.errors import JarsUnavailable, JavaUnavailable

pytestmark = pytest.mark.usefixtures("no_java_home")


@pytest.fixture
def no_java_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)


def home(folder: Path, version: str, *, release: bool = True) -> Path:
    """The directory of a Java of a version that says it in its file `release`, or only when it is asked."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="Nobody"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize(("version", "release"), [("17.0.15", True), ("21", True), ("25.0.1", True), ("17.0.1", False)])
def test_java_home_is_asked_before_the_path(version: str, release: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home(tmp_path / "named", version, release=release)))
    monkeypatch.setenv("PATH", str(home(tmp_path / "other", "11") / "bin"), prepend=":")
    assert jars.find_java() == str(tmp_path / "named" / "bin" / "java")


@pytest.mark.parametrize(("version", "release"), [("11.0.2", True), ("1.8.0_402", True), ("1.8.0_402", False), ("16", True)])
def test_an_old_java_is_refused_with_its_version(
    version: str, release: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home(tmp_path, version, release=release)))
    number = version.removeprefix("1.").partition(".")[0]
    with pytest.raises(JavaUnavailable, match=f"is Java {number}; install Java 17 or 21"):
        jars.find_java()


def test_where_there_is_no_java_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaUnavailable, match="no `java` on the PATH, and JAVA_HOME is not set; install Java 17 or 21"):
        jars.find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaUnavailable, match="which JAVA_HOME names; install Java 17 or 21"):
        jars.find_java()


@pytest.mark.parametrize(("version", "runs"), [("17.0.15", True), ("21.0.2", True), ("23", False), ("25.0.1", False)])
def test_spark_is_not_started_on_a_java_that_it_fails_on(
    version: str, runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home(tmp_path, version)))
    if runs:
        jars.demand_java_of_spark()
    else:
        with pytest.raises(JavaUnavailable, match=r"on which Spark 4\.0 fails; let JAVA_HOME name a Java 17 or 21"):
            jars.demand_java_of_spark()


@pytest.mark.parametrize("command", ["broker --port 0 --data-dir {}/data", "analytics compact {}/data", "analytics prepare"])
def test_commands_that_need_java_say_that_there_is_none(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("RETRY_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    done = CliRunner().invoke(main, command.format(tmp_path).split())
    assert (done.exit_code, done.output.count("\n")) == (1, 1), done.output
    assert "no `java` on the PATH" in done.output


def test_kafka_is_read_with_the_source_of_the_spark_that_is_installed() -> None:
    pinned = jars.choose_root("spark", "")
    assert jars.choose_root("spark", "4.0.2") == pinned and pinned[2] == "4.0.0"
    assert jars.choose_root("spark", "4.2.0") == (*pinned[:2], "4.2.0")
    assert jars.choose_root("broker", "4.2.0") == jars.choose_root("broker", "4.0.0")


@pytest.fixture
def another_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache, and an Ivy that brings two files of Spark 4.2.0 and fails for every other version."""
    program = "import pathlib, sys; t = pathlib.Path(sys.argv[1]); t.mkdir(); [(t / f).write_text(f) for f in ('a.jar', 'b.jar')]"
    programs = {"4.2.0": program}
    monkeypatch.setattr(jars, "_ivy", lambda root, target: [sys.executable, "-c", programs.get(root[2], "1/0"), target])
    monkeypatch.setattr(jars, "find_cache_dir", lambda: tmp_path)
    monkeypatch.setattr(jars, "version", lambda _name: "4.2.0")
    return tmp_path


def test_hashes_of_another_spark_are_noted_and_hold_from_then_on(another_spark: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = jars.fetch_jars("spark")
    assert [file.name for file in found] == ["a.jar", "b.jar"] and "PySpark is 4.2.0, which is not tried" in caplog.text
    caplog.clear()
    assert jars.fetch_jars("spark") == found and not caplog.text
    found[1].write_text("another")
    with pytest.raises(JarsUnavailable, match=r"not the pinned files: b\.jar"):
        jars.fetch_jars("spark")
    assert jars.fetch_jars("spark") == found and another_spark in found[0].parents


@pytest.mark.usefixtures("another_spark")
def test_a_spark_whose_source_nobody_has_says_which_one_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "version", lambda _name: "4.9.0")
    with pytest.raises(JarsUnavailable, match=r"what is tried is Spark 4\.0\.0: pip install 'pyspark==4\.0\.0'"):
        jars.fetch_jars("spark")


def test_jars_of_the_broker_do_not_depend_on_which_spark_there_is(another_spark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    # A PySpark that a cluster has put on the path has no metadata.
    monkeypatch.setattr(jars, "version", version)
    with pytest.raises(JarsUnavailable, match=r"could not fetch org\.apache\.kafka"):
        jars.fetch_jars("broker")
    assert not [*another_spark.iterdir()]
