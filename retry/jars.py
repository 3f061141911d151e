"""Java and jars of the local broker and of Spark: one is found, the others are fetched once, checked by hash, kept in a cache.

Resolved by Ivy, whose jar PySpark brings along, so that Java and Python are all that a machine needs.
`retry/jars.lock` pins every file: `<set> <sha256> <file name> <group in Maven>` a line.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from retry.distribution import describe_extra
from retry.errors import JarsUnavailable, JavaUnavailable, RetryError
from retry.settings import cache_dir, java_home

# The Java that the local broker, Ivy and Spark run on: found, or else one sentence that says which to install.

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

    Raises JavaUnavailable where there is none, or it is older than 17.
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
    """Look whether Spark can run on the Java that there is; raises JavaUnavailable where it cannot."""
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


_ROOTS = {
    "broker": ("org.apache.kafka", "kafka_2.13", "4.1.0"),
    "broker-log": ("org.slf4j", "slf4j-simple", "1.7.36"),
    "spark": ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.0.0"),
}
_LOCK = Path(__file__).with_name("jars.lock")
_TRIES = 3


def jars(name: str) -> list[Path]:
    """The jars of `name`, a key of `_ROOTS`; fetched and checked first where they are not in the cache yet.

    Raises:
      JarsUnavailable: PySpark is missing, the registry did not answer, a file is not the pinned one, or Kafka's source is of
        another Spark than PySpark.
      JavaUnavailable: see `retry.jars`.
    """
    if name == "spark" and importlib.util.find_spec("pyspark"):
        demand_same_spark(version("pyspark"))
    pinned = _pins(name)
    folder = cache_dir() / f"{name}-{_ROOTS[name][2]}"
    if not folder.is_dir():
        _fetch(name, folder)
    wrong = sorted(f for f, sha in pinned.items() if not (folder / f).is_file() or _sha256(folder / f) != sha)
    if wrong:
        shutil.rmtree(folder)
        raise JarsUnavailable(f"not the pinned files: {', '.join(wrong[:5])}; the cache {folder} was emptied, try again")
    return [folder / f for f in sorted(pinned)]


def demand_same_spark(installed: str) -> None:
    """Look whether the pinned source of Kafka is made for a version of PySpark; raises JarsUnavailable where it is not."""
    pinned = _ROOTS["spark"][2]
    if installed.split(".")[:2] != pinned.split(".")[:2]:
        raise JarsUnavailable(
            f"PySpark is {installed}, and the pinned source that reads Kafka is of Spark {pinned}: pip install "
            f"'pyspark=={pinned}', or read Kafka by spark-submit with --packages as docs/how-to/analytics.md shows; "
            "a folder is read with --data"
        )


def _pins(name: str) -> dict[str, str]:
    rows = (line.split() for line in _LOCK.read_text().splitlines() if line)
    return {file: sha for group, sha, file, _ in rows if group == name}


def _fetch(name: str, folder: Path) -> None:
    """Fetch into a folder of its own and rename it at the end: a cache that exists is a cache that is whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        target = Path(scratch) / "jars"
        for _ in range(_TRIES):
            done = subprocess.run(_ivy(name, target), capture_output=True, text=True, check=False)  # noqa: S603
            if done.returncode == 0 and target.is_dir():
                break
        else:
            raise JarsUnavailable(f"could not fetch {':'.join(_ROOTS[name])}: {done.stdout[-2000:]}{done.stderr[-500:]}")
        if not folder.is_dir():
            target.rename(folder)


def _ivy(name: str, target: Path) -> list[str]:
    java, spark = find_java(), importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise JarsUnavailable(f"PySpark is not installed; {describe_extra('analytics')}")
    ivy = next((Path(spark.origin).parent / "jars").glob("ivy-*.jar"))
    kinds = ["-types", "jar", "bundle", "-confs", "default"]
    cache = ["-cache", str(cache_dir() / "ivy")]
    return [java, "-jar", str(ivy), "-dependency", *_ROOTS[name], *kinds, *cache,
            "-retrieve", f"{target}/[artifact]-[revision].[ext]"]  # fmt: skip


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    try:
        for root in _ROOTS:
            jars(root)
    except RetryError as error:
        sys.exit(str(error))
