"""The Java that the local broker, Ivy and Spark run on: found, or else one sentence that says which to install."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from retry.errors import JavaUnavailable
from retry.settings import java_home

OLDEST = 17
# From Java 23 on a call fails that Hadoop in Spark 4.0 makes as it starts (Subject.getSubject).
NEWEST_OF_SPARK = 22
_RELEASE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_ANSWER = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWERS_S = 30


def locate_java() -> str | None:
    """The program `java`, whatever its version: that of JAVA_HOME where it is set, else the one on the PATH; None without one."""
    home = java_home()
    return shutil.which("java", path=f"{home}/bin" if home else None)


def read_release(java: Path) -> str:
    """The text of a Java's `release` file, which names its version; empty where it has none."""
    release = java.resolve().parent.parent / "release"
    return release.read_text(errors="replace") if release.is_file() else ""


def find_java() -> str:
    """The program `java`: that of JAVA_HOME where it is set, else the one on the PATH.

    Raises:
      JavaUnavailable: there is none, or it is older than 17.
    """
    java = locate_java()
    if java is None:
        home = java_home()
        where = f"no bin/java in {home}, which JAVA_HOME names" if home else "no `java` on the PATH, and JAVA_HOME is not set"
        raise JavaUnavailable(f"{where}; install Java 17 or 21, such as the package openjdk-17-jre-headless")
    if (version := _version(java)) < OLDEST:
        raise JavaUnavailable(f"{java} is Java {version}; install Java 17 or 21, and let JAVA_HOME name its directory")
    return java


def demand_java_of_spark() -> None:
    """Look whether Spark can run on the Java that there is.

    Raises:
      JavaUnavailable: it cannot.
    """
    java = find_java()
    if (version := _version(java)) > NEWEST_OF_SPARK:
        raise JavaUnavailable(f"{java} is Java {version}, on which Spark 4.0 fails; let JAVA_HOME name a Java 17 or 21")


def _version(java: str) -> int:
    if found := _RELEASE.search(read_release(Path(java))):
        return int(found[1])
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=_ANSWERS_S)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaUnavailable(f"{java} does not run: {error}; install Java 17 or 21") from None
    if found := _ANSWER.search(done.stderr + done.stdout):
        return int(found[1])
    raise JavaUnavailable(f"{java} does not say which version it is; install Java 17 or 21")
