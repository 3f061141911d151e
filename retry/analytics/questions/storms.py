"""When were far more retries sent than usual."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_MINUTE_MS = 60_000
_PERCENTILE_ACCURACY = 10_000


def per_minute(attempts: DataFrame) -> DataFrame:
    """How many retries of each team were sent in each minute that had any.

    Reads `team`, `fate`, `sent_ms`, `due_ms`: where a topic does not tell when a retry was sent, its due time stands for that.
    Gives `team`, `minute_ms`, `sent`.
    """
    return (
        attempts.where(F.col("fate") != "waiting")
        .withColumn("at_ms", F.coalesce("sent_ms", "due_ms"))
        .groupBy("team", F.expr(f"at_ms - pmod(at_ms, {_MINUTE_MS})").alias("minute_ms"))
        .agg(F.count("*").alias("sent"))
        .select("team", "minute_ms", "sent")
    )


def storms(minutes: DataFrame, times: float = 5.0, least: int = 100) -> DataFrame:
    """The minutes with at least `times` as many retries as the team's median minute, and at least `least`.

    Reads `per_minute`. Gives `team`, `minute_ms`, `sent`, `median`, `times`.
    """
    usual = minutes.groupBy("team").agg(F.percentile_approx("sent", 0.5, _PERCENTILE_ACCURACY).alias("median"))
    return (
        minutes.join(usual, on="team")
        .withColumn("times", F.col("sent") / F.col("median"))
        .where((F.col("times") >= times) & (F.col("sent") >= least))
        .select("team", "minute_ms", "sent", "median", "times")
    )
