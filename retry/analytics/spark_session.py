"""Starts a Spark session: the one of `spark-submit`, else a local one with Kafka's source from the pinned jars."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from retry.analytics.spark_kafka_options import SECRETS_PATTERN
from retry.errors import RetryError
from retry.jars import jars
from retry.settings import submitted

_LOGGING = Path(__file__).with_name("log4j2.properties")
# A report is over before the second compiler has earned its keep: without it the first answer comes a third sooner.
# What Spark generates fills the smaller code cache that goes with it, and then nothing more is compiled: hence the size.
# A collector that works beside the program costs more threads than it saves.
_QUICK_START = " ".join((
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:+UseParallelGC",
))
# The outcomes of a day fit in memory many times over; more spills to disk.
_DRIVER_MEMORY = "1g"
_REASON_CHARS_MAX = 300


@contextmanager
def session(name: str = "retry-report", *, memory: str = _DRIVER_MEMORY, quick: bool = True) -> Iterator[SparkSession]:
    """A session for the time of the block; its Java process ends with this one.

    Args:
      memory: of the local Java process, as `1g`; on a cluster `spark-submit` says.
      quick: whether to start soon rather than to be fast in the long run.

    Raises:
      JarsUnavailable: see `retry.jars`.
    """
    builder = SparkSession.builder.appName(name)
    if submitted():
        spark = _configured(builder, _COMMON).getOrCreate()
    else:
        # Spark 4.0.0 makes a folder `artifacts` in the working directory of its Java process, and leaves it there.
        with chdir(_scratch().name):
            spark = _configured(builder.master("local[*]"), _COMMON | _local(memory, quick)).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


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


def _configured(builder: SparkSession.Builder, config: Mapping[str, str]) -> SparkSession.Builder:
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


def _local(memory: str, quick: bool) -> dict[str, str]:
    java = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    return {
        "spark.jars": ",".join(str(jar) for jar in jars("spark")),
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{java} {_QUICK_START}" if quick else java,
        "spark.local.dir": _scratch().name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # One machine: the default of 200 would be 200 small tasks for each question.
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.catalogImplementation": "in-memory",
    }
