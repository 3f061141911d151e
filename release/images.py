"""Builds the images of the Dockerfile without Docker, on a root of Debian's packages. `make images` runs it, as root.

    python -m release.images --to build/images --architecture amd64 --architecture arm64

mmdebstrap makes the root, whose packages Debian's key vouches for, and buildah runs the Dockerfile in a chroot. A foreign
processor is emulated by qemu. Each image becomes an archive (OCI), which `skopeo copy` takes, a list of what is in it (CycloneDX)
and a row of images.json, which names both.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from release import debian_support, image_components
from release.image_store import ImagesRefused, files, run, store

ROOT = Path(__file__).parents[1]
SUITE, PACKAGES = "bookworm", "python3,ca-certificates,usr-is-merged"
TARGETS = ("retry", "scheduler", "analytics")
PROGRAMS = ("buildah", "mmdebstrap")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_EMULATED = {"amd64": "qemu-x86_64", "arm64": "qemu-aarch64"}
# What has no wheel there; the Dockerfile says how it is built.
FROM_SOURCES = {"arm64": "faust-streaming"}
_LEFT_OUT = ("locale/*", "man/*", "info/*", "doc/*")
_BINFMT = Path("/proc/sys/fs/binfmt_misc")
# What this machine trusts, as the authority of a company's proxy: builds trust it, and images do not have it.
_TRUSTED = "/run/trust"
_TRUST = {
    Path("/etc/ssl/certs/ca-certificates.crt"): f"PIP_CERT={_TRUSTED}/ca-certificates.crt",
    Path("/etc/ssl/certs/java/cacerts"): f"JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore={_TRUSTED}/cacerts",
}


class Built(NamedTuple):
    """An image that was built.

    Attributes:
      name: in the store of `store`, as localhost/retry:arm64.
      unpacked: of its files, as `255 MB`.
      archive_bytes: of its archive, about what a node pulls.
      archive: the name of its file.
      components: the name of the file beside it that lists what is in the image.
    """

    target: str
    architecture: str
    name: str
    unpacked: str
    archive_bytes: int
    archive: str
    components: str


def main() -> None:
    """Build the images, as `make images` asks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "images", help="a folder for archives and layers")
    parser.add_argument("--architecture", action="append", choices=_EMULATED, help="this machine's own where none is given")
    parser.add_argument("--target", action="append", choices=TARGETS, help="all where none is given")
    given = parser.parse_args()
    try:
        built = build(given.to, given.architecture or [_own()], given.target or TARGETS)
    except ImagesRefused as error:
        sys.exit(str(error))
    listed = given.to / "images.json"
    known = json.loads(listed.read_text()) if listed.exists() else []
    # A row of before that names no list is of an image that must be built anew.
    rows = {each["name"]: each for each in (*known, *(each._asdict() for each in built)) if each.keys() == set(Built._fields)}
    listed.write_text(json.dumps(list(rows.values()), indent=1))
    for each in built:
        print(f"{each.name:<26} {each.unpacked:>8} of files, {each.archive_bytes / 1e6:.0f} MB to pull")


def build(to: Path, architectures: Sequence[str], targets: Sequence[str]) -> list[Built]:
    """Build images, one architecture after the other, each from the same Dockerfile.

    Raises:
      ImagesRefused: a program is missing, a processor cannot be emulated, or a build failed.
    """
    if lacking := [program for program in PROGRAMS if shutil.which(program) is None]:
        raise ImagesRefused(f"no {', '.join(lacking)}: apt-get install arch-test buildah mmdebstrap qemu-user-static runc")
    to.mkdir(parents=True, exist_ok=True)
    return [each for architecture in architectures for each in _build_targets(to, architecture, targets)]


def _build_targets(to: Path, architecture: str, targets: Sequence[str]) -> Iterator[Built]:
    if architecture != _own():
        _emulate(_EMULATED[architecture])
    base, builder = _roots(to, architecture)
    for target in targets:
        name = _name(target, architecture)
        given = {"BASE": base, "BUILDER": builder, "FROM_SOURCES": FROM_SOURCES.get(architecture, ":none:")}
        arguments = [f"--build-arg={argument}={value}" for argument, value in given.items()]
        _buildah_build(to, architecture, [*arguments, "--target", target, "--tag", name, str(ROOT)])
        archive = to / f"{target}-{architecture}.tar"
        archive.unlink(missing_ok=True)
        run(["buildah", *store(to), "push", "--quiet", name, f"oci-archive:{archive}:{target}"])
        (listed,) = json.loads(run(["buildah", *store(to), "images", "--json", name]))
        components = archive.with_suffix(".cdx.json")
        components.write_bytes(list_components(to, target, architecture))
        yield Built(target, architecture, name, listed["size"], archive.stat().st_size, archive.name, components.name)


def list_components(to: Path, target: str, architecture: str) -> bytes:
    """List what is in an image that was built (CycloneDX)."""
    with files(to, _name(target, architecture)) as root:
        return image_components.build_list(root, target, architecture, (ROOT / "retry" / "jars.lock").read_text())


def _name(target: str, architecture: str) -> str:
    return f"localhost/{target}:{architecture}"


def _roots(to: Path, architecture: str) -> tuple[str, str]:
    """Debian with Python, and the same with pip; the latter has Debian's lists of what is not supported, too, which are kept."""
    base, builder = (f"localhost/{SUITE}-{name}:{architecture}" for name in ("python", "pip"))
    packed = to / f"{SUITE}-{architecture}.tar"
    packed.unlink(missing_ok=True)
    excluded = [option for path in _LEFT_OUT for option in ("--dpkgopt", f"path-exclude=/usr/share/{path}")]
    options = ["--quiet", "--variant=minbase", f"--architectures={architecture}", f"--include={PACKAGES}"]
    # Without this a package with 50 MB of Perl would do what is done already.
    merged = "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"
    run(["mmdebstrap", *options, merged, *excluded, "--dpkgopt", "path-include=/usr/share/doc/*/copyright", SUITE, str(packed)])
    container = run(["buildah", *store(to), "from", "--arch", architecture, "scratch"]).strip()
    run(["buildah", *store(to), "add", "--quiet", container, str(packed), "/"])
    run(["buildah", *store(to), "config", "--arch", architecture, container])
    run(["buildah", *store(to), "commit", "--quiet", "--rm", container, base])
    packed.unlink()
    recipe = to / "pip.Dockerfile"
    recipe.write_text(
        f"FROM {base}\nRUN apt-get update && apt-get install --yes --no-install-recommends python3-pip \\\n"
        f" && cd /tmp && apt-get download {debian_support.PACKAGE} && dpkg -x {debian_support.PACKAGE}_*.deb /support\n"
    )
    _buildah_build(to, architecture, ["--tag", builder, "--file", str(recipe), str(to / "trust")])
    with files(to, builder) as root:
        debian_support.keep(root / "support", to)
    return base, builder


def _buildah_build(to: Path, architecture: str, arguments: list[str]) -> None:
    trust = to / "trust"
    trust.mkdir(exist_ok=True)
    options = ["--isolation", "chroot", "--layers", "--platform", f"linux/{architecture}", "--pull-never"]
    for source, argument in _TRUST.items():
        if source.exists():
            shutil.copy(source, trust)
            options += ["--build-arg", argument]
    run(["buildah", *store(to), "build", *options, "--volume", f"{trust.absolute()}:{_TRUSTED}:ro", *arguments])


def _own() -> str:
    return _MACHINES[os.uname().machine]


def _emulate(name: str) -> None:
    """Have the kernel run programs of a foreign processor by qemu, if it does not yet.

    Raises:
      ImagesRefused: qemu-user-static is missing, or this is not root's machine.
    """
    told = Path("/usr/lib/binfmt.d") / f"{name}.conf"
    if not told.exists():
        raise ImagesRefused(f"no {told}: apt-get install qemu-user-static")
    if not (_BINFMT / "register").exists():
        run(["mount", "-t", "binfmt_misc", "binfmt_misc", str(_BINFMT)])
    if not (_BINFMT / name).exists():
        (_BINFMT / "register").write_bytes(told.read_bytes().strip())


if __name__ == "__main__":
    main()
