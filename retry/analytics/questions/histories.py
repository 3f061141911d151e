"""What became of every letter, and what it cost: a row for each lineage."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retry.telemetry.outcomes import PARK

_LATEST = ("team", "policy", "topic", "exception", "is_cause", "fate")
_BOTH = ("team", "policy", "topic", "exception", "cause", "id", "attempt", "first_failed_ms", "failed_ms")


def histories(attempts: DataFrame, parked: DataFrame) -> DataFrame:
    """The latest state of each lineage, and what it cost.

    Reads of both `team`, `policy`, `topic`, `exception`, `cause`, `id`, `attempt`, `first_failed_ms`, `failed_ms`; of
    `attempts` also `fate`, `sent_ms`, `due_ms`, `ended_ms`, `bytes`, `assumed`; of `parked` also `parked_ms`, `reason`,
    `decision`, `stands`. Gives `id`, of the latest letter `team`, `policy`, `topic`, `exception`, `is_cause` (the exception is
    a root cause) and `fate`: recovered, parked, expired (parked since it was too old), discarded (or erased, by operators),
    pending, waiting, or failed where what came back is not among the letters; `first_policy`, that decided on it first;
    `first_failed_ms`, `retries` (sent ones), their `bytes`, `assumed`: its recoveries of which no sample tells, and
    `watched_ms`: from the first failure until the retry that recovered was sent, until it was given up, or as long as it is
    known to have failed: until just before a pending retry was sent, or until now.
    """
    sent_ms = F.coalesce("sent_ms", "due_ms")
    fate = F.col("fate")
    watched_to_ms = F.when(fate == "waiting", F.col("ended_ms")).otherwise(sent_ms - (fate == "pending").cast("long"))
    tried = attempts.select(
        *_BOTH,
        "fate",
        F.when(fate != "waiting", F.coalesce("bytes", F.lit(0))).alias("bytes"),
        watched_to_ms.alias("watched_to_ms"),
        (F.col("assumed") & (fate == "recovered")).alias("assumed"),
    )
    none = F.lit(None).cast("long")
    parked_as = F.when(F.col("reason") == "max_age", "expired").otherwise("parked")
    given_up = F.when(F.col("decision") == PARK, parked_as).otherwise("discarded")
    rests = parked.where("stands").select(
        *_BOTH, given_up.alias("fate"), none.alias("bytes"), F.col("parked_ms").alias("watched_to_ms"),
        F.lit(False).alias("assumed"),
    )  # fmt: skip
    is_cause = F.coalesce(F.col("exception") == F.col("cause"), F.lit(False)).alias("is_cause")
    state = F.struct("team", "policy", "topic", "exception", is_cause, "fate", "watched_to_ms")
    latest = F.max_by(state, F.struct("failed_ms", "attempt"))
    return (
        tried.unionByName(rests)
        .groupBy("id")
        .agg(
            latest.alias("latest"),
            F.min_by("policy", "attempt").alias("first_policy"),
            F.min("first_failed_ms").alias("first_failed_ms"),
            F.count("bytes").alias("retries"),
            F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"),
            F.count_if("assumed").alias("assumed"),
        )
        .select(
            "id", *[f"latest.{name}" for name in _LATEST], "first_policy", "first_failed_ms", "retries", "bytes", "assumed",
            # Clocks differ: what was sent before it failed was sent at once.
            F.greatest(F.col("latest.watched_to_ms") - F.col("first_failed_ms"), F.lit(0)).alias("watched_ms"),
        )
    )  # fmt: skip
