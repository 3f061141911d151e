"""One question each: frames in, a frame out, by team and policy.

A *lineage* is all attempts of one original record; its latest outcome says what became of it:

    parked                    the latest outcome is `park`
    recovered at attempt N    the latest outcome is `retry` N, and that retry lies on its target topic
    waiting                   the latest outcome is `retry`, and that retry is not there yet

So a retry that was sent just now, and whose consumer has not had time to fail, counts as recovered for the moment.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

# Enough for exact percentiles of ten thousand retries, and for a rank error of 1 in 10,000 of any number.
_PERCENTILE_ACCURACY = 10_000


def letters(outcomes: DataFrame) -> DataFrame:
    """How many letters were taken in."""
    return (
        outcomes.select("team", "policy")
        .groupBy("team", "policy")
        .agg(F.count("*").alias("letters"))
        .select("team", "policy", "letters")
    )


def sent(outcomes: DataFrame, retries: DataFrame) -> DataFrame:
    """The retries that lie on the topic that their outcome names, with the outcome's team and policy."""
    key = ["topic", "id", "attempt"]
    decided = (
        outcomes.where(F.col("decision") == "retry")
        .select("team", "policy", F.col("target").alias("topic"), "id", "attempt")
        # A consumer that loses `retry-attempt` has the same retry decided twice; each must count once.
        .dropDuplicates(key)
    )
    return decided.join(retries, on=key, how="inner").select("team", "policy", *key, "due_ms", "sent_ms")


def retries_sent(sent: DataFrame) -> DataFrame:
    """How many retries were sent."""
    return (
        sent.select("team", "policy")
        .groupBy("team", "policy")
        .agg(F.count("*").alias("retries"))
        .select("team", "policy", "retries")
    )


def fates(outcomes: DataFrame, sent: DataFrame) -> DataFrame:
    """What became of each lineage: `recovered`, `parked` or `waiting`."""
    newest_first = Window.partitionBy("id").orderBy(F.desc("taken_ms"), F.desc("attempt"), F.desc("source"))
    columns = ("id", "team", "policy", "attempt", "decision", "reason")
    latest = (
        outcomes.select(*columns, F.row_number().over(newest_first).alias("rank"))
        .where(F.col("rank") == 1)
        .select(*columns)
    )
    found = sent.select("id", "attempt", F.lit(True).alias("was_sent")).distinct()
    fate = F.when(F.col("decision") == "park", "parked").when(F.col("was_sent"), "recovered").otherwise("waiting")
    return latest.join(found, on=["id", "attempt"], how="left").select(
        "id", "team", "policy", "attempt", "reason", fate.alias("fate")
    )


def recovered_by_attempt(fates: DataFrame) -> DataFrame:
    """How many lineages needed how many retries."""
    return (
        fates.where(F.col("fate") == "recovered")
        .select("team", "policy", "attempt")
        .groupBy("team", "policy", "attempt")
        .agg(F.count("*").alias("lineages"))
        .select("team", "policy", "attempt", "lineages")
    )


def parked_by_reason(fates: DataFrame) -> DataFrame:
    """How many lineages were parked, and why."""
    return (
        fates.where(F.col("fate") == "parked")
        .select("team", "policy", F.coalesce("reason", F.lit("unknown")).alias("reason"))
        .groupBy("team", "policy", "reason")
        .agg(F.count("*").alias("lineages"))
        .select("team", "policy", "reason", "lineages")
    )


def waiting(fates: DataFrame) -> DataFrame:
    """How many lineages wait for their next retry."""
    return (
        fates.where(F.col("fate") == "waiting")
        .select("team", "policy")
        .groupBy("team", "policy")
        .agg(F.count("*").alias("waiting"))
        .select("team", "policy", "waiting")
    )


def lateness(sent: DataFrame) -> DataFrame:
    """How long after its due time a retry was sent, where the target topic says when that was."""
    quantiles = F.percentile_approx("late_ms", [0.5, 0.9, 0.99], _PERCENTILE_ACCURACY)
    return (
        sent.select("team", "policy", (F.col("sent_ms") - F.col("due_ms")).alias("late_ms"))
        .where(F.col("late_ms").isNotNull())
        .groupBy("team", "policy")
        .agg(F.count("*").alias("measured"), quantiles.alias("late"), F.max("late_ms").alias("max_ms"))
        .select(
            "team",
            "policy",
            "measured",
            F.col("late")[0].alias("p50_ms"),
            F.col("late")[1].alias("p90_ms"),
            F.col("late")[2].alias("p99_ms"),
            "max_ms",
        )
    )
