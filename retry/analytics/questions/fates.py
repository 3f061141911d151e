"""What became of letters: of each and at what cost, of those on which operators acted, and which of them Kafka deletes soon."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retry.telemetry.outcomes import ERASE, PARK

# What became of every letter, and what it cost: a row for each lineage.

_LATEST = ("team", "policy", "topic", "exception", "is_cause", "fate")
_BOTH = ("team", "policy", "topic", "exception", "cause", "id", "attempt", "first_failed_ms", "failed_ms")


def list_histories(attempts: DataFrame, parked: DataFrame) -> DataFrame:
    """Select the latest state of each lineage (one original failure over all its retries), and what the lineage cost.

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
        *_BOTH, "fate", F.when(fate != "waiting", F.coalesce("bytes", F.lit(0))).alias("bytes"),
        watched_to_ms.alias("watched_to_ms"), (F.col("assumed") & (fate == "recovered")).alias("assumed"),
    )  # fmt: skip
    parked_as = F.when(F.col("reason") == "max_age", "expired").otherwise("parked")
    given_up = F.when(F.col("decision") == PARK, parked_as).otherwise("discarded")
    rests = parked.where("stands").select(
        *_BOTH, given_up.alias("fate"), F.lit(None).cast("long").alias("bytes"), F.col("parked_ms").alias("watched_to_ms"),
        F.lit(False).alias("assumed"),
    )  # fmt: skip
    is_cause = F.coalesce(F.col("exception") == F.col("cause"), F.lit(False)).alias("is_cause")
    state = F.struct("team", "policy", "topic", "exception", is_cause, "fate", "watched_to_ms")
    latest = F.max_by(state, F.struct("failed_ms", "attempt"))
    return (
        tried.unionByName(rests)
        .groupBy("id")
        .agg(
            latest.alias("latest"), F.min_by("policy", "attempt").alias("first_policy"),
            F.min("first_failed_ms").alias("first_failed_ms"), F.count("bytes").alias("retries"),
            F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"), F.count_if("assumed").alias("assumed"),
        )
        .select(
            "id", *[f"latest.{name}" for name in _LATEST], "first_policy", "first_failed_ms", "retries", "bytes", "assumed",
            # Clocks differ: what was sent before it failed was sent at once.
            F.greatest(F.col("latest.watched_to_ms") - F.col("first_failed_ms"), F.lit(0)).alias("watched_ms"),
        )
    )  # fmt: skip


# What became of letters on which operators acted.

def count_acted_by_kind(attempts: DataFrame, parked: DataFrame) -> DataFrame:
    """Count letters by what operators asked of them last, and what became of them.

    Reads of both `team`, `action_kind`; of `attempts` also `fate`; of `parked` also `decision`. Gives `team`, `action_kind`,
    `letters`, and how many of these `recovered`, `failed` again, are still `open`, or rest, `parked` or `discarded` (or erased).
    """
    asked = F.col("action_kind").isNotNull()
    open_ = F.when(F.col("fate").isin("waiting", "pending"), "open").otherwise(F.col("fate"))
    rests = F.when(F.col("decision") == "park", "parked").otherwise("discarded")
    sent, given_up = attempts.where(asked), parked.where(asked)
    by = ("team", "action_kind")
    rows = sent.select(*by, open_.alias("now")).unionByName(given_up.select(*by, rests.alias("now")))
    counts = [F.count_if(F.col("now") == now).alias(now) for now in ("recovered", "failed", "open", "parked", "discarded")]
    return rows.groupBy(*by).agg(F.count("*").alias("letters"), *counts)


# Which retries and parked letters will Kafka delete soon.

# Of a retention that much has run down.
_NEAR = 0.8


def find_near_retention(attempts: DataFrame, parked: DataFrame, retentions: DataFrame, now_ms: int) -> DataFrame:
    """Find retries that no consumer has passed, and resting letters, of which four fifths of the topic's retention are over.

    Letters rest where they are parked or discarded; erased ones are gone.

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
    return (
        sent.unionByName(rests)
        .join(retentions.where(F.col("retention_ms") >= 0), on="topic")
        .withColumn("left_ms", F.col("at_ms") + F.col("retention_ms") - now_ms)
        .where(F.col("left_ms") <= (1 - _NEAR) * F.col("retention_ms"))
        .groupBy("team", "topic", "kind")
        .agg(F.count("*").alias("letters"), F.min("left_ms").alias("left_ms"))
        .select("team", "topic", "kind", "letters", "left_ms")
    )
