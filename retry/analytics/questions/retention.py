"""Which retries and parked letters will Kafka delete soon."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retry.telemetry.outcomes import ERASE, PARK


def near(attempts: DataFrame, parked: DataFrame, retentions: DataFrame, now_ms: int, share: float = 0.8) -> DataFrame:
    """Retries that no consumer has passed, and letters that rest, on topics of which retention has run down by `share` for the
    oldest. Erased ones are gone.

    Reads of `attempts` `team`, `target`, `fate`, `sent_ms`, `due_ms`; of `parked` `team`, `target`, `parked_ms`, `decision`,
    `stands`; `retentions` has `topic` and `retention_ms`, below 0 for ever. Gives `team`, `topic`, `kind` (retry, parked,
    discarded), `letters` that are so near, and `left_ms` until the oldest is deleted, below 0 where it may be gone.
    """
    sent = attempts.where(F.col("fate") == "pending").select(
        "team", F.col("target").alias("topic"), F.lit("retry").alias("kind"), F.coalesce("sent_ms", "due_ms").alias("at_ms")
    )
    kind = F.when(F.col("decision") == PARK, "parked").otherwise("discarded")
    rests = parked.where(F.col("stands") & (F.col("decision") != ERASE)).select(
        "team", F.col("target").alias("topic"), kind.alias("kind"), F.col("parked_ms").alias("at_ms")
    )
    left_ms = F.col("at_ms") + F.col("retention_ms") - now_ms
    return (
        sent.unionByName(rests)
        .join(retentions.where(F.col("retention_ms") >= 0), on="topic")
        .withColumn("left_ms", left_ms)
        .where(F.col("left_ms") <= (1 - share) * F.col("retention_ms"))
        .groupBy("team", "topic", "kind")
        .agg(F.count("*").alias("letters"), F.min("left_ms").alias("left_ms"))
        .select("team", "topic", "kind", "letters", "left_ms")
    )
