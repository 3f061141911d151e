"""Looks up what is known against the packages of the locks: pip-audit, by the advisories that PyPI serves.

    python -m release.scan --venv build/release requirements.lock release/tools.lock

Ends with 1 where something is known, and with 2 where it could not be asked: a mirror of PyPI may serve packages alone, and
what was not looked up is not well for that.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

KNOWN, UNASKED = 1, 2


class Found(NamedTuple):
    """The findings of all scans.

    Attributes:
      looked_up: how many packages were.
      known: a line for each vulnerability.
      unasked: packages that could not be looked up.
    """

    looked_up: int
    known: list[str]
    unasked: list[str]

    def code(self) -> int:
        """The exit code of the scan."""
        return KNOWN if self.known else UNASKED if self.unasked or not self.looked_up else 0

    def text(self) -> str:
        """The findings as a text for people."""
        lines = [f"{self.looked_up} packages looked up, {len(self.known)} vulnerabilities known", *self.known]
        if self.unasked:
            lines.append(
                f"{len(self.unasked)} packages could not be looked up, as {self.unasked[0]}: this index serves no advisories. "
                "Run it where pypi.org itself is reached."
            )
        return "\n".join(lines)


def main() -> None:
    """Scan a release, as `make check-release` asks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--venv", type=Path, required=True, help="has pip-audit")
    parser.add_argument("locks", nargs="+")
    given = parser.parse_args()
    try:
        found = join_found(read(_ask_pip_audit(given.venv / "bin" / "pip-audit", lock)) for lock in given.locks)
    except orjson.JSONDecodeError as error:
        sys.exit(f"pip-audit did not say what it found: {error}")
    print(found.text())
    sys.exit(found.code())


def read(told: bytes) -> Found:
    """Read what pip-audit says as JSON."""
    packages: Sequence[Mapping[str, Any]] = orjson.loads(told)["dependencies"]
    asked = [each for each in packages if "vulns" in each]
    known = [_line(each, vulnerability) for each in asked for vulnerability in each["vulns"]]
    return Found(len(asked), known, [each["name"] for each in packages if "vulns" not in each])


def join_found(of_files: Iterable[Found]) -> Found:
    """Join what was found in several files; what several of them name is told once."""
    found = list(of_files)
    known = dict.fromkeys(line for each in found for line in each.known)
    unasked = dict.fromkeys(name for each in found for name in each.unasked)
    return Found(sum(each.looked_up for each in found), [*known], [*unasked])


def _line(package: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    names, mended = ", ".join([known["id"], *known["aliases"]]), ", ".join(known["fix_versions"]) or "no version yet"
    return f"{package['name']} {package['version']}: {names}; mended in {mended}"


def _ask_pip_audit(pip_audit: Path, lock: str) -> bytes:
    # One file at a time: it refuses two that name a package, though they name the same version of it.
    options = ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "--format", "json", "--requirement", lock]
    # Its own exit code does not tell what was found from what could not be looked up.
    done = subprocess.run([pip_audit, *options], stdout=subprocess.PIPE, check=False)
    return done.stdout


if __name__ == "__main__":
    main()
