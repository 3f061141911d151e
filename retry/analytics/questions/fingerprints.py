"""Which failures are most frequent, since when, and are they on the rise."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from retry.telemetry.outcomes import PARK

_KEYS = ("team", "exception", "fingerprint")


def find_top_fingerprints(attempts: DataFrame, parked: DataFrame, since_ms: int, until_ms: int, most: int = 20) -> DataFrame:
    """Find the most frequent fingerprints of the failures from `since_ms` up to `until_ms`, the most frequent first.

    Every letter is a failure, whether it was retried or not. Reads of both `team`, `exception`, `fingerprint`, `id`, `failed_ms`,
    `source`; of `parked` also `decision`, `stands`. Gives `team`, `exception`, `fingerprint`, `failures`, `lineages`, `parked`,
    `first_seen_ms` (of all that there is, also before the period), `last_seen_ms`, and for the trend `earlier` and `recent`:
    failures in the first and in the second half of the period; `first_ms` and `parked_ms`: when the first of the period failed,
    and the latest of it that was parked.
    """
    middle_ms = (since_ms + until_ms) // 2
    failed_ms = F.col("failed_ms")
    within_ms = F.when((failed_ms >= since_ms) & (failed_ms <= until_ms), failed_ms)
    parked_ms = F.when(F.col("is_parked"), within_ms)
    # By lineage first: to count those that are distinct, or texts, every row would have to be sorted.
    by_lineage = _failures(attempts, parked).groupBy(*_KEYS, "id").agg(
        F.count(within_ms).alias("failures"), F.count(parked_ms).alias("parked"),
        F.count(F.when(within_ms < middle_ms, 1)).alias("earlier"),
        F.min(failed_ms).alias("first_seen_ms"), F.max(within_ms).alias("last_seen_ms"),
        F.min(within_ms).alias("first_ms"), F.max(parked_ms).alias("parked_ms"),
    )  # fmt: skip
    sums = (
        F.sum("failures").alias("failures"), F.count_if(F.col("failures") > 0).alias("lineages"),
        F.sum("parked").alias("parked"), F.min("first_seen_ms").alias("first_seen_ms"),
        F.max("last_seen_ms").alias("last_seen_ms"), F.sum("earlier").alias("earlier"),
        F.min("first_ms").alias("first_ms"), F.max("parked_ms").alias("parked_ms"),
    )  # fmt: skip
    recent = by_lineage.groupBy(*_KEYS).agg(*sums).withColumn("recent", F.col("failures") - F.col("earlier"))
    return recent.where(F.col("failures") > 0).orderBy(F.desc("failures"), *_KEYS).limit(most)


def find_samples(attempts: DataFrame, parked: DataFrame, among: DataFrame) -> DataFrame:
    """Find sample letters for rows of `find_top_fingerprints`: the latest, the latest that was parked, the first of the period.

    Reads as that does. Gives `team`, `exception`, `fingerprint`, and these as `samples`.
    """
    failed_ms, source = F.col("failed_ms"), F.col("source")
    found = _among(attempts, parked, among).where(failed_ms.isin(*map(F.col, ("last_seen_ms", "parked_ms", "first_ms"))))
    places = (
        F.max(F.when(failed_ms == F.col("last_seen_ms"), source)),
        F.max(F.when((failed_ms == F.col("parked_ms")) & F.col("is_parked"), source)),
        F.min(F.when(failed_ms == F.col("first_ms"), source)),
    )
    return found.groupBy(*_KEYS).agg(F.array_distinct(F.array_compact(F.array(*places))).alias("samples"))


def count_over_time(
    attempts: DataFrame, parked: DataFrame, among: DataFrame, since_ms: int, until_ms: int, steps: int
) -> DataFrame:
    """Count how often each fingerprint in `among` was seen in each of `steps` equal steps of the period.

    Reads as `find_top_fingerprints`, of whose rows `among` has a few. Gives `team`, `exception`, `fingerprint`, `at_ms` (the
    beginning of the step), `failures`; steps without any are left out.
    """
    step_ms = max(1, -(-(until_ms - since_ms + 1) // steps))
    return (
        _among(attempts, parked, among)
        .where((F.col("failed_ms") >= since_ms) & (F.col("failed_ms") <= until_ms))
        .groupBy(*_KEYS, F.expr(f"failed_ms - pmod(failed_ms - {since_ms}, {step_ms})").alias("at_ms"))
        .agg(F.count("*").alias("failures"))
        .select(*_KEYS, "at_ms", "failures")
    )


def _among(attempts: DataFrame, parked: DataFrame, among: DataFrame) -> DataFrame:
    """Failures of some rows of `find_top_fingerprints`, and the columns of these."""
    rows = among.withColumnsRenamed({key: f"among_{key}" for key in _KEYS} | {"parked": "parked_letters"})
    # What a letter does not tell is null, and as good as any other.
    same = [F.col(key).eqNullSafe(F.col(f"among_{key}")) for key in _KEYS]
    return _failures(attempts, parked).join(F.broadcast(rows), on=same)


def _failures(attempts: DataFrame, parked: DataFrame) -> DataFrame:
    columns = (*_KEYS, "id", "failed_ms", "source")
    return attempts.select(*columns, F.lit(False).alias("is_parked")).unionByName(
        parked.where("stands").select(*columns, (F.col("decision") == PARK).alias("is_parked"))
    )


# When were far more retries sent than usual.

_MINUTE_MS, _STORM_TIMES = 60_000, 5.0


def count_per_minute(attempts: DataFrame) -> DataFrame:
    """Count the retries of each team that were sent in each minute; minutes without any are left out.

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


def find_storms(minutes: DataFrame, since_ms: int, until_ms: int, least: int = 100) -> DataFrame:
    """Find minutes with at least five times as many retries as the team's median minute, and at least `least` retries.

    The median is that of all minutes of the period: those of a quiet team are mostly empty, and its storm must not be measured
    by itself. Reads `count_per_minute`. Gives `team`, `minute_ms`, `sent`, `median` (0 where more than half are empty), `times`
    the median, or one retry where that is 0, and `minutes`: how many such minutes there are.
    """
    every = max(1, (until_ms - since_ms) // _MINUTE_MS + 1)
    by_sent = Window.partitionBy("team").orderBy("sent", "minute_ms")
    # Empty minutes come before all others.
    ranked = minutes.withColumn("_rank", F.row_number().over(by_sent) + every - F.count("*").over(Window.partitionBy("team")))
    usual = F.max(F.when(F.col("_rank") <= (every + 1) // 2, F.col("sent"))).over(Window.partitionBy("team"))
    return (
        ranked.withColumn("median", F.coalesce(usual, F.lit(0)))
        .withColumn("times", F.col("sent") / F.greatest("median", F.lit(1)))
        .where((F.col("times") >= _STORM_TIMES) & (F.col("sent") >= least))
        # Of the few that are left: who takes only some of them knows of how many.
        .withColumn("minutes", F.count("*").over(Window.partitionBy()))
        .select("team", "minute_ms", "sent", "median", "times", "minutes")
    )
