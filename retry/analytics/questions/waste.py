"""Which retries bought nothing, and how many bytes they were."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def waste(histories: DataFrame, *keys: str) -> DataFrame:
    """Retries that were sent for letters which were parked in the end, beside all that were sent.

    Reads keys, `fate`, `retries`, `bytes` of `retry.analytics.questions.histories`. Gives keys, `retries`, `wasted`, `bytes`,
    `wasted_bytes`. A retry that failed and was followed by a better one is not wasted: nobody could know.
    """
    of_parked = F.col("fate").isin("parked", "expired")
    return (
        histories.groupBy(*keys)
        .agg(
            F.sum("retries").alias("retries"),
            F.sum(F.when(of_parked, F.col("retries")).otherwise(0)).alias("wasted"),
            F.sum("bytes").alias("bytes"),
            F.sum(F.when(of_parked, F.col("bytes")).otherwise(0)).alias("wasted_bytes"),
        )
        .select(*keys, "retries", "wasted", "bytes", "wasted_bytes")
    )
