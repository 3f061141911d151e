"""Which failures are most frequent, since when, and are they on the rise."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_KEYS = ("team", "exception", "fingerprint")


def top(attempts: DataFrame, parked: DataFrame, since_ms: int, until_ms: int, most: int = 20) -> DataFrame:
    """The most frequent fingerprints of the failures from `since_ms` up to `until_ms`, the most frequent first.

    Every letter is a failure, whether it was retried or parked. Reads of both `team`, `exception`, `fingerprint`, `id`,
    `failed_ms`, `source`. Gives `team`, `exception`, `fingerprint`, `failures`, `lineages`, `parked`, `first_seen_ms` (of all
    that there is, also before the period), `last_seen_ms`, and for the trend `earlier` and `recent`: failures in the first and
    in the second half of the period; `samples`: where letters of the period lie, the latest, the latest that was parked, the
    first.
    """
    middle_ms = (since_ms + until_ms) // 2
    rows = _failures(attempts, parked)
    is_within = (F.col("failed_ms") >= since_ms) & (F.col("failed_ms") <= until_ms)
    place = F.struct("failed_ms", "source")
    seen, rests = F.when(is_within, place), F.when(is_within & F.col("is_parked"), place)
    samples = F.max(seen), F.max(rests), F.min(seen)
    return (
        rows.groupBy(*_KEYS)
        .agg(
            F.count_if(is_within).alias("failures"),
            F.count_distinct(F.when(is_within, F.col("id"))).alias("lineages"),
            F.count_if(is_within & F.col("is_parked")).alias("parked"),
            F.min("failed_ms").alias("first_seen_ms"),
            F.max(F.when(is_within, F.col("failed_ms"))).alias("last_seen_ms"),
            F.count_if(is_within & (F.col("failed_ms") < middle_ms)).alias("earlier"),
            F.count_if(is_within & (F.col("failed_ms") >= middle_ms)).alias("recent"),
            F.array_distinct(F.array_compact(F.array(*(each["source"] for each in samples)))).alias("samples"),
        )
        .where(F.col("failures") > 0)
        .orderBy(F.desc("failures"), *_KEYS)
        .limit(most)
    )


def over_time(
    attempts: DataFrame, parked: DataFrame, among: DataFrame, since_ms: int, until_ms: int, steps: int = 60
) -> DataFrame:
    """How often each fingerprint was seen in each of so many equal steps of the period; those `among` a few rows of `top` alone.

    Reads as `top`. Gives `team`, `exception`, `fingerprint`, `at_ms` (the beginning of the step), `failures`; steps without any
    are left out.
    """
    step_ms = max(1, -(-(until_ms - since_ms + 1) // steps))
    at_ms = F.expr(f"failed_ms - pmod(failed_ms - {since_ms}, {step_ms})")
    rows = among.select([F.col(key).alias(f"among_{key}") for key in _KEYS])
    # What a letter does not tell is null, and as good as any other.
    same = [F.col(key).eqNullSafe(F.col(f"among_{key}")) for key in _KEYS]
    return (
        _failures(attempts, parked)
        .join(F.broadcast(rows), on=same, how="left_semi")
        .where((F.col("failed_ms") >= since_ms) & (F.col("failed_ms") <= until_ms))
        .groupBy(*_KEYS, at_ms.alias("at_ms"))
        .agg(F.count("*").alias("failures"))
        .select(*_KEYS, "at_ms", "failures")
    )


def _failures(attempts: DataFrame, parked: DataFrame) -> DataFrame:
    columns = (*_KEYS, "id", "failed_ms", "source")
    return attempts.select(*columns, F.lit(False).alias("is_parked")).unionByName(
        parked.select(*columns, F.lit(True).alias("is_parked"))
    )
