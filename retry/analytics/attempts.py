"""What became of each decision to retry: one row for each decision, in the columns of `retry.analytics.schemas.ATTEMPT`.

    waiting     the retry is not on its target topic yet
    pending     it is; its consumer group has not committed past it, or less than the settle time ago
    recovered   the group has committed past it, the settle time is over, and the letter did not fail again
    failed      a letter of the same lineage was taken in with the next attempt

Where no group is known, or none of its commits on the target topic was ever sampled, a retry counts as passed when it was sent;
`assumed` says so.
`ended_ms` is when the fate became certain; for waiting and pending retries it is the end of observation.

Letters of equal key and value without headers of their origin are one lineage, so several of one lineage may have the same
attempt. Later failures are then assigned to them in the order in which they were taken in: how many failed is exact, which ones
is not.

Of a letter on which operators acted the last decision stands: it is due when they said, where they said, or nowhere any more.
What the service decided of it before is kept for whoever asks about policies alone.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from retry.analytics.schemas import ATTEMPT, PARKED, Watched
from retry.telemetry.outcomes import DISCARD, ERASE, PARK, RETRY, RETURN

SETTLE_MS = 600_000
_PLACE = ("kafka_topic", "kafka_partition", "kafka_offset")
_OF_FAILURE = ("exception", "cause", "fingerprint", "group")


def compute_attempts(
    decisions: DataFrame, sent: DataFrame, positions: DataFrame, *, settle_ms: int = SETTLE_MS, until_ms: int,
    watched: Collection[Watched] | None = None,
) -> DataFrame:
    """Compute a row for each decision to retry a letter, with what became of the retry.

    Args:
      decisions: rows of `select_distinct_decisions`; who keeps these reads the letters once.
      sent, positions: `SENT` and `POSITION`, complete as the letters are: what is missing of a lineage counts as not done.
      settle_ms: how long after the group has passed it a retry can still fail.
      until_ms: end of observation: everything that was taken in before is among the letters.
      watched: groups and topics that were ever sampled, where positions are those of a period alone.
    """
    located = add_passed_ms(add_target_record(add_next_failure(decisions), sent), positions)
    sampled = list_watched(positions) if watched is None else watched
    return decide_fates(add_assumed(located, sampled), settle_ms=settle_ms, until_ms=until_ms)


def select_distinct_decisions(letters: DataFrame) -> DataFrame:
    """Select one row for each decision on a letter, however often its outcome was written.

    Selects all decisions of the service, and the last one of each letter on which operators acted. Only the outcome at intake
    says what failed; decisions of operators take those columns from there.

    Gives the columns of `letters`, and `stands`: whether it is the last of its letter; `by_policy`: whether the service has
    decided, of a lineage of which operators had returned no letter before; `first_policy`: which policy decided on the lineage
    first; `_nth`: its number among the failures of the lineage with its attempt, `_nth_retry`: among those that are sent, in the
    order in which they were taken in.
    """
    is_action = F.col("action").isNotNull()
    order = (is_action, F.when(is_action, F.col("taken_ms")).otherwise(F.col("attempt")), *_PLACE)
    # By lineage, and everything that follows stays there: letters are moved once, not for every question.
    by_letter = Window.partitionBy("id", "source").orderBy(*order)
    whole = by_letter.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    is_repeated = F.coalesce(F.lag("attempt").over(by_letter) == F.col("attempt"), F.lit(False))
    known = {name: F.coalesce(name, F.first(name).over(whole)) for name in _OF_FAILURE}
    marked = letters.repartition("id").withColumns({
        "_counts": F.when(is_action, F.lead("id").over(by_letter).isNull()).otherwise(~is_repeated),
        "stands": is_action | ~F.max(is_action).over(whole),
        **{f"_{name}": F.when(is_action, value).otherwise(F.col(name)) for name, value in known.items()},
    })  # fmt: skip
    counted = marked.where("_counts").withColumns({name: F.col(f"_{name}") for name in known})
    return _number_decisions(counted.drop("_counts", *(f"_{name}" for name in known)))


def _number_decisions(once: DataFrame) -> DataFrame:
    """Number decisions within their lineages, each of which lies in one partition."""
    lineage = Window.partitionBy("id").orderBy("attempt", "taken_ms", "source")
    whole = lineage.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    until_here = Window.partitionBy("id", "attempt").orderBy("taken_ms", "source").rowsBetween(Window.unboundedPreceding, 0)
    is_service = F.col("action").isNull()
    returned = F.min(F.when(F.col("decision") == RETURN, F.col("attempt"))).over(whole)
    return once.withColumns({
        "by_policy": is_service & F.coalesce(F.col("attempt") <= returned, F.lit(True)),
        "first_policy": F.first("policy").over(whole),
        "_nth": F.count_if(is_service).over(until_here),
        "_nth_retry": F.count_if(_is_sent()).over(until_here),
    })  # fmt: skip


def _is_sent() -> Column:
    # A parked letter never fails again, and may have been taken in before others of the same attempt.
    return F.col("stands") & F.col("decision").isin(RETRY, RETURN)


def add_next_failure(decisions: DataFrame) -> DataFrame:
    """Select decisions to retry that stand, of what `select_distinct_decisions` gave, with time and decision of the next failure,
    `back_ms` and `back_as`; null where there was none."""
    # What operators decide is no failure.
    failures = decisions.where("attempt > 1 and action is null").selectExpr(
        "id", "attempt - 1 as attempt", "_nth as _nth_retry", "taken_ms as back_ms", "decision as back_as"
    )  # fmt: skip
    retried = decisions.where(_is_sent()).drop("_nth")
    return retried.join(failures, on=["id", "attempt", "_nth_retry"], how="left").drop("_nth_retry")


def add_target_record(retried: DataFrame, sent: DataFrame) -> DataFrame:
    """Add partition, offset, time and size of the record on the target topic to decisions to retry; null where there is none."""
    same = ("target", "id", "attempt")
    decided = retried.withColumn("_nth", F.row_number().over(Window.partitionBy(*same).orderBy("due_ms", "source")))
    on_targets = sent.withColumnRenamed("topic", "target").repartition("id").dropDuplicates([*same, "partition", "offset"])
    by_due = Window.partitionBy(*same).orderBy(F.asc_nulls_first("due_ms"), "partition", "offset")
    on_topic = on_targets.withColumn("_nth", F.row_number().over(by_due)).selectExpr(
        *same, "_nth", "partition as sent_partition", "offset as sent_offset", "sent_ms", "bytes"
    )  # fmt: skip
    return decided.join(on_topic, on=[*same, "_nth"], how="left").drop("_nth")


def add_passed_ms(located: DataFrame, positions: DataFrame) -> DataFrame:
    """Add `passed_ms`: when a sample first showed that the group had committed past the retry; null where none did."""
    is_located = F.col("sent_offset").isNotNull() & F.col("group").isNotNull()
    retries = located.select(
        # One number, since rows are ordered by it; what lies nowhere is spread by its lineage, and meets no sample.
        F.when(is_located, F.xxhash64("group", "target", "sent_partition")).otherwise(F.xxhash64("id")).alias("_place"),
        # A group has passed a retry when it has committed the offset after it.
        F.when(is_located, F.col("sent_offset") + 1).alias("_committed"),
        F.lit(None).cast("long").alias("_at_ms"),
        # In one column: samples, of which there are many, are sorted with it and have nothing there.
        F.struct("*").alias("_retry"),
    )
    nothing = F.lit(None).cast(retries.schema["_retry"].dataType).alias("_retry")
    sampled = F.xxhash64("group", "topic", "partition").alias("_place")
    samples = positions.select(sampled, F.col("offset").alias("_committed"), F.col("at_ms").alias("_at_ms"), nothing)
    # No join: of samples there are as many as of retries. In one pass from the greatest offset down, the earliest time so far
    # is that of the first sample past where one stands.
    from_above = Window.partitionBy("_place").orderBy(F.desc("_committed"), F.asc_nulls_last("_at_ms"))
    earliest_ms = F.min("_at_ms").over(from_above.rowsBetween(Window.unboundedPreceding, 0))
    together = retries.unionAll(samples).withColumn("passed_ms", F.when(F.col("_committed").isNotNull(), earliest_ms))
    return together.where("_retry is not null").select("_retry.*", "passed_ms")


def list_watched(positions: DataFrame) -> frozenset[Watched]:
    """List the groups of some samples, each with its topics; there are a few thousand pairs at most."""
    return frozenset(Watched(row["group"], row["topic"]) for row in positions.select("group", "topic").distinct().collect())


def add_assumed(located: DataFrame, watched: Collection[Watched]) -> DataFrame:
    """Add `assumed`: whether no sample says what the group has committed on the target topic; `watched` are all of which there is
    any."""
    is_watched = F.concat_ws(" ", "target", "group").isin(*map(str, watched)) & F.col("group").isNotNull()
    return located.withColumn("assumed", ~F.coalesce(is_watched, F.lit(False)))


def decide_fates(located: DataFrame, *, settle_ms: int, until_ms: int) -> DataFrame:
    """Decide the fate of each retry: waiting, pending, recovered or failed; gives the columns of `ATTEMPT`."""
    is_sent, failed_again = F.col("sent_offset").isNotNull(), F.col("back_ms").isNotNull()
    # Where the topic keeps the letter's own timestamp, the time of sending is unknown: it was not before the due time.
    sent_ms = F.coalesce("sent_ms", "due_ms")
    reached_ms = F.when(F.col("assumed"), sent_ms).when(F.col("passed_ms").isNotNull(), F.greatest("passed_ms", sent_ms))
    settled_ms = reached_ms + settle_ms
    settled = F.coalesce(is_sent & (settled_ms <= until_ms), F.lit(False))
    fate = F.when(failed_again, "failed").when(~is_sent, "waiting").when(settled, "recovered").otherwise("pending")
    ended_ms = F.when(failed_again, F.col("back_ms")).when(settled, settled_ms).otherwise(until_ms)
    delay_ms = F.coalesce("delay_ms", F.col("due_ms") - F.col("failed_ms"))
    more = {"fate": fate, "ended_ms": ended_ms, "delay_ms": delay_ms, "returned": F.col("decision") == RETURN}
    return located.withColumns(more).select(*ATTEMPT.names)


def select_parked(decisions: DataFrame) -> DataFrame:
    """Select which letters were not retried, and why, in the columns of `PARKED`."""
    given_up = decisions.where(F.col("decision").isin(PARK, DISCARD, ERASE))
    return given_up.withColumnRenamed("taken_ms", "parked_ms").select(*PARKED.names)
