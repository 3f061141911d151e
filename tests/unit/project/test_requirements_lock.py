"""What is installed is what was pinned: versions and hashes of every package, wheels of all but one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LOCKS = {"requirements.lock": {"pyspark"}, "release/tools.lock": set[str]()}
_HASH = r" \\\n    --hash=sha256:[0-9a-f]{64}"
_PIN = re.compile(rf"^(?P<name>[\w.-]+)==[^\s;]+(?: ; [^\\\n]+)?(?P<hashes>(?:{_HASH})+)$", re.MULTILINE)
# What installs them, and the lines of it that say how.
INSTALLING = {"Makefile": 2, "Dockerfile": 1}


def pins(lock: str) -> dict[str, int]:
    """The packages of a lock, and how many files of each are known."""
    return {found["name"]: found["hashes"].count("--hash") for found in _PIN.finditer((ROOT / lock).read_text())}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_is_pinned_by_hashes(lock: str) -> None:
    lines = (ROOT / lock).read_text().splitlines()
    begun = [line for line in lines if line and not line.startswith((" ", "#"))]
    # No line says anything else: no other index, no address, no version that may move.
    assert len(begun) == len(pins(lock)) > 20


@pytest.mark.parametrize(("lock", "built"), LOCKS.items(), ids=LOCKS)
def test_packages_are_installed_from_wheels_and_only_pyspark_is_built(lock: str, built: set[str]) -> None:
    # One file alone is an archive of sources; wheels come beside one.
    assert {name for name, files in pins(lock).items() if files == 1} == built
    for file, count in INSTALLING.items():
        installs = [line for line in (ROOT / file).read_text().splitlines() if " install " in line and ".lock" in line]
        assert len(installs) == count
        for line in installs:
            exception = " --no-binary=pyspark" if "requirements.lock" in line else ""
            assert f"--require-hashes --only-binary=:all:{exception} -r" in line, file
