"""Makes the files of a release from its tag: wheel, wheel for tests of users, chart, list of components, and their hashes.

    python -m release.build --tag v1.2.3 --to dist --tools build/tools --venv build/release --url https://HOST/OWNER/NAME

Only what is committed under the tag goes in, with the time of its commit in the place of today's: made again, anywhere, the files
are the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from io import BytesIO
from pathlib import Path

import yaml

from release import components, testing_wheel
from release.package_page import AddressUnusable, write_package_page

ROOT = Path(__file__).parents[1]
SUMS = "SHA256SUMS"


class ReleaseRefused(Exception):
    """The tag is not one of which a release can be made."""


def main() -> None:
    """Build a release, as `make release` asks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tag", required=True)
    parser.add_argument("--to", type=Path, required=True, help="a folder, whose files of this release are replaced")
    parser.add_argument("--url", default="", help="where the repository is on the web, for the page of the wheel on an index")
    parser.add_argument("--repository", type=Path, default=ROOT)
    parser.add_argument("--tools", type=Path, default=ROOT / "build" / "tools", help="has helm")
    parser.add_argument("--venv", type=Path, default=ROOT / "build" / "release", help="has cyclonedx-py")
    given = parser.parse_args()
    try:
        tools = given.tools / "helm", given.venv / "bin" / "cyclonedx-py"
        files = build(given.repository, given.tag, given.to, *tools, url=given.url)
    except (ReleaseRefused, AddressUnusable) as error:
        sys.exit(str(error))
    print("\n".join(f"{_sha256(file)}  {file}" for file in files))


def build(repository: Path, tag: str, to: Path, helm: Path, cyclonedx: Path, *, url: str = "") -> list[Path]:
    """Make the files, `SHA256SUMS` the last of them.

    Raises:
      AddressUnusable: the address of the repository is none.
      ReleaseRefused: there is no such tag, or what it has is not of that version.
    """
    commit, epoch_s = _commit(repository, tag)
    with tempfile.TemporaryDirectory() as scratch:
        tree, made = Path(scratch) / "tree", Path(scratch) / "made"
        made.mkdir()
        _export(repository, commit, tree)
        version = _version(tree, tag)
        environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s), "PYTHONDONTWRITEBYTECODE": "1"}
        testing_wheel.write_project(tree, Path(scratch) / "testing")
        write_package_page(tree, tag, url)
        _wheel(tree, made, environ)
        _wheel(Path(scratch) / "testing", made, environ)
        _run([helm.resolve(), "package", tree / "charts" / "retry", "--destination", made], tree)
        packages = _run(components.command(cyclonedx), tree, environ)
        of_retry, of_jars = (tree / "release/retry.lock").read_text(), (tree / "retry/jars.lock").read_text()
        listed = components.build_list(packages, of_retry, of_jars)
        (made / f"dead-letter-retry-{version}.cdx.json").write_bytes(listed)
        made_files = sorted(made.iterdir())
        (made / SUMS).write_text("".join(f"{_sha256(file)}  {file.name}\n" for file in made_files))
        to.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(file, to)) for file in (*made_files, made / SUMS)]


def _commit(repository: Path, tag: str) -> tuple[str, int]:
    """The commit of a tag, and when it was made."""
    if not re.fullmatch(r"v[0-9]+\.[0-9]+\.[0-9]+(-?(a|b|rc)\.?[0-9]+)?", tag):
        raise ReleaseRefused(f"{tag!r} is no tag of a release: check one out, or give TAG=v1.2.3")
    found = subprocess.run(
        ["git", "-C", repository, "log", "-1", "--format=%H %ct", f"refs/tags/{tag}", "--"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode:
        raise ReleaseRefused(f"no tag {tag} here: {found.stderr.strip()}")
    commit, epoch_s = found.stdout.split()
    return commit, int(epoch_s)


def _export(repository: Path, commit: str, tree: Path) -> None:
    """The files of a commit, each with the time of the commit, whatever this user's umask is."""
    packed = _run(["git", "-C", repository, "-c", "tar.umask=0022", "archive", commit], repository)
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(tree, filter="tar")


def _version(tree: Path, tag: str) -> str:
    """The version that all files of the tree agree on.

    Raises:
      ReleaseRefused: they do not.
    """
    version = tag.removeprefix("v")
    chart = yaml.safe_load((tree / "charts" / "retry" / "Chart.yaml").read_text())
    said = {
        "version in pyproject.toml": tomllib.loads((tree / "pyproject.toml").read_text())["project"]["version"],
        "version in charts/retry/Chart.yaml": chart["version"],
        "appVersion in charts/retry/Chart.yaml": chart["appVersion"],
    }
    if wrong := [f"{what} is {other}" for what, other in said.items() if other != version]:
        raise ReleaseRefused(f"{tag} is not what its files say: {', '.join(wrong)}; correct them and set the tag anew")
    if not re.search(rf"^## {re.escape(version)}\b", (tree / "CHANGELOG.md").read_text(), re.MULTILINE):
        raise ReleaseRefused(f"CHANGELOG.md has no heading `## {version}`: put what is unreleased under it, and set the tag anew")
    return version


def _wheel(tree: Path, made: Path, environ: dict[str, str]) -> None:
    # The build system is that of requirements.lock, so it is the same everywhere, too.
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    _run([sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", made, tree], tree, environ)


def _run(command: list[str | Path], folder: Path, environ: dict[str, str] | None = None) -> bytes:
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, check=False)
    if done.returncode:
        raise ReleaseRefused(f"{' '.join(map(str, command))}: {done.stderr.decode(errors='replace')[-2_000:]}")
    return done.stdout


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
