"""Which part of all letters has recovered, was parked, or is too old by attempt N, or within time T.

Spark counts who was at risk and what was decided at each place of the axis; `retry.analytics.curves` makes the curves of it, on
the driver.

Both look back from `settled_ms`, the settle time before the end of observation: that something failed again is known
sooner than that it recovered. What was decided later counts as not decided.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retry.analytics.curves import STEPS_PER_DOUBLING, WAYS


def by_attempt(attempts: DataFrame, parked: DataFrame, settled_ms: int, *keys: str) -> DataFrame:
    """Count what was decided after each number of retries, for each value of `keys` (columns that may be null).

    Only policies count: a letter that operators return was parked, whatever becomes of it, and what they park or discard was not
    decided. Reads keys of both, of `attempts` `attempt`, `fate`, `ended_ms`, `returned`; of `parked` `attempt`, `parked_ms`,
    `reason`, `by_policy`. Gives keys, `attempt` (0: before any retry), `at_risk`, `recovered`, `parked`, `expired`.
    """
    attempts, parked = attempts.where("not returned"), parked.where("by_policy")
    attempt, fate = F.col("attempt"), F.col("fate")
    is_known = (fate == "recovered") | ((fate == "failed") & (F.col("ended_ms") <= settled_ms))
    tried = attempts.where(is_known).select(*keys, attempt, F.lit(1).alias("risk"), fate.alias("way"))
    begun = attempts.where("attempt = 1").select(*keys, F.lit(0).cast("long").alias("attempt"), F.lit(1).alias("risk"), fate)
    gone = parked.where(F.col("parked_ms") <= settled_ms).select(
        # Who is parked at once was at risk before any retry; all others were counted with the retry before.
        *keys, attempt - 1, F.when(attempt == 1, 1).otherwise(0).alias("risk"), _given_up().alias("way")
    )  # fmt: skip
    rows = tried.unionAll(begun.withColumn("fate", F.lit("begun"))).unionAll(gone)
    counts = [F.count_if(F.col("way") == way).alias(way) for way in WAYS]
    return rows.groupBy(*keys, "attempt").agg(F.sum("risk").alias("at_risk"), *counts)


def by_time(histories: DataFrame, settled_ms: int, *keys: str) -> DataFrame:
    """Count what was decided within each step of time since the first failure.

    Reads keys, `fate`, `watched_ms`, `first_failed_ms` of `retry.analytics.questions.histories`. Gives keys, `step` (of 9 %),
    `left` (with it, decided or not), `recovered`, `parked`, `expired`.
    """
    limit_ms = F.lit(settled_ms) - F.col("first_failed_ms")
    is_decided = F.col("fate").isin(*WAYS) & (F.col("watched_ms") <= limit_ms)
    steps = F.log2(F.greatest(F.least("watched_ms", limit_ms), F.lit(1)).cast("double")) * STEPS_PER_DOUBLING
    # What is decided in a step counts at its end. Who was not watched up to there is not at risk in it.
    step = F.when(is_decided, F.ceil(steps)).otherwise(F.floor(steps))
    return (
        histories.where(limit_ms >= 0)
        .groupBy(*keys, step.alias("step"))
        .agg(F.count("*").alias("left"), *[F.count_if(is_decided & (F.col("fate") == way)).alias(way) for way in WAYS])
    )


def _given_up() -> Column:
    return F.when(F.col("reason") == "max_age", "expired").otherwise("parked")
