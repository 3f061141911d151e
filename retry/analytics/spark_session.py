"""Starts a Spark session: the one of `spark-submit`, else a local one, with Kafka's source from the pinned jars if asked."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from retry.analytics.spark_kafka_options import SECRETS_PATTERN
from retry.errors import RetryError
from retry.jars import demand_java_of_spark, fetch_jars, locate_java, read_release
from retry.settings import find_cache_dir, is_submitted, set_spark_address

# Spark's classes as Java has them once they are loaded, in a file: with it a session starts in half the time.
#
# To read, check and link ten thousand classes takes longer than a report on few letters. Java can keep the result of that in a
# file (application class-data sharing), which `retry analytics prepare` makes. A session uses the file of its Java and its
# Spark where there is one. Java compares its own build and the jars with those that the file was made of, and the file with its
# checksum, and does without where one differs.

# Neither what Java cannot keep, nor a file that it does not take, is anything that an operator could mend.
_SILENT = "-Xlog:disable -Xlog:all=error:stderr"
# Java dies of a damaged file that it does not check; to check it takes a tenth of a second.
_USED = f"-Xshare:auto -XX:+VerifySharedSpaces {_SILENT}"


def find_archive() -> Path | None:
    """Find the file of the present Java and Spark, where one was made and can be read."""
    # A user without a home has no cache, and a file may be deleted meanwhile: a session starts all the same.
    with suppress(OSError, RuntimeError):
        # Its name ends with its size: of a file that was cut off Java would die.
        files = find_cache_dir().glob(f"{_build_archive_name()}-*.jsa")
        return next((file for file in files if file.stem.endswith(f"-{file.stat().st_size}")), None)
    return None


def build_java_options() -> str:
    file = find_archive()
    return "" if file is None else f'-XX:SharedArchiveFile="{file}" {_USED}'


def create_archive(run: Callable[[str], None]) -> Path:
    """Make the file; `run` starts Java with the options that it is given, loads what is to be kept, and waits for Java's end.
    Raises RetryError where Java has made none."""
    began = find_cache_dir() / f"{_build_archive_name()}.{os.getpid()}"
    try:
        find_cache_dir().mkdir(parents=True, exist_ok=True)
        run(f'-XX:ArchiveClassesAtExit="{began}" {_SILENT}')
        if not began.is_file():
            raise RetryError(
                f"Java wrote no classes to {began.parent}, and a session starts without, as before. "
                "Is this a Java of version 17 or later, and may it write there? XDG_CACHE_HOME names another folder"
            )
        return began.rename(find_cache_dir() / f"{_build_archive_name()}-{began.stat().st_size}.jsa")
    except OSError as error:
        raise RetryError(f"{began.parent} cannot be written: {error.strerror}; name another folder as XDG_CACHE_HOME") from None
    finally:
        with suppress(OSError):
            began.unlink()


def _build_archive_name() -> str:
    java, spark = Path(locate_java() or "java").resolve(), Path(pyspark.__file__).parent
    jars = sorted((jar.name, jar.stat().st_size) for jar in (spark / "jars").glob("*.jar"))
    about = (str(java), read_release(java), str(spark), pyspark.__version__, jars)
    return f"spark-classes-{hashlib.sha256(repr(about).encode()).hexdigest()[:16]}"


_LOGGING = Path(__file__).with_name("log4j2.properties")
# A report is over before the second compiler has earned its keep: without it the first answer comes a third sooner.
# What Spark generates fills the smaller code cache that goes with it, and then nothing more is compiled: hence the size.
# A collector that works beside the program costs more threads than it saves.
# There is room for all classes from the beginning: else each time there is not, all of the heap is collected.
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseParallelGC -XX:MetaspaceSize=256m"
# The outcomes of a day fit in memory many times over; more spills to disk.
_DRIVER_MEMORY = "1g"
_REASON_CHARS_MAX = 300
_LOOPBACK = "127.0.0.1"
# It writes an archive of its classes in the end: a minute on a quiet core.
_JAVA_ENDS_S = 900


@contextmanager
def open_session(
    name: str = "retry-report", *, memory: str = _DRIVER_MEMORY, quick: bool = True, kafka: bool = True, java: str | None = None
) -> Iterator[SparkSession]:
    """Open a session for the time of the block; its Java process ends with this one.

    Args:
      memory: of the local Java process, as `1g`; on a cluster `spark-submit` says.
      quick: whether to start soon rather than to be fast in the long run.
      kafka: whether Kafka is read. To look for its jars takes time, and they are fetched where they are missing.
      java: more options of the local Java process; None for those of `build_java_options`.

    Raises:
      JarsUnavailable, JavaUnavailable: see `retry.jars`.
      RetryError: Spark did not start.
    """
    builder = SparkSession.builder.appName(name)
    if is_submitted():
        spark = builder.config(map=_COMMON).getOrCreate()
    else:
        # Spark 4.0.0 makes a folder `artifacts` in the working directory of its Java process, and leaves it there.
        demand_java_of_spark()
        set_spark_address(_LOOPBACK)
        with chdir(_scratch().name), translate_failures("Spark did not start"):
            spark = builder.master("local[*]").config(map=_COMMON | _local(memory, quick, kafka, java)).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def end_java() -> None:
    """End the Java process of this process's sessions, which are over, and wait; raises RetryError where it failed."""
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    if gateway.proc.wait(_JAVA_ENDS_S):
        raise RetryError(f"Java ended with {gateway.proc.returncode}: is there a gigabyte of memory for it?")


@contextmanager
def translate_failures(failure: str) -> Iterator[None]:
    """Turn what Spark raises into a RetryError of one line that begins with `failure`."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise RetryError(f"{failure}: {_innermost_reason(error)}") from None


def _innermost_reason(error: Exception) -> str:
    """Cut down to one line: a stack trace tells an operator nothing, and may tell others too much."""
    inner = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while inner is not None and inner.getCause() is not None:
        inner = inner.getCause()
    text = str(inner.getMessage() or inner.getClass().getName()) if inner is not None else str(error)
    return text.partition("\n")[0][:_REASON_CHARS_MAX]


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Removed when this process ends, as late as the Java process, which a second session shares with the first."""
    return tempfile.TemporaryDirectory(prefix="retry-report-")


# What holds wherever the job runs. Plans and the event log may be read by people who may not read Kafka.
_COMMON: dict[str, Any] = {
    "spark.sql.session.timeZone": "UTC",
    # What is spread by lineage already need not be spread again to be joined by lineage and attempt.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.redaction.regex": SECRETS_PATTERN,
    "spark.sql.redaction.options.regex": SECRETS_PATTERN,
    "spark.sql.redaction.string.regex": SECRETS_PATTERN,
}


def _local(memory: str, quick: bool, kafka: bool, java: str | None) -> dict[str, Any]:
    more = build_java_options() if java is None else java
    options = (
        f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        # Nothing stays in the system's temporary folder.
        f'-Djava.io.tmpdir="{_scratch().name}"',
        "-XX:-UsePerfData",
        _QUICK_START if quick else "",
        more,
    )
    return {
        **({"spark.jars": ",".join(str(jar) for jar in fetch_jars("spark"))} if kafka else {}),
        "spark.driver.memory": memory,
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.driver.extraJavaOptions": " ".join(filter(None, options)),
        "spark.local.dir": _scratch().name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # One machine: the default of 200 would be 200 small tasks for each question.
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.catalogImplementation": "in-memory",
    }
