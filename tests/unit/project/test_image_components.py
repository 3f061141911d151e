"""The list of components of an image has what its files say that it has: packages of Debian and of Python, and jars."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from release.debian_support import list_unsupported
from release.image_components import build_list, debian
from tests.support.chart import ROOT

# As a machine with Debian 12 has it.
STATUS = (ROOT / "tests" / "fixtures" / "dpkg_status.txt").read_text()
INSTALLED = "Status: install ok installed"
SYSTEM = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nID=debian\n'
SITE, CACHE = "venv/lib/python3.11/site-packages", "opt/cache/dead-letter-retry/spark-4.0.0"
URLS = [
    "pkg:deb/debian/bc@1.07.1-3%2Bb1?arch=amd64&distro=bookworm",
    "pkg:deb/debian/ca-certificates-java@20230710~deb12u1?arch=all&distro=bookworm",
    "pkg:deb/debian/ca-certificates@20230311%2Bdeb12u1?arch=all&distro=bookworm",
    "pkg:deb/debian/libdevmapper1.02.1@2:1.02.185-2?arch=amd64&distro=bookworm",
    "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14%2Bdeb12u1?arch=amd64&distro=bookworm",
]


def put_file(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def put_jar(root: Path, name: str, *poms: str) -> str:
    """A jar that was built of these, each group:name:version; its hash."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(root / name, "w") as archive:
        archive.writestr(zipfile.ZipInfo("of"), name)
        for group, artifact, version in (pom.split(":") for pom in poms):
            text = f"#Generated\ngroupId={group}\nartifactId={artifact}\nversion={version}\n"
            archive.writestr(zipfile.ZipInfo(f"META-INF/maven/{group}/{artifact}/pom.properties"), text)
    return hashlib.sha256((root / name).read_bytes()).hexdigest()


def make_list(root: Path) -> bytes:
    """The list of a small image whose files are put below `root`."""
    put_file(root, "usr/lib/os-release", SYSTEM)
    put_file(root, "var/lib/dpkg/status", STATUS)
    for name, version in (("dead-letter-retry", "0.1.0"), ("ruamel.yaml", "0.18.6"), ("Typing_Extensions", "4.15.0")):
        put_file(
            root, f"{SITE}/{name}-{version}.dist-info/METADATA", f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\n"
        )
    sha256 = put_jar(root, f"{CACHE}/lz4-java-1.8.0.jar")
    put_jar(root, f"{SITE}/pyspark/jars/guava-33.4.0-jre.jar", "com.google.guava:guava:33.4.0-jre")
    put_jar(root, f"{SITE}/pyspark/jars/orc-core-2.1.2-shaded.jar", "x:y:1", "org.apache.orc:orc-core:2.1.2")
    put_jar(root, f"{SITE}/pyspark/jars/shaded-3.4.1.jar", "com.google.guava:guava:32.0.1-jre")
    put_jar(root, "venv/share/py4j/py4j0.10.9.9.jar")
    put_jar(root, "usr/lib/jvm/java-17/lib/jrt-fs.jar")
    (root / "opt/link-1.0.jar").symlink_to(root / f"{CACHE}/lz4-java-1.8.0.jar")
    return build_list(root, "analytics", "amd64", f"broker {'0' * 64} a-1.0.jar a\nspark {sha256} lz4-java-1.8.0.jar org.lz4\n")


def test_packages_of_debian_are_those_that_are_there() -> None:
    left = STATUS.replace(INSTALLED, "Status: deinstall ok config-files").replace("Package: ", "Package: former-")
    listed = list(debian(STATUS + left, "debian", "bookworm"))
    assert sorted(each["purl"] for each in listed) == URLS
    properties = {each["name"]: {told["name"]: told["value"] for told in each["properties"]} for each in listed}
    assert properties["libdevmapper1.02.1"] == {
        "retry:architecture": "amd64", "retry:source": "lvm2", "retry:source-version": "2.03.16-2",
    }  # fmt: skip
    assert properties["ca-certificates"]["retry:source-version"] == "20230311+deb12u1"
    assert {each["retry:source"] for each in properties.values()} == {
        "bc", "ca-certificates", "ca-certificates-java", "gcc-12", "lvm2",
    }  # fmt: skip


@pytest.mark.parametrize("state", ["unpacked", "half-configured", "triggers-pending"])
def test_what_is_there_and_not_set_up_is_there(state: str) -> None:
    assert len(list(debian(STATUS.replace(INSTALLED, f"Status: install ok {state}"), "debian", "bookworm"))) == len(URLS)


def test_an_image_has_what_its_files_say_and_nothing_else(tmp_path: Path) -> None:
    told = json.loads(make_list(tmp_path))
    about = told["metadata"]["component"]
    assert (about["type"], about["name"], about["version"]) == ("container", "analytics", "0.1.0")
    listed: dict[str, dict[str, Any]] = {each["bom-ref"]: each for each in told["components"]}
    assert listed.pop("debian")["version"] == "12"
    own = listed.pop("pkg:pypi/dead-letter-retry@0.1.0")
    assert (own["type"], "purl" in own) == ("application", False)
    jars = {name: listed.pop(name) for name in list(listed) if name.endswith(".jar")}
    assert {each["purl"] for each in listed.values()} == {
        *URLS, "pkg:pypi/ruamel-yaml@0.18.6", "pkg:pypi/typing-extensions@4.15.0",
    }  # fmt: skip
    assert {name.rpartition("/")[2]: each.get("purl") for name, each in jars.items()} == {
        "lz4-java-1.8.0.jar": "pkg:maven/org.lz4/lz4-java@1.8.0",
        "guava-33.4.0-jre.jar": "pkg:maven/com.google.guava/guava@33.4.0-jre",
        "orc-core-2.1.2-shaded.jar": "pkg:maven/org.apache.orc/orc-core@2.1.2?classifier=shaded",
        "shaded-3.4.1.jar": None,
        "py4j0.10.9.9.jar": None,
    }
    for name, each in jars.items():
        assert each["hashes"][0]["content"] == hashlib.sha256((tmp_path / name[1:]).read_bytes()).hexdigest()
        assert each["evidence"]["occurrences"] == [{"location": name}]
    assert jars[f"/{SITE}/pyspark/jars/shaded-3.4.1.jar"]["version"] == "3.4.1"


def test_of_the_same_files_it_is_the_same_bytes_and_has_no_time(tmp_path: Path) -> None:
    for name in ("venv/share/py4j/py4j0.10.9.9.jar", f"{SITE}/zzz"):
        put_file(tmp_path / "other place", name, "")
    listed = make_list(tmp_path / "one")
    assert listed == make_list(tmp_path / "other place")
    assert str(tmp_path).encode() not in listed and not re.search(rb"timestamp|serialNumber", listed)


# Lines of debian-security-support 12+2026.06.30.
ENDED = """
# 1. source package name
php-horde.*	0			2025-03-22	https://lists.debian.org/debian-lts/2025/03/msg00012.html; incompatible with PHP8
mbedtls         2.16.9-0.1+deb11u4      2026-06-12      Crypto library difficult to support in the long term
"""
LIMITED = """
# 2. Descriptive text or URL with more details (optional)

binutils        Only suitable for trusted content
golang.*        See the release notes
cython
"""


@pytest.mark.parametrize(("source", "said"), [
    ("mbedtls", ["mbedtls: support ends 2026-06-12: Crypto library difficult to support in the long term"]),
    ("golang-1.19", ["golang-1.19: support is limited: See the release notes"]),
    ("cython", ["cython: support is limited: "]),
    ("mbedtls2", []),
    ("libbinutils", []),
])  # fmt: skip
def test_what_debian_does_not_mend_is_told_by_its_source_package(source: str, said: list[str]) -> None:
    listed = debian(STATUS.replace("Source: gcc-12", f"Source: {source}"), "debian", "bookworm")
    assert list_unsupported([{"name": "without properties"}, *listed], ENDED, LIMITED) == said
