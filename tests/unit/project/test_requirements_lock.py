"""What is installed is what was pinned: versions and hashes of every package, wheels of all but one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release.images import FROM_SOURCES

ROOT = Path(__file__).parents[3]
LOCKS = {
    "requirements.lock": {"pyspark"},
    "release/retry.lock": set[str](),
    "release/analytics.lock": {"pyspark"},
    "release/build.lock": set[str](),
    "release/demo.lock": set[str](),
    "release/moto.lock": set[str](),
    "release/tools.lock": set[str](),
}
# What images are made of: a part of what is tested.
PARTS = {"release/retry.lock": ["console", "otel"], "release/analytics.lock": ["console", "otel", "analytics"]}
_HASH = r" \\\n    --hash=sha256:[0-9a-f]{64}"
_PIN = re.compile(rf"^(?P<name>[\w.-]+)==[^\s;]+(?: ; [^\\\n]+)?(?P<hashes>(?:{_HASH})+)$", re.MULTILINE)
# What installs them, and the lines of it that say how.
INSTALLING = {"Makefile": 5, "Dockerfile": 3}


def pins(lock: str) -> dict[str, int]:
    """The packages of a lock, and how many files of each are known."""
    return {found["name"]: found["hashes"].count("--hash") for found in _PIN.finditer((ROOT / lock).read_text())}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_is_pinned_by_hashes(lock: str) -> None:
    lines = (ROOT / lock).read_text().splitlines()
    begun = [line for line in lines if line and not line.startswith((" ", "#"))]
    # No line says anything else: no other index, no address, no version that may move.
    assert len(begun) == len(pins(lock)) > 5


@pytest.mark.parametrize(("lock", "built"), LOCKS.items(), ids=LOCKS)
def test_one_file_alone_is_an_archive_of_sources_and_only_pyspark_is_one(lock: str, built: set[str]) -> None:
    assert {name for name, files in pins(lock).items() if files == 1} == built


@pytest.mark.parametrize(("file", "count"), INSTALLING.items(), ids=INSTALLING)
def test_packages_are_installed_from_wheels_and_only_pyspark_is_built(file: str, count: int) -> None:
    lines = (ROOT / file).read_text().replace("\\\n", "").splitlines()
    installs = [line for line in lines if re.search(r"install .*\.lock", line)]
    assert len(installs) == count
    for line in installs:
        built = {"requirements": "pyspark", "analytics": "pyspark", "retry": r"\$FROM_SOURCES"}.get(Path(line.split()[-1]).stem)
        exception = f" +--no-binary={built}" if built else ""
        assert re.search(rf"--require-hashes +--only-binary=:all:{exception} -r \S+$", line), line


def test_an_image_has_nothing_from_sources_besides_but_where_a_processor_has_no_wheel() -> None:
    assert "\nARG FROM_SOURCES=:none:\n" in (ROOT / "Dockerfile").read_text()
    assert FROM_SOURCES == {"arm64": "faust-streaming"}


@pytest.mark.parametrize(("part", "extras"), PARTS.items(), ids=PARTS)
def test_images_have_what_is_tested_and_nothing_that_only_tests_need(part: str, extras: list[str]) -> None:
    tested, has = (hashes(lock) for lock in ("requirements.lock", part))
    assert has.items() <= tested.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    wanted = names([*project["dependencies"], *(each for extra in extras for each in optional[extra])])
    assert wanted <= has.keys()
    assert not {"pytest", "mypy", "hypothesis", "playwright", "hatchling"} & has.keys()
    assert ("pyspark" in has) == ("analytics" in extras)


def test_what_the_demo_has_besides_is_what_tests_have() -> None:
    has = hashes("release/demo.lock")
    assert has.items() <= hashes("requirements.lock").items()
    assert {"rich", "hatchling", "editables"} <= has.keys()


def hashes(lock: str) -> dict[str, tuple[str, ...]]:
    """Read of each package of a lock its version and the hashes of its files."""
    found = _PIN.finditer((ROOT / lock).read_text())
    return {pin["name"]: (pin[0].split()[0], *re.findall(r"sha256:\w+", pin[0])) for pin in found}


def names(requirements: list[str]) -> set[str]:
    """Read the names of packages, as a lock writes them."""
    return {canonicalize_name(Requirement(each).name) for each in requirements}
