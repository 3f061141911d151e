"""How do teams and policies compare: what became of their letters, how fast, how late, and at what cost."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retry.analytics.questions.confidence import wilson

# Enough for exact percentiles of ten thousand values, and for a rank error of 1 in 10,000 of any number.
_PERCENTILE_ACCURACY = 10_000
_PERCENTILES = (50, 90, 99)


def compared(histories: DataFrame, *keys: str) -> DataFrame:
    """What became of the letters of each.

    Reads keys, `fate`, `retries` of `retry.analytics.questions.histories`. Gives keys, `letters`, `recovered`, `parked`,
    `expired`, `unknown` (none of these yet), of these `waiting` (for their next retry to be sent), `retries`, and `recovery`:
    the share that recovered of those that ended, null where none did, with `recovery_low` and `recovery_high`.
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
            F.count_if(fate == "waiting").alias("waiting"),
            F.sum("retries").alias("retries"),
        )
        .withColumns({"recovery": F.col("recovered") / F.when(ended > 0, ended), "recovery_low": low, "recovery_high": high})
    )


def parked_by_reason(parked: DataFrame) -> DataFrame:
    """Why letters were parked.

    Reads `team`, `policy`, `reason`. Gives these, and `letters`; the reason is `unknown` where the outcome has none.
    """
    reason = F.coalesce("reason", F.lit("unknown")).alias("reason")
    return parked.groupBy("team", "policy", reason).agg(F.count("*").alias("letters"))


def time_to_recovery(histories: DataFrame, *keys: str) -> DataFrame:
    """Percentiles of the time from the first failure until the retry that recovered was sent.

    Only of what recovered: what still fails has no such time, and is in the curve of `retry.analytics.curves`.
    Reads keys, `fate`, `watched_ms`. Gives keys, `recovered`, `p50_ms`, `p90_ms`, `p99_ms`, `max_ms`.
    """
    recovered = histories.where(F.col("fate") == "recovered")
    return _percentiles(recovered, F.col("watched_ms"), "recovered", *keys)


def lateness(attempts: DataFrame) -> DataFrame:
    """How long after its due time a retry was sent, where the target topic keeps the time of appending.

    Reads `team`, `policy`, `sent_ms`, `due_ms`. Gives `team`, `policy`, `measured`, `p50_ms`, `p90_ms`, `p99_ms`, `max_ms`.
    """
    measured = attempts.where(F.col("sent_ms").isNotNull() & F.col("due_ms").isNotNull())
    return _percentiles(measured, F.col("sent_ms") - F.col("due_ms"), "measured", "team", "policy")


def waste(histories: DataFrame, *keys: str) -> DataFrame:
    """Which retries bought nothing: those sent for letters which were parked in the end, beside all that were sent.

    Reads keys, `fate`, `retries`, `bytes` of `retry.analytics.questions.histories`. Gives keys, `retries`, `wasted`, `bytes`,
    `wasted_bytes`. A retry that failed and was followed by a better one is not wasted: nobody could know.
    """
    of_parked = F.col("fate").isin("parked", "expired")
    return histories.groupBy(*keys).agg(
        F.sum("retries").alias("retries"),
        F.sum(F.when(of_parked, F.col("retries")).otherwise(0)).alias("wasted"),
        F.sum("bytes").alias("bytes"),
        F.sum(F.when(of_parked, F.col("bytes")).otherwise(0)).alias("wasted_bytes"),
    )


def _percentiles(frame: DataFrame, milliseconds: Column, count: str, *keys: str) -> DataFrame:
    quantiles = F.percentile_approx(milliseconds, [p / 100 for p in _PERCENTILES], _PERCENTILE_ACCURACY)
    return (
        frame.groupBy(*keys)
        .agg(F.count("*").alias(count), quantiles.alias("quantiles"), F.max(milliseconds).alias("max_ms"))
        .select(*keys, count, *[F.col("quantiles")[n].alias(f"p{p}_ms") for n, p in enumerate(_PERCENTILES)], "max_ms")
    )
