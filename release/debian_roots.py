"""Runs the first size of tests in roots of Debian's packages, one for each Debian. `make test-debian` runs it, as root.

    python -m release.debian_roots --to build/debian --suite trixie --suite sid

mmdebstrap makes a root with that Debian's Python and Java and nothing of this machine but what it trusts. What is committed is
cloned into it, and `make test` does there what the README promises of a fresh machine.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from release.image_store import ImagesRefused, run

ROOT = Path(__file__).parents[1]
PROGRAMS = ("git", "mmdebstrap", "unshare")
PROJECT = "root/project"
_PACKAGES = "ca-certificates,git,make,procps,python3,python3-venv"
# What this machine trusts and asks for names, as a company's proxy needs it; roots are thrown away.
_TRUSTED = ("etc/ssl/certs/ca-certificates.crt", "etc/resolv.conf", "etc/pip.conf")
_CERTIFICATES = "usr/local/share/ca-certificates"
# A mirror may be older than what a suite that changes daily says of its own age.
_OPTIONS = ("--quiet", "--variant=minbase", "--aptopt=Acquire::Check-Valid-Until false")
_MOUNTED = ("proc", "sys", "dev")


class Suite(NamedTuple):
    """A Debian, and the Java packages of it.

    Attributes:
      java: its newest; brokers run on it.
      spark_java: the one that `JAVA_HOME` names, which Spark runs on.
      spark_java_suite: another suite that has it, where this one does not.
    """

    name: str
    java: str
    spark_java: str
    spark_java_suite: str = ""


SUITES = {
    suite.name: suite
    for suite in (
        Suite("trixie", java="openjdk-21", spark_java="openjdk-21"),
        # Spark 4.0 does not begin on Java 25.
        Suite("sid", java="openjdk-25", spark_java="openjdk-21", spark_java_suite="trixie"),
    )
}


def main() -> None:
    """Run what `make test-debian` runs; ends with 1 where tests fail and with a sentence where no root can be made."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "debian", help="a folder for the roots")
    parser.add_argument("--suite", action="append", choices=SUITES, help="all where none is given")
    given = parser.parse_args()
    try:
        failed = [name for name in given.suite or SUITES if not run_tests(given.to.absolute(), SUITES[name])]
    except ImagesRefused as error:
        sys.exit(str(error))
    if failed:
        sys.exit(f"tests failed on {' and '.join(failed)}")


def run_tests(to: Path, suite: Suite) -> bool:
    """Run `make test` of what is committed in a root of a suite, which is made first where it is missing.

    Raises:
      ImagesRefused: a program is missing, or the root could not be made.
    """
    if lacking := [program for program in PROGRAMS if shutil.which(program) is None]:
        raise ImagesRefused(f"no {', '.join(lacking)}: apt-get install git mmdebstrap util-linux")
    root = to / suite.name
    if not (root / ".made").exists():
        _make_root(root, suite)
    # Caches of registries stay, the project and its environment do not.
    shutil.rmtree(root / PROJECT, ignore_errors=True)
    run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(root / PROJECT)])
    java_home = f"$(echo /usr/lib/jvm/java-{suite.spark_java.removeprefix('openjdk-')}-openjdk-*)"
    command = f"cd /{PROJECT} && HOME=/root LANG=C.UTF-8 JAVA_HOME={java_home} make test"
    print(f"{suite.name}: {_describe(root)}", flush=True)
    return subprocess.run(_enter(root, command), check=False).returncode == 0


def _make_root(root: Path, suite: Suite) -> None:
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    java = f"{suite.java}-jre-headless"
    run(["mmdebstrap", *_OPTIONS, f"--include={_PACKAGES},{java}", suite.name, str(root)])
    if Path("/", _CERTIFICATES).exists():
        # Java has a store of its own, which this writes, too.
        shutil.copytree(Path("/", _CERTIFICATES), root / _CERTIFICATES, dirs_exist_ok=True)
        run(_enter(root, "update-ca-certificates"))
    for trusted in _TRUSTED:
        if Path("/", trusted).exists():
            shutil.copy(Path("/", trusted), root / trusted)
    if suite.spark_java_suite:
        _install_from(root, suite, f"{suite.spark_java}-jre-headless")
    (root / ".made").touch()


def _install_from(root: Path, suite: Suite, package: str) -> None:
    """Install a package from another suite of the same mirror."""
    other = f"/etc/apt/sources.list.d/{suite.spark_java_suite}.list"
    listed = f"sed 's/ {suite.name} / {suite.spark_java_suite} /' /etc/apt/sources.list > {other}"
    install = f"DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends {package}"
    run(_enter(root, f"{listed} && apt-get -qq -o Acquire::Check-Valid-Until=false update && {install}"))


def _enter(root: Path, command: str) -> list[str]:
    """Prepare a command for a shell in a root, whose mounts end with it."""
    mounts = " && ".join(f"mount --rbind /{name} {root}/{name}" for name in _MOUNTED)
    inside = f'{mounts} && exec chroot {root} sh -c "$1"'
    return ["unshare", "--mount", "--propagation=private", "sh", "-c", inside, "sh", command]


def _describe(root: Path) -> str:
    lines: Iterable[str] = run(_enter(root, "python3 --version; java --version")).splitlines()[:2]
    return ", ".join(lines)


if __name__ == "__main__":
    main()
