"""One local Spark session, quiet and small, with Kafka's source from the pinned jars."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from retry.analytics.connection import SECRETS_PATTERN
from retry.jars import jars

_LOGGING = Path(__file__).with_name("log4j2.properties")
# A report is over before the second compiler has earned its keep: without it the first answer comes a third sooner.
_QUICK_START = "-XX:TieredStopAtLevel=1"
# The outcomes of a day fit in memory many times over; more spills to disk.
_DRIVER_MEMORY = "1g"


@contextmanager
def session() -> Iterator[SparkSession]:
    """A session for the time of the block; its Java process ends with this one.

    Raises:
      JarsUnavailable: see `retry.jars`.
    """
    builder = SparkSession.builder.master("local[*]").appName("retry-report")
    for name, value in _config().items():
        builder = builder.config(name, value)
    # Spark 4.0.0 makes a folder `artifacts` in the working directory of its Java process, and leaves it there.
    with chdir(_scratch().name):
        spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Removed when this process ends, as late as the Java process, which a second session shares with the first."""
    return tempfile.TemporaryDirectory(prefix="retry-report-")


def _config() -> dict[str, str]:
    return {
        "spark.jars": ",".join(str(jar) for jar in jars("spark")),
        "spark.driver.memory": _DRIVER_MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} {_QUICK_START}",
        "spark.local.dir": _scratch().name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # One machine: the default of 200 would be 200 small tasks for each question.
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.redaction.regex": SECRETS_PATTERN,
        "spark.sql.redaction.options.regex": SECRETS_PATTERN,
        "spark.sql.redaction.string.regex": SECRETS_PATTERN,
    }
