"""Reads every committed record of some topics into a frame, through Spark's Kafka source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession

from retry.kafka.topics import LEGAL_NAME


def load_records(spark: SparkSession, options: Mapping[str, str], topics: Iterable[str]) -> DataFrame:
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
    """The topics as a pattern: a missing topic subscribed by name fails the read, a pattern without a match reads nothing.

    Spark looks for it anywhere in a name, so it says where a name begins and ends. A text that no topic can be called, which
    others may have written into an outcome, is left out.
    """
    names = sorted({topic for topic in topics if LEGAL_NAME.fullmatch(topic)})
    return f"^(?:{'|'.join(map(re.escape, names))})$"
