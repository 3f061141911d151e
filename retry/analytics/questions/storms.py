"""When were far more retries sent than usual."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

_MINUTE_MS = 60_000


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


def storms(minutes: DataFrame, since_ms: int, until_ms: int, times: float = 5.0, least: int = 100) -> DataFrame:
    """The minutes with at least `times` as many retries as the team's median minute, and at least `least`.

    The median is that of all minutes of the period: those of a quiet team are mostly empty, and its storm must not be measured
    by itself. Reads `per_minute`. Gives `team`, `minute_ms`, `sent`, `median` (0 where more than half are empty), `times` the
    median, or one retry where that is 0, and `minutes`: how many such minutes there are.
    """
    every = max(1, (until_ms - since_ms) // _MINUTE_MS + 1)
    by_sent = Window.partitionBy("team").orderBy("sent", "minute_ms")
    # Empty minutes come before all others.
    ranked = minutes.withColumn("_rank", F.row_number().over(by_sent) + every - F.count("*").over(Window.partitionBy("team")))
    usual = F.max(F.when(F.col("_rank") <= (every + 1) // 2, F.col("sent"))).over(Window.partitionBy("team"))
    return (
        ranked.withColumn("median", F.coalesce(usual, F.lit(0)))
        .withColumn("times", F.col("sent") / F.greatest("median", F.lit(1)))
        .where((F.col("times") >= times) & (F.col("sent") >= least))
        # Of the few that are left: who takes only some of them knows of how many.
        .withColumn("minutes", F.count("*").over(Window.partitionBy()))
        .select("team", "minute_ms", "sent", "median", "times", "minutes")
    )
