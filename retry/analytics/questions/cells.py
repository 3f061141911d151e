"""How retries ended, counted as finely as `retry.analytics.advice` needs it and no finer: the driver takes the whole answer."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retry.analytics.advice.evidence import BINS_PER_DOUBLING

_HOUR_MS = 3_600_000
_PERCENTILE_ACCURACY = 1_000
_STRATUM = ("team", "exception", "topic", "policy")


def cells(attempts: DataFrame, settled_ms: int) -> DataFrame:
    """How the retries of each kind of failure ended, by attempt, delay and age.

    What failed after `settled_ms`, less than the settle time before the end of observation, counts as unknown like what may have
    recovered since: failures are known sooner, and late attempts would look worse than they are.

    What operators returned is left out: no policy has made that retry.

    Reads `team`, `exception`, `cause`, `topic`, `first_policy`, `attempt`, `delay_ms`, `due_ms`, `first_failed_ms`, `fate`,
    `ended_ms`, `bytes`, `returned`. Gives `team`, `exception`, `topic`, `policy` (that decided on the letter first), `attempt`,
    `delay_ms` and `age_ms` (from the first failure to the retry; both are medians of those that are within 41 % of each other),
    `recovered`, `failed`, `unknown`, `bytes`, and `is_cause`: whether the exception was the root cause of every one.
    """
    age_ms = F.greatest(F.col("due_ms") - F.col("first_failed_ms"), F.lit(0))
    has_failed = (F.col("fate") == "failed") & (F.col("ended_ms") <= settled_ms)
    has_recovered = F.col("fate") == "recovered"
    return (
        attempts.where("not returned").withColumns({"age_ms": age_ms, "policy": F.col("first_policy")})
        .groupBy(*_STRATUM, "attempt", _bin("delay_ms").alias("delay_bin"), _bin("age_ms").alias("age_bin"))
        .agg(
            F.percentile_approx("delay_ms", 0.5, _PERCENTILE_ACCURACY).alias("delay_ms"),
            F.percentile_approx("age_ms", 0.5, _PERCENTILE_ACCURACY).alias("age_ms"),
            F.count_if(has_recovered).alias("recovered"),
            F.count_if(has_failed).alias("failed"),
            F.count_if(~(has_recovered | has_failed)).alias("unknown"),
            F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"),
            F.bool_and(F.coalesce(F.col("exception") == F.col("cause"), F.lit(False))).alias("is_cause"),
        )
        .drop("delay_bin", "age_bin")
    )


def starts(histories: DataFrame) -> DataFrame:
    """When letters of each kind failed first, by hour: what a policy file is tried on.

    Reads `team`, `topic`, `first_policy`, `exception`, `is_cause`, `first_failed_ms`. Gives `team`, `topic`, `policy` (that
    decided on the first retry), `exception`, `is_cause`, `hour_ms`, `letters`.
    """
    hour_ms = F.expr(f"first_failed_ms - pmod(first_failed_ms, {_HOUR_MS})")
    keys = ("team", "topic", "exception", "is_cause", "policy")
    return (
        histories.withColumn("policy", F.col("first_policy"))
        .groupBy(*keys, hour_ms.alias("hour_ms"))
        .agg(F.count("*").alias("letters"))
        .select(*keys, "hour_ms", "letters")
    )


def _bin(milliseconds: str) -> Column:
    return F.floor(F.log2(F.greatest(F.col(milliseconds), F.lit(1)).cast("double")) * BINS_PER_DOUBLING)
