"""The list of components of a release (SBOM, CycloneDX in JSON): every package and every jar, with version and hashes.

Packages are those that images have, as cyclonedx-py reads release/analytics.lock; what analytics alone need is optional. Jars are
those of retry/jars.lock: Spark's Kafka source is optional, and a broker for demonstrations and tests is excluded. What only tests
need is not in the list. Each has its package URL, by which scanners know it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson

_JAR = re.compile(r"(?P<name>.+?)-(?P<version>[0-9]+(?:\.[0-9A-Za-z]+)+(?:-[0-9A-Za-z.]+)?)\.jar")


def command(cyclonedx: Path) -> list[str | Path]:
    """What lists the packages; to be run in the tree."""
    return [
        cyclonedx.resolve(), "requirements", "--pyproject", "pyproject.toml", "--mc-type", "application", "--spec-version", "1.6",
        "--output-reproducible", "--output-format", "JSON", "release/analytics.lock",
    ]  # fmt: skip


def whole(packages: bytes, retry_lock: str, jars_lock: str) -> bytes:
    """The list of all components, each with its scope: required, optional or excluded.

    Raises:
      ValueError: a jar's name has no version.
    """
    told: dict[str, Any] = orjson.loads(packages)
    needed = set(re.findall(r"^([\w.-]+)==", retry_lock, re.MULTILINE))
    for package in told["components"]:
        package["scope"] = "required" if package["name"] in needed else "optional"
    told["components"] += [_jar(line) for line in jars_lock.splitlines() if line]
    return orjson.dumps(told, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"


def _jar(line: str) -> dict[str, Any]:
    jars, sha256, file, group = line.split()
    parts = _JAR.fullmatch(file)
    if parts is None:
        raise ValueError(f"retry/jars.lock: {file} has no version")
    return {
        "type": "library", "bom-ref": f"{jars}/{file}", "group": group, "name": parts["name"], "version": parts["version"],
        "purl": f"pkg:maven/{group}/{parts['name']}@{parts['version']}",
        "scope": "optional" if jars == "spark" else "excluded",
        "hashes": [{"alg": "SHA-256", "content": sha256}], "properties": [{"name": "retry:jars", "value": jars}],
    }  # fmt: skip
