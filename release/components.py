"""The list of components of a release (SBOM, CycloneDX in JSON): every package and every jar, with version and hashes.

Packages are those that images have, as cyclonedx-py reads release/analytics.lock; what analytics alone need is optional. Jars are
those of retry/jars.lock: Spark's Kafka source is optional, and a broker for demonstrations and tests is excluded. What only tests
need is not in the list. Each has its package URL, by which scanners know it. What one image has says `image_components`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

_JAR = re.compile(r"(?P<name>.+?)-(?P<version>[0-9]+(?:\.[0-9A-Za-z]+)+(?:-[0-9A-Za-z.]+)?)\.jar")


class Pin(NamedTuple):
    """A jar of retry/jars.lock."""

    jars: str
    sha256: str
    file: str
    group: str


def command(cyclonedx: Path) -> list[str | Path]:
    """Return the command that lists the packages; to be run in the tree."""
    return [
        cyclonedx.resolve(), "requirements", "--pyproject", "pyproject.toml", "--mc-type", "application", "--spec-version", "1.6",
        "--output-reproducible", "--output-format", "JSON", "release/analytics.lock",
    ]  # fmt: skip


def build_list(packages: bytes, retry_lock: str, jars_lock: str) -> bytes:
    """The list of all components, each with its scope: required, optional or excluded.

    Raises:
      ValueError: a jar's name has no version.
    """
    told: dict[str, Any] = orjson.loads(packages)
    needed = set(re.findall(r"^([\w.-]+)==", retry_lock, re.MULTILINE))
    for package in told["components"]:
        package["scope"] = "required" if package["name"] in needed else "optional"
    told["components"] += map(_jar, pins(jars_lock))
    return encode_list(told)


def encode_list(told: dict[str, Any]) -> bytes:
    """A list as a file has it: of the same components the same bytes."""
    return orjson.dumps(told, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"


def pins(jars_lock: str) -> Iterator[Pin]:
    """The jars of retry/jars.lock."""
    return (Pin(*line.split()) for line in jars_lock.splitlines() if line)


def parse_jar_name(file: str) -> tuple[str, str] | None:
    """Name and version of a jar, as the name of its file has them."""
    parts = _JAR.fullmatch(file)
    return (parts["name"], parts["version"]) if parts else None


def jar(reference: str, group: str, name: str, version: str, sha256: str, classifier: str = "") -> dict[str, Any]:
    """A jar, by its coordinates in Maven's registry; without a package URL where the group is not known."""
    told = {"type": "library", "bom-ref": reference, "name": name, "hashes": [{"alg": "SHA-256", "content": sha256}]}
    if version:
        told["version"] = version
    if group:
        which = f"?classifier={classifier}" if classifier else ""
        told |= {"group": group, "purl": f"pkg:maven/{group}/{name}@{version}{which}"}
    return told


def _jar(pin: Pin) -> dict[str, Any]:
    found = parse_jar_name(pin.file)
    if found is None:
        raise ValueError(f"retry/jars.lock: {pin.file} has no version")
    return jar(f"{pin.jars}/{pin.file}", pin.group, *found, pin.sha256) | {
        "scope": "optional" if pin.jars == "spark" else "excluded",
        "properties": [{"name": "retry:jars", "value": pin.jars}],
    }
