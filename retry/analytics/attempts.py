"""What became of each decision to retry: a row each, `retry.analytics.schemas.ATTEMPT`. Frames in, a frame out, one question each.

    waiting     the retry does not lie on its target topic
    pending     it does; the consumer group has not committed past it, or has since less than the settle time
    recovered   the group has, the settle time is over, and nothing came back
    failed      a letter of the same lineage came back, with the next attempt

Where no group is known, or none of its commits was ever sampled, a retry counts as passed when it was sent, and the row says so:
`assumed`. `ended_ms` is when the fate was certain; of what waits or is pending, the end of observation.

Letters of equal key and value that say nothing of their origin are one lineage, and so several of one lineage may have the same
attempt. What comes back then is counted to them in the order in which they were taken in: how many failed is exact, which is not.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from retry.analytics.schemas import ATTEMPT, LINEAGE, PARKED

SETTLE_MS = 600_000
_DECISION = ("id", "attempt", "source")


def attempts(
    letters: DataFrame, sent: DataFrame, positions: DataFrame, *, settle_ms: int = SETTLE_MS, until_ms: int
) -> DataFrame:
    """Every decision to retry, and what became of it.

    Args:
      letters, sent, positions: `LETTER`, `SENT` and `POSITION`, whole: what is missing of a lineage did not happen.
      settle_ms: how long after it was passed a retry can come back.
      until_ms: end of observation: everything that was taken in before is among the letters.
    """
    once = distinct(letters)
    answered = back(once)
    lying = passed(on_target(answered, sent), positions)
    return fates(known(lying, positions), settle_ms=settle_ms, until_ms=until_ms)


def distinct(letters: DataFrame) -> DataFrame:
    """Which decisions were made, each once, however often it was written."""
    first = Window.partitionBy(*_DECISION).orderBy("kafka_topic", "kafka_partition", "kafka_offset")
    # By lineage, and everything that follows stays there: letters are moved once, not for every question; see `session`.
    return letters.repartition("id").withColumn("_nth", F.row_number().over(first)).where("_nth = 1").drop("_nth")


def back(once: DataFrame) -> DataFrame:
    """Decisions to retry, with `back_ms` and `back_as` of the letter that came back of each; null where none did."""
    by_time = Window.partitionBy("id", "attempt").orderBy("taken_ms", "source")
    # Of letters that park none comes back; among those of one attempt they may come first.
    retried = once.where("decision = 'retry'").withColumn("_nth", F.row_number().over(by_time))
    coming = once.where("attempt > 1").select(
        "id",
        (F.col("attempt") - 1).alias("attempt"),
        F.row_number().over(by_time).alias("_nth"),
        F.col("taken_ms").alias("back_ms"),
        F.col("decision").alias("back_as"),
    )
    return retried.join(coming, on=["id", "attempt", "_nth"], how="left").drop("_nth")


def on_target(retried: DataFrame, sent: DataFrame) -> DataFrame:
    """Decisions to retry, with partition, offset, time and size of what lies on the target for each; null where nothing does."""
    same = ("target", "id", "attempt")
    decided = retried.withColumn("_nth", F.row_number().over(Window.partitionBy(*same).orderBy("due_ms", "source")))
    lying = sent.withColumnRenamed("topic", "target").repartition("id").dropDuplicates([*same, "partition", "offset"])
    by_due = Window.partitionBy(*same).orderBy(F.asc_nulls_first("due_ms"), "partition", "offset")
    found = lying.select(
        *same,
        F.row_number().over(by_due).alias("_nth"),
        F.col("partition").alias("sent_partition"),
        F.col("offset").alias("sent_offset"),
        "sent_ms",
        "bytes",
    )
    return decided.join(found, on=[*same, "_nth"], how="left").drop("_nth")


def passed(lying: DataFrame, positions: DataFrame) -> DataFrame:
    """`on_target` with `passed_ms`: when the group was first seen to have committed past the retry; null where it was not."""
    place = ["group", "target", "sent_partition"]
    sampled = positions.select(
        "group",
        F.col("topic").alias("target"),
        F.col("partition").alias("sent_partition"),
        F.col("offset").alias("_committed"),
        F.col("at_ms").alias("_at_ms"),
    )
    retries = lying.withColumns({
        # A retry is passed by who has committed the offset after it.
        "_committed": F.col("sent_offset") + 1,
        "_at_ms": F.lit(None).cast("long"),
        "_retry": F.lit(True),
    })
    # No join: of samples there are as many as of retries. In one pass from the greatest offset down, the earliest time so far
    # is that of the first sample past where one stands.
    from_above = Window.partitionBy(*place).orderBy(F.desc("_committed")).rangeBetween(Window.unboundedPreceding, 0)
    together = retries.where("sent_offset is not null and group is not null").unionByName(sampled, allowMissingColumns=True)
    seen = together.withColumn("passed_ms", F.min("_at_ms").over(from_above)).where("_retry")
    rest = retries.where("sent_offset is null or group is null").withColumn("passed_ms", F.lit(None).cast("long"))
    return seen.unionByName(rest).drop("_committed", "_at_ms", "_retry")


def known(lying: DataFrame, positions: DataFrame) -> DataFrame:
    """With `assumed`: that nobody says what the group has committed."""
    groups = positions.select("group", F.lit(False).alias("assumed")).distinct()
    # There are a few hundred groups at most.
    return lying.join(F.broadcast(groups), on="group", how="left").fillna(True, ["assumed"])


def fates(lying: DataFrame, *, settle_ms: int, until_ms: int) -> DataFrame:
    """What became of each, in the columns of `ATTEMPT`."""
    is_sent, came_back = F.col("sent_offset").isNotNull(), F.col("back_ms").isNotNull()
    # Where the topic keeps the letter's own timestamp, nobody knows when it was sent: not before it was due.
    sent_ms = F.coalesce("sent_ms", "due_ms")
    reached_ms = F.when(F.col("assumed"), sent_ms).when(F.col("passed_ms").isNotNull(), F.greatest("passed_ms", sent_ms))
    settled_ms = reached_ms + settle_ms
    settled = F.coalesce(is_sent & (settled_ms <= until_ms), F.lit(False))
    fate = _first(("failed", came_back), ("waiting", ~is_sent), ("recovered", settled)).otherwise("pending")
    ended_ms = F.when(came_back, F.col("back_ms")).when(settled, settled_ms).otherwise(until_ms)
    delay_ms = F.coalesce("delay_ms", F.col("due_ms") - F.col("failed_ms"))
    return lying.withColumns({"fate": fate, "ended_ms": ended_ms, "delay_ms": delay_ms}).select(*ATTEMPT.names)


def parked(letters: DataFrame) -> DataFrame:
    """Which letters were parked, and why, in the columns of `PARKED`."""
    return (
        distinct(letters).where("decision = 'park'").withColumnRenamed("taken_ms", "parked_ms").select(*PARKED.names)
    )


def lineages(letters: DataFrame, attempts: DataFrame) -> DataFrame:
    """What became of each lineage, in the columns of `LINEAGE`: `parked`, `expired`, or what became of its newest retry."""
    newest_first = Window.partitionBy("id").orderBy(F.desc("taken_ms"), F.desc("attempt"), F.desc("source"))
    newest = distinct(letters).withColumn("_nth", F.row_number().over(newest_first)).where("_nth = 1")
    of_retry = attempts.select(*_DECISION, F.col("fate").alias("_fate"), "ended_ms")
    given_up = F.when(F.col("reason") == "max_age", "expired").otherwise("parked")
    fate = F.when(F.col("decision") == "park", given_up).otherwise(F.col("_fate"))
    ended_ms = F.when(F.col("decision") == "park", F.col("taken_ms")).otherwise(F.col("ended_ms"))
    return (
        newest.join(of_retry, on=list(_DECISION), how="left")
        .withColumns({"fate": fate, "ended_ms": ended_ms})
        .select(*LINEAGE.names)
    )


def _first(*cases: tuple[str, Column]) -> Column:
    (name, holds), *rest = cases
    chosen = F.when(holds, name)
    for name, holds in rest:
        chosen = chosen.when(holds, name)
    return chosen
