"""What became of every letter, and what it cost: a row for each lineage."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_BOTH = ("team", "policy", "topic", "exception", "cause", "id", "attempt", "first_failed_ms", "failed_ms")


def histories(attempts: DataFrame, parked: DataFrame) -> DataFrame:
    """The latest state of each lineage, and what it cost.

    Reads of both `team`, `policy`, `topic`, `exception`, `cause`, `id`, `attempt`, `first_failed_ms`, `failed_ms`; of
    `attempts` also `fate`, `sent_ms`, `due_ms`, `bytes`; of `parked` also `reason`. Gives `id`, of the latest letter `team`,
    `policy`, `topic`, `exception`, `is_cause` (the exception is a root cause) and `fate`: recovered, parked, expired (parked
    since it was too old), pending, waiting, or failed where what came back is not among the letters; `first_failed_ms`,
    `retries` (sent ones), their `bytes`, and `watched_ms`: from the first failure until the last retry whose end is known was
    sent; null where there is none.
    """
    sent_ms = F.coalesce("sent_ms", "due_ms")
    tried = attempts.select(
        *_BOTH,
        "fate",
        F.when(F.col("fate") != "waiting", F.coalesce("bytes", F.lit(0))).alias("bytes"),
        F.when(F.col("fate").isin("recovered", "failed"), sent_ms).alias("known_ms"),
    )
    none = F.lit(None).cast("long")
    given_up = F.when(F.col("reason") == "max_age", "expired").otherwise("parked")
    rests = parked.select(*_BOTH, given_up.alias("fate"), none.alias("bytes"), none.alias("known_ms"))
    is_cause = F.coalesce(F.col("exception") == F.col("cause"), F.lit(False)).alias("is_cause")
    latest = F.max_by(F.struct("team", "policy", "topic", "exception", is_cause, "fate"), F.struct("failed_ms", "attempt"))
    return (
        tried.unionByName(rests)
        .groupBy("id")
        .agg(
            latest.alias("latest"),
            F.min("first_failed_ms").alias("first_failed_ms"),
            F.count("bytes").alias("retries"),
            F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"),
            # Clocks differ: what was sent before it failed was sent at once.
            F.greatest(F.max("known_ms"), F.min("first_failed_ms")).alias("known_ms"),
            F.count("known_ms").alias("known"),
        )
        .select(
            "id", "latest.*", "first_failed_ms", "retries", "bytes",
            F.when(F.col("known") > 0, F.col("known_ms") - F.col("first_failed_ms")).alias("watched_ms"),
        )
    )  # fmt: skip
