"""The list of components of one image (SBOM, CycloneDX in JSON): what its files say that it has, not what it could have.

Packages of Debian are those of dpkg's own list; packages of Python those of /venv; jars all but those of Debian's packages, each
with its hash. Each has its package URL, by which scanners know it, but for a jar that does not say whose it is. Of the same files
it is the same bytes: sorted, and without a time.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

from release import components

OWN = "dead-letter-retry"
SOURCE = "retry:source"
_NOT_THERE = ("not-installed", "config-files")
_POM = re.compile(r"META-INF/maven/[^/]+/[^/]+/pom\.properties")


def build_list(root: Path, target: str, architecture: str, jars_lock: str) -> bytes:
    """The list of an image whose files lie below `root`."""
    told = dict(re.findall(r'^(\w+)="?([^"\n]*)', (root / "usr/lib/os-release").read_text(), re.MULTILINE))
    system = {"type": "operating-system", "bom-ref": told["ID"], "name": told["ID"], "version": told["VERSION_ID"]}
    packages = {each["name"]: each for each in python(root)}
    status = (root / "var/lib/dpkg/status").read_text()
    listed = [*debian(status, told["ID"], told["VERSION_CODENAME"]), *packages.values(), *jars(root, jars_lock)]
    return components.encode_list({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": {
            "type": "container", "bom-ref": f"{target}-{architecture}", "name": target, "version": packages[OWN]["version"],
            "properties": _properties(architecture=architecture),
        }},
        "components": [system, *sorted(listed, key=lambda each: str(each["bom-ref"]))],
    })  # fmt: skip


def debian(status: str, vendor: str, release: str) -> Iterator[dict[str, Any]]:
    """The packages of dpkg's list, `/var/lib/dpkg/status`; whoever knows weaknesses knows them by source package."""
    for paragraph in status.split("\n\n"):
        told = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, re.MULTILINE))
        if not told or told["Status"].split()[-1] in _NOT_THERE:
            continue
        name, version, architecture = told["Package"], told["Version"], told["Architecture"]
        source, _, source_version = told.get("Source", name).rstrip(")").partition(" (")
        url = f"pkg:deb/{vendor}/{_quote(name)}@{_quote(version)}?arch={architecture}&distro={release}"
        more = _properties(architecture=architecture, source=source, source_version=source_version or version)
        yield {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url, "properties": more}


def python(root: Path) -> Iterator[dict[str, Any]]:
    """The packages of the virtual environment; the service's own is not known to an index."""
    for each in distributions(path=[str(folder) for folder in root.glob("venv/lib/python3*/site-packages")]):
        name = re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower()
        url = f"pkg:pypi/{name}@{_quote(each.version)}"
        told = {"bom-ref": url, "name": name, "version": each.version}
        yield told | ({"type": "application"} if name == OWN else {"type": "library", "purl": url})


def jars(root: Path, jars_lock: str) -> Iterator[dict[str, Any]]:
    """The jars besides those of Debian's packages, which have all of /usr and nothing else."""
    pinned = {pin.sha256: pin for pin in components.pins(jars_lock)}
    for file in root.rglob("*.jar"):
        inside = file.relative_to(root)
        if inside.parts[0] != "usr" and file.is_file() and not file.is_symlink():
            yield _jar(file, f"/{inside}", pinned)


def _jar(file: Path, inside: str, pinned: Mapping[str, components.Pin]) -> dict[str, Any]:
    with file.open("rb") as opened:
        sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
    name, version = components.parse_jar_name(file.name) or (file.stem, "")
    if sha256 in pinned:
        told = components.jar(inside, pinned[sha256].group, name, version, sha256)
    elif coordinates := _read_maven_names(file):
        group, name, version, classifier = coordinates
        told = components.jar(inside, group, name, version, sha256, classifier)
    else:
        told = components.jar(inside, "", name, version, sha256)
    return told | {"evidence": {"occurrences": [{"location": inside}]}}


def _read_maven_names(file: Path) -> tuple[str, str, str, str] | None:
    """Group, name, version and classifier of a jar that Maven built; None where it says nothing, or only what it was made of."""
    with zipfile.ZipFile(file) as archive:
        poms = [archive.read(name).decode() for name in archive.namelist() if _POM.fullmatch(name)]
    for pom in poms:
        told = dict(re.findall(r"^(\w+) *= *(\S+)", pom, re.MULTILINE))
        group, name, version = (told.get(key, "") for key in ("groupId", "artifactId", "version"))
        begun, is_it, rest = file.stem.partition(f"{name}-{version}")
        if is_it and not begun and (not rest or rest.startswith("-")):
            return group, name, version, rest.removeprefix("-")
    return None


def _properties(**told: str) -> list[dict[str, str]]:
    return [{"name": f"retry:{name.replace('_', '-')}", "value": value} for name, value in sorted(told.items())]


def _quote(text: str) -> str:
    """Quote a text as a package URL writes it."""
    return quote(text, safe=":")
