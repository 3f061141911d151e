"""A release is made of its tag alone: twice, in two places, the same bytes; and of no tag whose files say something else."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.chart import ROOT
from tests.support.component_lists import flaws
from tests.support.tools import release_tool, tool

pytestmark = pytest.mark.check

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
TAG = f"v{VERSION}"


class Clone:
    """A repository with this tree as its last commit, under a tag."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        listed = self._git("ls-files", "-z", "--cached", "--others", "--exclude-standard", at=ROOT).split("\0")
        for name in filter(None, listed):
            if (ROOT / name).is_file() and not (ROOT / name).is_symlink():
                copy = folder / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes((ROOT / name).read_bytes())
        self._git("init", "--quiet")
        released = f"## {VERSION}" in (folder / "CHANGELOG.md").read_text()
        self.edit("CHANGELOG.md", "## Unreleased", "## Unreleased" if released else f"## Unreleased\n\n## {VERSION} - 2026-11-24")

    def _git(self, *arguments: str, at: Path | None = None) -> str:
        day = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
               for what, value in (("NAME", "a"), ("EMAIL", "a@localhost"), ("DATE", "2026-11-24T01:02:03Z"))}  # fmt: skip
        done = subprocess.run(
            ["git", "-C", str(at or self.folder), "-c", "core.autocrlf=false", *arguments],
            env={**os.environ, **day}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    def edit(self, file: str, old: str, new: str) -> None:
        """Change a file, commit everything, and set the tag there."""
        text = (self.folder / file).read_text()
        assert old in text
        (self.folder / file).write_text(text.replace(old, new))
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", "all")
        self._git("tag", "--force", TAG)

    def release(self, to: Path, tag: str = TAG, **environ: str) -> subprocess.CompletedProcess[str]:
        options = ["--tools", str(Path(tool("helm")).parent), "--venv", str(Path(release_tool("cyclonedx-py")).parents[1])]
        command = [sys.executable, "-m", "release.build", f"--tag={tag}", "--to", str(to), *options]
        return subprocess.run(
            command, cwd=self.folder, env={**os.environ, "PYTHONPATH": str(self.folder), **environ}, capture_output=True,
            text=True, timeout=300, check=False,
        )  # fmt: skip


def digests(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


@pytest.mark.slow
def test_a_release_that_is_made_twice_is_the_same_bytes(tmp_path: Path) -> None:
    one, other = Clone(tmp_path / "one"), Clone(tmp_path / "another-place")
    # What lies there and is not committed under the tag makes no difference; neither does where, by whom and with which umask.
    (other.folder / "retry" / "stray.py").write_text("x = 1\n")
    (other.folder / "README.md").write_text("another text\n")
    before = os.umask(0o077)
    try:
        made = [
            one.release(tmp_path / "dist-1", TZ="UTC"),
            other.release(tmp_path / "dist-2", TZ="Asia/Tokyo", PYTHONHASHSEED="7", LC_ALL="C"),
        ]
    finally:
        os.umask(before)
    assert [each.returncode for each in made] == [0, 0], made[0].stderr + made[1].stderr
    first = digests(tmp_path / "dist-1")
    assert first == digests(tmp_path / "dist-2")
    wheels = {f"dead_letter_retry{part}-{VERSION}-py3-none-any.whl" for part in ("", "_testing")}
    names = wheels | {f"retry-{VERSION}.tgz", f"dead-letter-retry-{VERSION}.cdx.json"}
    assert first.keys() == {*names, "SHA256SUMS"}
    sums = dict(reversed(line.split()) for line in (tmp_path / "dist-1" / "SHA256SUMS").read_text().splitlines())
    assert sums == {name: first[name] for name in names}
    _holds_the_program(tmp_path / "dist-1" / f"dead_letter_retry-{VERSION}-py3-none-any.whl")
    _lists_every_pin(tmp_path / "dist-1" / f"dead-letter-retry-{VERSION}.cdx.json")


def _holds_the_program(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert {each.date_time for each in archive.infolist()} == {(2026, 11, 24, 1, 2, 2)}
    assert {"retry/jars.lock", "retry/__main__.py", "retry/py.typed", "backoff/__init__.py", "backoff/py.typed"} <= names
    assert not [name for name in names if name.startswith(("tests", "release", "docs")) or "stray" in name]


def _lists_every_pin(components: Path) -> None:
    told = json.loads(components.read_text())
    assert (told["bomFormat"], told["metadata"]["component"]["version"]) == ("CycloneDX", VERSION)
    listed = [each for each in told["components"] if not each["purl"].startswith("pkg:maven/")]
    packages = {each["purl"].partition("?")[0] for each in listed}
    of_workers, of_images = (_purls((ROOT / "release" / f"{name}.lock").read_text()) for name in ("retry", "analytics"))
    assert packages == of_images
    scoped = {scope: {each["purl"].partition("?")[0] for each in listed if each["scope"] == scope}
              for scope in ("required", "optional", "excluded")}  # fmt: skip
    assert scoped == {"required": of_workers, "optional": of_images - of_workers, "excluded": set()}
    hashes = {each["hashes"][0]["content"]: each for each in told["components"] if each not in listed}
    locked = {line.split()[1] for line in (ROOT / "retry" / "jars.lock").read_text().splitlines()}
    assert hashes.keys() == locked
    assert flaws(components) == ""
    assert told["metadata"]["timestamp"].startswith("2026-11-24T01:02:03")
    jars = {(each["purl"], each["scope"]) for each in hashes.values()}
    assert ("pkg:maven/org.apache.kafka/kafka_2.13@4.1.0", "excluded") in jars
    assert ("pkg:maven/org.apache.spark/spark-sql-kafka-0-10_2.13@4.0.0", "optional") in jars


def _purls(lock: str) -> set[str]:
    return {f"pkg:pypi/{name}@{version}" for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", lock, re.MULTILINE)}


@pytest.mark.parametrize(("file", "old", "new", "said"), [
    ("pyproject.toml", f'version = "{VERSION}"', 'version = "9.9.9"', "version in pyproject.toml is 9.9.9"),
    ("charts/retry/Chart.yaml", f"appVersion: {VERSION}", "appVersion: 9.9.9", "appVersion in charts/retry/Chart.yaml is 9.9.9"),
    ("CHANGELOG.md", f"## {VERSION}", "## 9.9.9", f"CHANGELOG.md has no heading `## {VERSION}`"),
], ids=["program", "chart", "changelog"])  # fmt: skip
def test_files_that_are_not_of_the_tags_version_make_no_release(tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    clone = Clone(tmp_path / "clone")
    clone.edit(file, old, new)
    done = clone.release(tmp_path / "dist")
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr
    assert not (tmp_path / "dist").exists()


@pytest.mark.parametrize("tag", ["", "main", "v0", "v9.9.9", "--output=x"])
def test_what_is_no_tag_of_a_release_makes_none(tmp_path: Path, tag: str) -> None:
    clone = Clone(tmp_path / "clone")
    done = clone.release(tmp_path / "dist", tag=tag)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "dist").exists()
