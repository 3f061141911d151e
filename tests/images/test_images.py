"""Images of `make images` run as pods run them: a read-only root, one volume, nobody special; and have what they need alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from release.debian_support import list_unsupported, read_kept_lists
from release.images import Built, list_components
from tests.conftest import Deploy
from tests.support.afterwards import nothing_is_wrong
from tests.support.component_lists import flaws
from tests.support.container import IMAGES, PROCESS_FILE, image_config, remove_containers
from tests.support.load import Load
from tests.support.process import ROOT, await_that
from tests.support.tools import missing

pytestmark = pytest.mark.release

USER = 10_001
NATIVE = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
ARCHITECTURES = pytest.mark.parametrize("architecture", ["amd64", "arm64"])
# Another processor is emulated, and several times slower.
READY_S = 1_200.0
PAGE = ROOT / "docs" / "how-to" / "images.md"
# What a page says of a size holds for as long as packages of Debian grow by no more than this.
GROWTH = 1.15
IMPORT_ALL = """
import importlib, pkgutil, platform, re, retry
names = [each.name for each in pkgutil.walk_packages(retry.__path__, "retry.")]
names = [name for name in names if not re.search(r"analytics|testing|__main__", name)]
for name in names: importlib.import_module(name)
print(platform.machine(), len(names))
"""
DEBIAN = ("dpkg-query", "--show", "--showformat", "${Package} ${Version} ${Architecture} ${source:Package} ${source:Version}\n")
# What importlib finds, and jars that no package of Debian brings.
PACKAGES = """
import importlib.metadata, re
for each in importlib.metadata.distributions(): print(re.sub("[-_.]+", "-", each.metadata["Name"]).lower(), each.version)
"""
JARS = """
import hashlib, os, pathlib
owned = {line for each in pathlib.Path("/var/lib/dpkg/info").glob("*.list") for line in each.read_text().splitlines()}
for folder, folders, names in os.walk("/"):
    if folder == "/": folders[:] = set(folders) - {"proc", "dev", "sys", "data"}
    for file in (os.path.join(folder, name) for name in names if name.endswith(".jar")):
        if file not in owned and not os.path.islink(file):
            print(file, hashlib.sha256(pathlib.Path(file).read_bytes()).hexdigest())
"""


def read_built_images() -> list[Built]:
    """The images that are there."""
    listed = IMAGES / "images.json"
    if not listed.exists():
        missing("no images; `make images` builds them where buildah and mmdebstrap are")
    return [Built(**each) for each in json.loads(listed.read_text())]


def image(target: str, architecture: str = NATIVE) -> str:
    found = [each.name for each in read_built_images() if (each.target, each.architecture) == (target, architecture)]
    return found[0] if found else missing(f"no image {target} for {architecture}; `make images` builds it")


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """The one volume of containers, none of which outlives the test."""
    yield tmp_path / "volume"
    for file in tmp_path.rglob(f"*.{PROCESS_FILE}"):
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text()), 9)
    remove_containers()


def run(name: str, volume: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A command in an image, to its end."""
    command = [sys.executable, "-m", "tests.support.container", name, str(volume), *arguments]
    environ = {**os.environ, **environ}
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=READY_S, check=False)


def python(name: str, volume: Path, program: str, *before: str) -> subprocess.CompletedProcess[str]:
    return run(name, volume, "--entrypoint", "python3", "-c", program, *before)


@ARCHITECTURES
def test_a_worker_of_the_image_brings_letters_back_and_writes_to_its_volume_alone(
    deploy: Deploy, volume: Path, architecture: str
) -> None:
    deployment, name = deploy({"orders": 3}), image("retry", architecture)
    made = run(name, volume, "topics", "check", **deployment.environ)
    assert made.returncode == 0, made.stderr
    worker = deployment.worker("a")
    worker.start("-m", "tests.support.container", name, str(worker.data_dir)).await_ready(READY_S)
    process = int(worker.data_dir.with_suffix(f".{PROCESS_FILE}").read_text())
    with Load(deployment, letters_per_s=100, delay_ms=5_000) as load:
        await_that("letters come back", lambda: worker.metric("retry_entries_sent_total") >= 300)
    status = Path(f"/proc/{process}/status").read_text()
    assert re.search(r"^Uid:\t(\d+)\t(\d+)", status, re.MULTILINE).groups() == (str(USER), str(USER))  # type: ignore[union-attr]
    assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE) and "NoNewPrivs:\t1" in status
    roots = [line.split() for line in Path(f"/proc/{process}/mountinfo").read_text().splitlines()]
    writable = {mount[4] for mount in roots if mount[5].startswith("rw")} - {"/dev"}
    assert {where for where in writable if not where.startswith("/proc")} == {"/data"}
    nothing_is_wrong(deployment, load.sender)


@ARCHITECTURES
def test_analytics_of_the_image_report_on_every_letter_from_a_read_only_root(
    deploy: Deploy, volume: Path, architecture: str
) -> None:
    deployment = deploy({"orders": 3})
    worker = deployment.worker("a").start().await_ready()
    with Load(deployment, letters_per_s=20, delay_ms=1_000) as load:
        await_that("letters come back", lambda: worker.metric("retry_entries_sent_total") >= 100)
    sent = load.sender.finish()
    await_that("all have come back", lambda: worker.metric("retry_entries_sent_total") == len(sent))
    done = run(image("analytics", architecture), volume, "analytics", "report", "--json", **deployment.environ)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["totals"]["letters"] == len(sent)
    # Spark removes what it writes.
    assert list(volume.iterdir()) == []


def test_nothing_else_can_be_written_and_temporary_files_lie_in_the_volume(volume: Path) -> None:
    program = """
import errno, pathlib, tempfile
for place in ("/x", "/tmp/x", "/venv/x", "/var/x"):
    try: pathlib.Path(place).write_text("x")
    except OSError as error: assert error.errno in (errno.EROFS, errno.EACCES), error
    else: raise AssertionError(place)
print(tempfile.NamedTemporaryFile(delete=False).name)
"""
    done = python(image("retry"), volume, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("/data/tmp")
    assert [file.stat().st_uid for file in volume.iterdir()] == [USER]


@ARCHITECTURES
def test_an_image_of_either_architecture_has_what_it_needs_and_no_more(volume: Path, tmp_path: Path, architecture: str) -> None:
    name = image("retry", architecture)
    machine = {"amd64": "x86_64", "arm64": "aarch64"}[architecture]
    imported = python(name, volume, IMPORT_ALL)
    assert imported.returncode == 0, imported.stderr
    assert imported.stdout.split()[0] == machine and int(imported.stdout.split()[1]) > 100
    listed = python(name, volume, "import importlib.metadata as m; print(*{each.metadata['Name'] for each in m.distributions()})")
    locked = set(re.findall(r"^([\w.-]+)==", (ROOT / "release" / "retry.lock").read_text(), re.MULTILINE))
    has = {each.lower().replace("_", "-").replace(".", "-") for each in listed.stdout.split()}
    # What is for other systems alone is locked and not installed.
    assert "dead-letter-retry" in has and has - {"dead-letter-retry"} <= locked and len(locked - has) < 6, locked - has
    version = run(name, volume, "--version")
    assert (version.returncode, version.stderr) == (0, "")
    policies = tmp_path / "policies.yaml"
    policies.write_text((ROOT / "examples" / "policies.yaml").read_text())
    checked = run(name, volume, "policies", "check", str(policies), RETRY_POLICIES=str(policies))
    assert checked.returncode == 0, checked.stderr


def test_the_list_beside_an_image_has_all_that_is_in_it_and_nothing_else(volume: Path) -> None:
    for each in read_built_images():
        file = IMAGES / each.components
        assert flaws(file) == "" and (IMAGES / each.archive).exists()
        assert list_components(IMAGES, each.target, each.architecture) == file.read_bytes(), f"{file.name} is of another image"
        listed = json.loads(file.read_text())["components"]
        of_debian = [one for one in listed if one.get("purl", "").startswith("pkg:deb/debian/")]
        assert all(one["purl"].endswith("&distro=bookworm") for one in of_debian)
        told = [" ".join((one["name"], one["version"], *(more["value"] for more in one["properties"]))) for one in of_debian]
        assert_has(run(each.name, volume, "--entrypoint", *DEBIAN), told, each)
        of_python = [f"{one['name']} {one['version']}" for one in listed if one["bom-ref"].startswith("pkg:pypi/")]
        assert_has(python(each.name, volume, PACKAGES), of_python, each)
        jars = [f"{one['bom-ref']} {one['hashes'][0]['content']}" for one in listed if one["bom-ref"].endswith(".jar")]
        assert_has(python(each.name, volume, JARS), jars, each)
        assert len(listed) == 1 + len(of_debian) + len(of_python) + len(jars)
        assert min(len(of_debian), len(of_python)) > 50 and (len(jars) > 200) == (each.target == "analytics")


def assert_has(printed: subprocess.CompletedProcess[str], told: list[str], of: Built) -> None:
    assert printed.returncode == 0, printed.stderr
    assert sorted(printed.stdout.splitlines()) == sorted(told), of.name


def test_debian_mends_every_package_of_the_images_for_every_use() -> None:
    for each in read_built_images():
        system, *listed = json.loads((IMAGES / each.components).read_text())["components"]
        assert list_unsupported(listed, *read_kept_lists(IMAGES, system["version"])) == [], each.name


def test_images_say_who_they_are_and_pages_how_large() -> None:
    page, images = PAGE.read_text(), read_built_images()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\d.]+ [MG]B) \| (\d+) MB \|", page, re.MULTILINE)
    told = {(target, architecture): (_megabytes(unpacked), float(pulled)) for target, architecture, unpacked, pulled in rows}
    for each in images:
        config = image_config(each.name)
        volumes = {"/data", "/tmp"} if each.target == "analytics" else {"/data"}
        assert (config["User"], config["Volumes"].keys(), config["Entrypoint"][0]) == (f"{USER}:{USER}", volumes, "retry")
        assert config["Labels"]["org.opencontainers.image.base.name"] == f"localhost/bookworm-python:{each.architecture}"
        measured = _megabytes(each.unpacked), each.archive_bytes / 1e6
        for is_now, said in zip(measured, told[each.target, each.architecture], strict=True):
            assert said / GROWTH < is_now < said * GROWTH, f"{each.name}: {measured}; {PAGE.name} says {told}"


def _megabytes(size: str) -> float:
    number, unit = size.split()
    return float(number) * {"MB": 1, "GB": 1_000}[unit]
