"""Java and jars of the local broker and of Spark: one is found, the others are fetched once, checked by hash, kept in a cache.

Resolved by Ivy, whose jar PySpark brings along, so that Java and Python are all that a machine needs.
`retry/jars.lock` pins every file: `<set> <sha256> <file name> <group in Maven>` a line. Spark's source for Kafka must be of
the same version as Spark. Of another one than is pinned, hashes are noted when it is fetched, in lines like these, and hold
from then on.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from retry.distribution import describe_extra
from retry.errors import JarsUnavailable, JavaUnavailable, RetryError
from retry.settings import find_cache_dir, find_java_home

log = logging.getLogger(__name__)

# The Java that the local broker, Ivy and Spark run on: found, or else one sentence that says which to install.

OLDEST = 17
# From Java 23 on a call fails that Hadoop in Spark 4.0 makes as it starts (Subject.getSubject).
NEWEST_OF_SPARK = 22
_RELEASE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_ANSWER = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWERS_S = 30


def locate_java() -> str | None:
    """Find the program `java`, whatever its version: that of JAVA_HOME where set, else the one on the PATH; None without one."""
    home = find_java_home()
    return shutil.which("java", path=f"{home}/bin" if home else None)


def read_release(java: Path) -> str:
    """Read the text of a Java's `release` file, which names its version; empty where it has none."""
    release = java.resolve().parent.parent / "release"
    return release.read_text(errors="replace") if release.is_file() else ""


def find_java() -> str:
    """Find the program `java`: that of JAVA_HOME where it is set, else the one on the PATH.

    Raises JavaUnavailable where there is none, or it is older than 17.
    """
    java = locate_java()
    if java is None:
        home = find_java_home()
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


def fetch_jars(name: str) -> list[Path]:
    """Return the jars of `name`, a key of `_ROOTS`; fetch and check them first where they are not in the cache yet.

    Raises:
      JarsUnavailable: PySpark is missing, the registry did not answer or has no such version, or a file is not the pinned one.
      JavaUnavailable: see `retry.jars`.
    """
    root = choose_root(name, version("pyspark") if name == "spark" and importlib.util.find_spec("pyspark") else "")
    folder = find_cache_dir() / f"{name}-{root[2]}"
    if not folder.is_dir():
        _fetch(name, root, folder)
    pinned = _read_hashes(_LOCK if root == _ROOTS[name] else folder / _LOCK.name, name)
    wrong = sorted(f for f, sha in pinned.items() if not (folder / f).is_file() or _sha256(folder / f) != sha)
    if wrong or not pinned:
        shutil.rmtree(folder)
        raise JarsUnavailable(f"not the pinned files: {', '.join(wrong[:5])}; the cache {folder} was emptied, try again")
    return [folder / f for f in sorted(pinned)]


def choose_root(name: str, spark: str) -> tuple[str, str, str]:
    """Group, artifact and version of which the jars of `name` are resolved; Kafka's source is of the Spark that is installed."""
    group, artifact, pinned = _ROOTS[name]
    if name != "spark" or not spark or spark.split(".")[:2] == pinned.split(".")[:2]:
        return _ROOTS[name]
    return group, artifact, spark


def _read_hashes(lock: Path, name: str) -> dict[str, str]:
    rows = (line.split() for line in lock.read_text().splitlines() if line) if lock.is_file() else ()
    return {file: sha for group, sha, file, _ in rows if group == name}


def _fetch(name: str, root: tuple[str, str, str], folder: Path) -> None:
    """Fetch into a folder of its own and rename it at the end: a cache that exists is a cache that is whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        target = Path(scratch) / "jars"
        for _ in range(_TRIES):
            done = subprocess.run(_ivy(root, target), capture_output=True, text=True, check=False)  # noqa: S603
            if done.returncode == 0 and target.is_dir():
                break
        else:
            tried = _ROOTS[name][2]
            instead = "" if root == _ROOTS[name] else f"; what is tried is Spark {tried}: pip install 'pyspark=={tried}'"
            raise JarsUnavailable(f"could not fetch {':'.join(root)}{instead}: {done.stdout[-2000:]}{done.stderr[-500:]}")
        if root != _ROOTS[name]:
            _note_hashes(name, target)
            log.warning(
                "PySpark is %s, which is not tried; its source for Kafka was fetched, and no hashes are known to hold it "
                "against; what is tried is Spark %s", root[2], _ROOTS[name][2],
            )  # fmt: skip
        if not folder.is_dir():
            target.rename(folder)


def _note_hashes(name: str, folder: Path) -> None:
    files = sorted(file for file in folder.iterdir() if file.suffix == ".jar")
    (folder / _LOCK.name).write_text("".join(f"{name} {_sha256(file)} {file.name} -\n" for file in files))


def _ivy(root: tuple[str, str, str], target: Path) -> list[str]:
    java, spark = find_java(), importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise JarsUnavailable(f"PySpark is not installed; {describe_extra('analytics')}")
    ivy = next((Path(spark.origin).parent / "jars").glob("ivy-*.jar"))
    kinds = ["-types", "jar", "bundle", "-confs", "default"]
    cache = ["-cache", str(find_cache_dir() / "ivy")]
    return [java, "-jar", str(ivy), "-dependency", *root, *kinds, *cache,
            "-retrieve", f"{target}/[artifact]-[revision].[ext]"]  # fmt: skip


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    try:
        for root in _ROOTS:
            fetch_jars(root)
    except RetryError as error:
        sys.exit(str(error))
