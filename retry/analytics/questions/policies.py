"""How do teams and policies compare: what became of their letters, how fast, how late, and at what cost."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, GroupedData, Window
from pyspark.sql import functions as F

from retry.analytics.questions.confidence import wilson
from retry.telemetry.outcomes import PARK

# Enough for exact percentiles of ten thousand values, and for a rank error of 1 in 10,000 of any number.
_PERCENTILE_ACCURACY = 10_000
_PERCENTILES = (50, 90, 99)
_COLUMNS = ("team", "policy", "exception")
_ABOUT = {"all": (), "team": ("team",), "policy": ("team", "policy"), "exception": ("team", "exception")}


def sums(grouped: GroupedData, *more: Column) -> DataFrame:
    """Count what became of each group's letters, how fast, and at what cost, in one transform that reads them once.

    Takes rows of `retry.analytics.questions.histories`, and reads `fate`, `retries`, `bytes`, `assumed`, `watched_ms`.
    Gives the group's columns, `more` aggregates, and

    - `letters`, `recovered`, `parked`, `expired`, `discarded`, `unknown` (none of these yet), of these `waiting` (for their next
      retry to be sent); `recovery`: the share that recovered of those that did or were parked, null where none was,
      `recovery_low`, `recovery_high`; `assumed`: recoveries of which no sample tells
    - `retries`, their `bytes`, and of these `wasted`, `wasted_bytes`: those sent for letters that were parked in the end. A retry
      that failed and was followed by a better one is not wasted: nobody could know
    - `p50_ms`, `p90_ms`, `p99_ms`, `max_ms` from the first failure until the retry that recovered was sent; only of what
      recovered: what still fails has no such time, and is in the curve of `retry.analytics.curves`
    """
    fate, retries, size = F.col("fate"), F.col("retries"), F.col("bytes")
    of_parked = fate.isin("parked", "expired")
    recovered_ms = F.when(fate == "recovered", F.col("watched_ms"))
    ended = F.col("letters") - F.col("unknown") - F.col("discarded")
    low, high = wilson(F.col("recovered"), ended)
    aggregates = [
        F.count("*").alias("letters"),
        F.count_if(fate == "recovered").alias("recovered"),
        F.count_if(fate == "parked").alias("parked"),
        F.count_if(fate == "expired").alias("expired"),
        F.count_if(fate == "discarded").alias("discarded"),
        F.count_if(~fate.isin("recovered", "parked", "expired", "discarded")).alias("unknown"),
        F.count_if(fate == "waiting").alias("waiting"),
        F.sum("assumed").alias("assumed"),
        F.sum("retries").alias("retries"),
        F.sum(F.when(of_parked, retries).otherwise(0)).alias("wasted"),
        F.sum("bytes").alias("bytes"),
        F.sum(F.when(of_parked, size).otherwise(0)).alias("wasted_bytes"),
        *_percentiles(recovered_ms),
    ]
    return _spread(grouped.agg(*more, *aggregates)).withColumns(
        {"recovery": F.col("recovered") / F.when(ended > 0, ended), "recovery_low": low, "recovery_high": high}
    )


def largest_sums(histories: DataFrame, most: int) -> DataFrame:
    """`sums` of all letters, of each team, of each policy and of each kind of failure, counted in one pass.

    Gives also `of` (all, team, policy, exception); columns that a row is not about are null. Of each it gives those that are
    among the `most` by letters, by letters that recovered, or by wasted retries.
    """
    grouped = histories.groupingSets([[*map(F.col, about)] for about in _ABOUT.values()], *map(F.col, _COLUMNS))
    # Spark's id of a row's grouping has a bit for each column that it is not about, the first column's the highest.
    ids = {sum(4 >> n for n, name in enumerate(_COLUMNS) if name not in about): of for of, about in _ABOUT.items()}
    of = F.create_map(*[F.lit(each) for pair in ids.items() for each in pair])[F.col("_id").cast("int")]
    summed = sums(grouped, F.grouping_id().alias("_id")).withColumn("of", of).drop("_id")
    by = {name: Window.partitionBy("of").orderBy(F.desc(name), *_COLUMNS) for name in ("letters", "recovered", "wasted")}
    ranks = {f"_{name}": F.row_number().over(window) for name, window in by.items()}
    return summed.withColumns(ranks).where(F.least(*ranks) <= most).drop(*ranks)


def parked_by_reason(parked: DataFrame) -> DataFrame:
    """Why letters that are parked were parked.

    Reads `team`, `policy`, `reason`, `decision`, `stands`. Gives the first three, and `letters`; the reason is `unknown` where
    the outcome has none.
    """
    reason = F.coalesce("reason", F.lit("unknown")).alias("reason")
    rests = parked.where(F.col("stands") & (F.col("decision") == PARK))
    return rests.groupBy("team", "policy", reason).agg(F.count("*").alias("letters"))


def lateness(attempts: DataFrame) -> DataFrame:
    """How long after its due time a retry was sent, where the target topic keeps the time of appending.

    Reads `team`, `policy`, `sent_ms`, `due_ms`. Gives `team`, `policy`, `measured`, `p50_ms`, `p90_ms`, `p99_ms`, `max_ms`.
    """
    measured = attempts.where(F.col("sent_ms").isNotNull() & F.col("due_ms").isNotNull())
    late_ms = F.col("sent_ms") - F.col("due_ms")
    late = measured.groupBy("team", "policy").agg(F.count("*").alias("measured"), *_percentiles(late_ms))
    return _spread(late).select("team", "policy", "measured", *[f"p{p}_ms" for p in _PERCENTILES], "max_ms")


def _percentiles(milliseconds: Column) -> tuple[Column, Column]:
    quantiles = F.percentile_approx(milliseconds, [p / 100 for p in _PERCENTILES], _PERCENTILE_ACCURACY)
    return quantiles.alias("_quantiles"), F.max(milliseconds).alias("max_ms")


def _spread(frame: DataFrame) -> DataFrame:
    named = {f"p{p}_ms": F.get("_quantiles", F.lit(n)) for n, p in enumerate(_PERCENTILES)}
    return frame.withColumns(named).drop("_quantiles")
