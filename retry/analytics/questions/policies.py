"""How do teams and policies compare."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retry.analytics.questions.confidence import wilson


def compared(histories: DataFrame, *keys: str) -> DataFrame:
    """What became of the letters of each.

    Reads keys, `fate`, `retries` of `retry.analytics.questions.histories`. Gives keys, `letters`, `recovered`, `parked`,
    `expired`, `unknown` (none of these yet), `retries`, and `recovery`: the share that recovered of those that ended, null
    where none did, with `recovery_low` and `recovery_high`.
    """
    fate = F.col("fate")
    ended = F.col("letters") - F.col("unknown")
    low, high = wilson(F.col("recovered"), ended)
    return (
        histories.groupBy(*keys)
        .agg(
            F.count("*").alias("letters"),
            F.count_if(fate == "recovered").alias("recovered"),
            F.count_if(fate == "parked").alias("parked"),
            F.count_if(fate == "expired").alias("expired"),
            F.count_if(~fate.isin("recovered", "parked", "expired")).alias("unknown"),
            F.sum("retries").alias("retries"),
        )
        .withColumns({"recovery": F.col("recovered") / F.when(ended > 0, ended), "recovery_low": low, "recovery_high": high})
    )
