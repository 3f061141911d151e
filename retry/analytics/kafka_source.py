"""Kafka → frames: the outcomes, those that cannot be read, and the retries on their target topics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from retry import format_versions
from retry.analytics.decode import header
from retry.analytics.schema import OUTCOME, RETRY

_LOG_APPEND_TIME = 1
# What has a kind is no letter's outcome but something else that is told on the topic.
_TOLD = StructType([*OUTCOME.fields]).add("kind", StringType())


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
    """What to subscribe to: a name that is missing fails the read, and a pattern that matches nothing reads nothing."""
    return "|".join(re.escape(topic) for topic in sorted(set(topics)))


def parsed(records: DataFrame) -> DataFrame:
    """Each letter's outcome as `outcome`, with `unreadable` and `other_version` to say why one must not be counted."""
    required = [field.name for field in OUTCOME.fields if not field.nullable]
    other_version = F.coalesce(~F.col("outcome.v").isin(*format_versions.OUTCOME.reads), F.lit(False))
    is_whole = F.lit(True)
    for name in required:
        is_whole = is_whole & F.col("outcome")[name].isNotNull()
    return (
        records.select(F.from_json(F.col("value").cast("string"), _TOLD).alias("outcome"))
        .where(F.col("outcome.kind").isNull())
        .withColumn("other_version", other_version)
        .withColumn("unreadable", ~F.coalesce(is_whole, F.lit(False)) & ~F.col("other_version"))
        .select("outcome", "unreadable", "other_version")
    )


def outcomes(parsed: DataFrame) -> DataFrame:
    """The outcomes that can be counted, in the columns of the schema."""
    return (
        parsed.select("outcome", "unreadable", "other_version")
        .where(~F.col("unreadable") & ~F.col("other_version"))
        .select(*[F.col("outcome")[name].alias(name) for name in OUTCOME.names])
    )


def retries(records: DataFrame) -> DataFrame:
    """The records that this service sent, in the columns of `RETRY`; whatever else lies there is left out."""
    sent_ms = F.when(F.col("timestampType") == _LOG_APPEND_TIME, F.unix_millis(F.col("timestamp")))
    return (
        records.select(
            "topic",
            header("retry-id").alias("id"),
            header("retry-attempt").try_cast("long").alias("attempt"),
            header("retry-due-ms").try_cast("long").alias("due_ms"),
            sent_ms.alias("sent_ms"),
        )
        .where(F.col("id").isNotNull() & F.col("attempt").isNotNull())
        .select(*RETRY.names)
    )
