"""Starts a Spark session: the one of `spark-submit`, else a local one, with Kafka's source from the pinned jars if asked."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from retry.analytics import class_archive
from retry.analytics.spark_kafka_options import SECRETS_PATTERN
from retry.errors import RetryError
from retry.jars import jars
from retry.java import demand_java_of_spark
from retry.settings import is_submitted

_LOGGING = Path(__file__).with_name("log4j2.properties")
# A report is over before the second compiler has earned its keep: without it the first answer comes a third sooner.
# What Spark generates fills the smaller code cache that goes with it, and then nothing more is compiled: hence the size.
# A collector that works beside the program costs more threads than it saves.
_QUICK_START = " ".join((
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:+UseParallelGC",
    # There is room for all classes from the beginning: else each time there is not, all of the heap is collected.
    "-XX:MetaspaceSize=256m",
))
# The outcomes of a day fit in memory many times over; more spills to disk.
_DRIVER_MEMORY = "1g"
_REASON_CHARS_MAX = 300
_JAVA_ENDS_S = 300


@contextmanager
def session(
    name: str = "retry-report", *, memory: str = _DRIVER_MEMORY, quick: bool = True, kafka: bool = True, java: str | None = None
) -> Iterator[SparkSession]:
    """A session for the time of the block; its Java process ends with this one.

    Args:
      memory: of the local Java process, as `1g`; on a cluster `spark-submit` says.
      quick: whether to start soon rather than to be fast in the long run.
      kafka: whether Kafka is read. To look for its jars takes time, and they are fetched where they are missing.
      java: more options of the local Java process; None for those of `retry.analytics.class_archive`.

    Raises:
      JarsUnavailable: see `retry.jars`.
      JavaUnavailable: see `retry.java`.
      RetryError: Spark did not start.
    """
    builder = SparkSession.builder.appName(name)
    if is_submitted():
        spark = _configure_session(builder, _COMMON).getOrCreate()
    else:
        # Spark 4.0.0 makes a folder `artifacts` in the working directory of its Java process, and leaves it there.
        demand_java_of_spark()
        with chdir(_scratch().name), failing_as("Spark did not start"):
            spark = _configure_session(builder.master("local[*]"), _COMMON | _local(memory, quick, kafka, java)).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def end_java() -> None:
    """End the Java process of the sessions of this process, which are over, and wait for it.

    Raises:
      RetryError: it failed in the end.
    """
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    if gateway.proc.wait(_JAVA_ENDS_S):
        raise RetryError(f"Java ended with {gateway.proc.returncode}: is there a gigabyte of memory for it?")


@contextmanager
def failing_as(failure: str) -> Iterator[None]:
    """Turns what Spark raises into one line that begins with `failure`.

    Raises:
      RetryError: Spark failed.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise RetryError(f"{failure}: {_innermost_reason(error)}") from None


def _innermost_reason(error: Exception) -> str:
    """One line: a stack trace tells an operator nothing, and may tell others too much."""
    inner = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while inner is not None and inner.getCause() is not None:
        inner = inner.getCause()
    text = str(inner.getMessage() or inner.getClass().getName()) if inner is not None else str(error)
    return text.partition("\n")[0][:_REASON_CHARS_MAX]


def _configure_session(builder: SparkSession.Builder, config: Mapping[str, str]) -> SparkSession.Builder:
    for name, value in config.items():
        builder = builder.config(name, value)
    return builder


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Removed when this process ends, as late as the Java process, which a second session shares with the first."""
    return tempfile.TemporaryDirectory(prefix="retry-report-")


# What holds wherever the job runs. Plans and the event log may be read by people who may not read Kafka.
_COMMON = {
    "spark.sql.session.timeZone": "UTC",
    # What is spread by lineage already need not be spread again to be joined by lineage and attempt.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.redaction.regex": SECRETS_PATTERN,
    "spark.sql.redaction.options.regex": SECRETS_PATTERN,
    "spark.sql.redaction.string.regex": SECRETS_PATTERN,
}


def _local(memory: str, quick: bool, kafka: bool, java: str | None) -> dict[str, str]:
    more = class_archive.java_options() if java is None else java
    options = (
        f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        # Nothing stays in the system's temporary folder.
        f'-Djava.io.tmpdir="{_scratch().name}"',
        "-XX:-UsePerfData",
        _QUICK_START if quick else "",
        more,
    )
    return {
        **({"spark.jars": ",".join(str(jar) for jar in jars("spark"))} if kafka else {}),
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(filter(None, options)),
        "spark.local.dir": _scratch().name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # One machine: the default of 200 would be 200 small tasks for each question.
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.catalogImplementation": "in-memory",
    }
