"""What became of letters on which operators acted."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def by_kind(attempts: DataFrame, parked: DataFrame) -> DataFrame:
    """Letters by what operators asked of them last.

    Reads of both `team`, `action_kind`; of `attempts` also `fate`; of `parked` also `decision`. Gives `team`, `action_kind`,
    `letters`, and how many of these `recovered`, `failed` again, are still `open`, or rest, `parked` or `discarded` (or erased).
    """
    asked = F.col("action_kind").isNotNull()
    open_ = F.when(F.col("fate").isin("waiting", "pending"), "open").otherwise(F.col("fate"))
    rests = F.when(F.col("decision") == "park", "parked").otherwise("discarded")
    sent, given_up = attempts.where(asked), parked.where(asked)
    rows = sent.select("team", "action_kind", open_.alias("now")).unionByName(
        given_up.select("team", "action_kind", rests.alias("now"))
    )
    counts = [F.count_if(F.col("now") == now).alias(now) for now in ("recovered", "failed", "open", "parked", "discarded")]
    return rows.groupBy("team", "action_kind").agg(F.count("*").alias("letters"), *counts)
