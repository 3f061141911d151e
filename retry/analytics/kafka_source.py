"""Reads every committed record of some topics into a frame, through Spark's Kafka source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession


def records(spark: SparkSession, options: Mapping[str, str], topics: Iterable[str]) -> DataFrame:
    """Everything committed on `topics` by now; a topic that does not exist holds nothing."""
    return (
        spark.read.format("kafka")
        .options(**options)
        .option("subscribePattern", pattern(topics))
        .option("includeHeaders", "true")
        # Retention may delete records while they are read; a report shows what is left.
        .option("failOnDataLoss", "false")
        .load()
    )


def pattern(topics: Iterable[str]) -> str:
    """The topics as a pattern: a missing topic subscribed by name fails the read, a pattern without a match reads nothing."""
    return "|".join(re.escape(topic) for topic in sorted(set(topics)))
