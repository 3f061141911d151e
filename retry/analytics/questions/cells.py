"""How retries ended, counted as finely as `retry.analytics.advice` needs it and no finer: the driver takes the whole answer."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_HOUR_MS = 3_600_000
# Delays are told apart where they differ by 41 %.
_BINS_PER_DOUBLING = 2
_PERCENTILE_ACCURACY = 1_000


def cells(attempts: DataFrame) -> DataFrame:
    """How the retries of each kind of failure ended, by attempt and delay.

    Reads `team`, `exception`, `attempt`, `delay_ms`, `fate`, `bytes`. Gives `team`, `exception`, `attempt`, `delay_ms` (the
    median of those that are within 41 % of each other), `recovered`, `failed`, `unknown` (sent or waiting), `bytes`.
    """
    delay_bin = F.floor(F.log2(F.greatest(F.col("delay_ms"), F.lit(1)).cast("double")) * _BINS_PER_DOUBLING)
    fate = F.col("fate")
    return (
        attempts.groupBy("team", "exception", "attempt", delay_bin.alias("delay_bin"))
        .agg(
            F.percentile_approx("delay_ms", 0.5, _PERCENTILE_ACCURACY).alias("delay_ms"),
            F.count_if(fate == "recovered").alias("recovered"),
            F.count_if(fate == "failed").alias("failed"),
            F.count_if(~fate.isin("recovered", "failed")).alias("unknown"),
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
