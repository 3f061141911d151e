"""What became of each decision to retry: one row for each decision, in the columns of `retry.analytics.schemas.ATTEMPT`.

    waiting     the retry is not on its target topic yet
    pending     it is; its consumer group has not committed past it, or less than the settle time ago
    recovered   the group has committed past it, the settle time is over, and the letter did not fail again
    failed      a letter of the same lineage was taken in with the next attempt

Where no group is known, or none of its commits was ever sampled, a retry counts as passed when it was sent; `assumed` says so.
`ended_ms` is when the fate became certain; for waiting and pending retries it is the end of observation.

Letters of equal key and value without headers of their origin are one lineage, so several of one lineage may have the same
attempt. Later failures are then assigned to them in the order in which they were taken in: how many failed is exact, which ones
is not.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from retry.analytics.schemas import ATTEMPT, PARKED

SETTLE_MS = 600_000
_DECISION = ("id", "attempt", "source")


def attempts(
    letters: DataFrame, sent: DataFrame, positions: DataFrame, *, settle_ms: int = SETTLE_MS, until_ms: int,
    groups: DataFrame | None = None,
) -> DataFrame:
    """Every decision to retry, and what became of it.

    Args:
      letters, sent, positions: `LETTER`, `SENT` and `POSITION`, complete: what is missing of a lineage counts as not done.
      settle_ms: how long after the group has passed it a retry can still fail.
      until_ms: end of observation: everything that was taken in before is among the letters.
      groups: `group` of all that were ever sampled, where positions are those of a period alone.
    """
    return of_distinct(distinct_decisions(letters), sent, positions, settle_ms=settle_ms, until_ms=until_ms, groups=groups)


def of_distinct(
    decisions: DataFrame, sent: DataFrame, positions: DataFrame, *, settle_ms: int, until_ms: int,
    groups: DataFrame | None = None,
) -> DataFrame:
    """As `attempts`, of what `distinct_decisions` gave: whoever has kept that reads the letters once."""
    located = with_passed_ms(on_target(with_next_failure(decisions), sent), positions)
    return fates(with_assumed(located, positions if groups is None else groups), settle_ms=settle_ms, until_ms=until_ms)


def distinct_decisions(letters: DataFrame) -> DataFrame:
    """One row for each decision, however often its outcome was written."""
    first = Window.partitionBy(*_DECISION).orderBy("kafka_topic", "kafka_partition", "kafka_offset")
    # By lineage, and everything that follows stays there: letters are moved once, not for every question; see `session`.
    return letters.repartition("id").withColumn("_nth", F.row_number().over(first)).where("_nth = 1").drop("_nth")


def with_next_failure(decisions: DataFrame) -> DataFrame:
    """Decisions to retry, with time and decision of the next failure, `back_ms` and `back_as`; null where there was none."""
    by_time = Window.partitionBy("id", "attempt").orderBy("taken_ms", "source")
    # A parked letter never fails again, and may have been taken in before others of the same attempt.
    retried = decisions.where("decision = 'retry'").withColumn("_nth", F.row_number().over(by_time))
    failures = decisions.where("attempt > 1").select(
        "id",
        (F.col("attempt") - 1).alias("attempt"),
        F.row_number().over(by_time).alias("_nth"),
        F.col("taken_ms").alias("back_ms"),
        F.col("decision").alias("back_as"),
    )
    return retried.join(failures, on=["id", "attempt", "_nth"], how="left").drop("_nth")


def on_target(retried: DataFrame, sent: DataFrame) -> DataFrame:
    """Decisions to retry, with partition, offset, time and size of the record on the target topic; null where there is none."""
    same = ("target", "id", "attempt")
    decided = retried.withColumn("_nth", F.row_number().over(Window.partitionBy(*same).orderBy("due_ms", "source")))
    on_targets = sent.withColumnRenamed("topic", "target").repartition("id").dropDuplicates([*same, "partition", "offset"])
    by_due = Window.partitionBy(*same).orderBy(F.asc_nulls_first("due_ms"), "partition", "offset")
    on_topic = on_targets.select(
        *same,
        F.row_number().over(by_due).alias("_nth"),
        F.col("partition").alias("sent_partition"),
        F.col("offset").alias("sent_offset"),
        "sent_ms",
        "bytes",
    )
    return decided.join(on_topic, on=[*same, "_nth"], how="left").drop("_nth")


def with_passed_ms(located: DataFrame, positions: DataFrame) -> DataFrame:
    """With `passed_ms`: when a sample first showed that the group had committed past the retry; null where none did."""
    group_partition = ["group", "target", "sent_partition"]
    sampled = positions.select(
        "group",
        F.col("topic").alias("target"),
        F.col("partition").alias("sent_partition"),
        F.col("offset").alias("_committed"),
        F.col("at_ms").alias("_at_ms"),
    )
    retries = located.select(
        *group_partition,
        # A group has passed a retry when it has committed the offset after it.
        (F.col("sent_offset") + 1).alias("_committed"),
        F.lit(None).cast("long").alias("_at_ms"),
        # In one column: samples, of which there are many, are sorted with it and have nothing there.
        F.struct("*").alias("_retry"),
    )
    # No join: of samples there are as many as of retries. In one pass from the greatest offset down, the earliest time so far
    # is that of the first sample past where one stands.
    from_above = Window.partitionBy(*group_partition).orderBy(F.desc("_committed")).rangeBetween(Window.unboundedPreceding, 0)
    located_retries = retries.where("_committed is not null and group is not null")
    together = located_retries.unionByName(sampled, allowMissingColumns=True)
    sampled_retries = together.withColumn("passed_ms", F.min("_at_ms").over(from_above)).where("_retry is not null")
    rest = retries.where("_committed is null or group is null").withColumn("passed_ms", F.lit(None).cast("long"))
    return sampled_retries.unionByName(rest, allowMissingColumns=True).select("_retry.*", "passed_ms")


def with_assumed(located: DataFrame, sampled: DataFrame) -> DataFrame:
    """With `assumed`: whether no sample says what the group has committed; `sampled` has a `group` for each that there is."""
    groups = sampled.select("group", F.lit(False).alias("assumed")).distinct()
    # There are a few hundred groups at most.
    return located.join(F.broadcast(groups), on="group", how="left").fillna(True, ["assumed"])


def fates(located: DataFrame, *, settle_ms: int, until_ms: int) -> DataFrame:
    """What became of each, in the columns of `ATTEMPT`."""
    is_sent, failed_again = F.col("sent_offset").isNotNull(), F.col("back_ms").isNotNull()
    # Where the topic keeps the letter's own timestamp, the time of sending is unknown: it was not before the due time.
    sent_ms = F.coalesce("sent_ms", "due_ms")
    reached_ms = F.when(F.col("assumed"), sent_ms).when(F.col("passed_ms").isNotNull(), F.greatest("passed_ms", sent_ms))
    settled_ms = reached_ms + settle_ms
    settled = F.coalesce(is_sent & (settled_ms <= until_ms), F.lit(False))
    fate = _first(("failed", failed_again), ("waiting", ~is_sent), ("recovered", settled)).otherwise("pending")
    ended_ms = F.when(failed_again, F.col("back_ms")).when(settled, settled_ms).otherwise(until_ms)
    delay_ms = F.coalesce("delay_ms", F.col("due_ms") - F.col("failed_ms"))
    return located.withColumns({"fate": fate, "ended_ms": ended_ms, "delay_ms": delay_ms}).select(*ATTEMPT.names)


def parked(letters: DataFrame) -> DataFrame:
    """Which letters were parked, and why, in the columns of `PARKED`."""
    return parked_of(distinct_decisions(letters))


def parked_of(decisions: DataFrame) -> DataFrame:
    """As `parked`, of what `distinct_decisions` gave."""
    return decisions.where("decision = 'park'").withColumnRenamed("taken_ms", "parked_ms").select(*PARKED.names)


def _first(*cases: tuple[str, Column]) -> Column:
    (name, holds), *rest = cases
    chosen = F.when(holds, name)
    for name, holds in rest:
        chosen = chosen.when(holds, name)
    return chosen
