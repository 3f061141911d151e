"""How retries ended, counted as finely as `retry.analytics.advice` needs it and no finer: the driver takes the whole answer."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_HOUR_MS = 3_600_000
# Delays are told apart where they differ by 41 %.
_BINS_PER_DOUBLING = 2
_PERCENTILE_ACCURACY = 1_000


def cells(attempts: DataFrame, settled_ms: int) -> DataFrame:
    """How the retries of each kind of failure ended, by attempt and delay.

    What failed after `settled_ms`, less than the settle time before the end of observation, counts as unknown like what may have
    recovered since: failures are known sooner, and late attempts would look worse than they are.

    Reads `team`, `exception`, `attempt`, `delay_ms`, `fate`, `ended_ms`, `bytes`. Gives `team`, `exception`, `attempt`,
    `delay_ms` (the median of those that are within 41 % of each other), `recovered`, `failed`, `unknown`, `bytes`.
    """
    delay_bin = F.floor(F.log2(F.greatest(F.col("delay_ms"), F.lit(1)).cast("double")) * _BINS_PER_DOUBLING)
    has_failed = (F.col("fate") == "failed") & (F.col("ended_ms") <= settled_ms)
    has_recovered = F.col("fate") == "recovered"
    return (
        attempts.groupBy("team", "exception", "attempt", delay_bin.alias("delay_bin"))
        .agg(
            F.percentile_approx("delay_ms", 0.5, _PERCENTILE_ACCURACY).alias("delay_ms"),
            F.count_if(has_recovered).alias("recovered"),
            F.count_if(has_failed).alias("failed"),
            F.count_if(~(has_recovered | has_failed)).alias("unknown"),
            F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"),
        )
        .drop("delay_bin")
    )


def starts(histories: DataFrame) -> DataFrame:
    """When letters of each kind failed first, by hour: what a policy file is tried on.

    Reads `team`, `topic`, `exception`, `is_cause`, `first_failed_ms`. Gives `team`, `topic`, `exception`, `is_cause`,
    `hour_ms`, `letters`.
    """
    hour_ms = F.expr(f"first_failed_ms - pmod(first_failed_ms, {_HOUR_MS})")
    keys = ("team", "topic", "exception", "is_cause")
    return (
        histories.groupBy(*keys, hour_ms.alias("hour_ms")).agg(F.count("*").alias("letters")).select(*keys, "hour_ms", "letters")
    )


def origins(attempts: DataFrame) -> DataFrame:
    """Where letters of each kind came from.

    Reads `team`, `topic`, `exception`, `cause`. Gives `team`, `topic`, `exception`, and `is_cause`: whether it was the root
    cause of every one.
    """
    is_cause = F.coalesce(F.col("exception") == F.col("cause"), F.lit(False))
    return attempts.groupBy("team", "topic", "exception").agg(F.bool_and(is_cause).alias("is_cause"))
