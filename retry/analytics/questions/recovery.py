"""How long recovery takes."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

# Enough for exact percentiles of ten thousand lineages, and for a rank error of 1 in 10,000 of any number.
_PERCENTILE_ACCURACY = 10_000


def time_to_recovery(histories: DataFrame, *keys: str) -> DataFrame:
    """Percentiles of the time from the first failure until the retry that recovered was sent.

    Only of what recovered: what still fails has no such time, and is in the curve of `retry.analytics.questions.survival`.
    Reads keys, `fate`, `watched_ms`. Gives keys, `recovered`, `p50_ms`, `p90_ms`, `p99_ms`, `max_ms`.
    """
    quantiles = F.percentile_approx("watched_ms", [0.5, 0.9, 0.99], _PERCENTILE_ACCURACY)
    return (
        histories.where(F.col("fate") == "recovered")
        .groupBy(*keys)
        .agg(F.count("*").alias("recovered"), quantiles.alias("q"), F.max("watched_ms").alias("max_ms"))
        .select(*keys, "recovered", *[F.col("q")[n].alias(f"p{p}_ms") for n, p in enumerate((50, 90, 99))], "max_ms")
    )
