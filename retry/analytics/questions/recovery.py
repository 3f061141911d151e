"""Which part of all letters has recovered, was parked, or is too old by attempt N or within time T; and how retries ended.

Spark counts who was at risk and what was decided at each place of the axis; curves are made of it on the driver. Both look back
from `settled_ms`, the settle time before the end of observation: that something failed again is known sooner than that it
recovered. What was decided later counts as not decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from retry.analytics.advice.evidence import BINS_PER_DOUBLING, OTHER
from retry.analytics.episodes import bound_share
from retry.analytics.statistics import Step, compute_curves

# Counts in, curves out: which part of all letters has recovered or was given up.

Row = dict[str, Any]
WAYS = ("recovered", "parked", "expired")
# Steps of time that are told apart: each is 9 % longer than the one before.
STEPS_PER_DOUBLING = 8


def build_attempt_curves(rows: Iterable[Row], *keys: str, effects: Mapping[str, float] | None = None) -> list[Row]:
    """Build the curves of recovery by attempt; `effects` has by team how many letters count as an independent one, else 1.

    Gives the rows of `count_by_attempt`, and of each attempt `hazard`, its own chance to recover, with its bounds, and the parts
    of all letters up to here: `part_recovered`, `part_parked`, `part_expired` and `part_failing`, together 1, each with `_low`
    and `_high`.
    """
    made = []
    for ordered in _each(rows, "attempt", *keys):
        effect = _effect_of(ordered, effects)
        for row, parts in zip(ordered, _compute_shares(ordered, effect), strict=True):
            tried = row["at_risk"] if row["attempt"] else 0
            low, likely, high = bound_share(row["recovered"], tried, tried / effect) if tried else (None, None, None)
            made.append(row | {"hazard": likely, "hazard_low": low, "hazard_high": high} | parts)
    return made


def build_time_curves(rows: Iterable[Row], *keys: str, effects: Mapping[str, float] | None = None) -> list[Row]:
    """Build the curves of recovery by time, from rows of `count_by_time`; `effects` as in `build_attempt_curves`.

    Gives keys, `time_ms` (the end of a step in which anything was decided), `at_risk`, `recovered`, `parked`, `expired`, and
    the parts of all letters up to here, as `build_attempt_curves`.
    """
    made = []
    for ordered in _each(rows, "step", *keys):
        at_risk = sum(row["left"] for row in ordered)
        steps = []
        for row in ordered:
            named = {name: row[name] for name in (*keys, *WAYS)}
            steps.append(named | {"time_ms": round(2 ** (row["step"] / STEPS_PER_DOUBLING)), "at_risk": at_risk})
            at_risk -= row["left"]
        decided = [row for row in steps if any(row[way] for way in WAYS)]
        shares = _compute_shares(decided, _effect_of(ordered, effects))
        made += [row | parts for row, parts in zip(decided, shares, strict=True)]
    return made


def _effect_of(rows: Sequence[Row], effects: Mapping[str, float] | None) -> float:
    return (effects or {}).get(rows[0].get("team", ""), 1.0)


def _compute_shares(ordered: Sequence[Row], effect: float) -> list[Row]:
    steps = [Step(max(row["at_risk"], sum(row[way] for way in WAYS)), {way: row[way] for way in WAYS}) for row in ordered]
    made = []
    for parts, failing in compute_curves(steps, WAYS, effect):
        named = {f"part_{way}": each for way, each in {**parts, "failing": failing}.items()}
        made.append({
            f"{name}{suffix}": value
            for name, each in named.items()
            for suffix, value in (("", each.likely), ("_low", each.low), ("_high", each.high))
        })
    return made


def _each(rows: Iterable[Row], order: str, *keys: str) -> Iterable[list[Row]]:
    def build_group_key(row: Row) -> tuple[tuple[bool, Any], ...]:
        return tuple((row[name] is not None, row[name]) for name in keys)

    for _, group in groupby(sorted(rows, key=lambda row: (build_group_key(row), row[order])), build_group_key):
        yield list(group)


def count_by_attempt(attempts: DataFrame, parked: DataFrame, settled_ms: int, *keys: str) -> DataFrame:
    """Count what was decided after each number of retries, for each value of `keys` (columns that may be null).

    Only policies count: a letter that operators return was parked, whatever becomes of it, and what they park or discard was not
    decided. Reads keys of both, of `attempts` `attempt`, `fate`, `ended_ms`, `returned`; of `parked` `attempt`, `parked_ms`,
    `reason`, `by_policy`. Gives keys, `attempt` (0: before any retry), `at_risk`, `recovered`, `parked`, `expired`.
    """
    attempts, parked = attempts.where("not returned"), parked.where("by_policy")
    attempt, fate = F.col("attempt"), F.col("fate")
    is_known = (fate == "recovered") | ((fate == "failed") & (F.col("ended_ms") <= settled_ms))
    tried = attempts.where(is_known).select(*keys, attempt, F.lit(1).alias("risk"), fate.alias("way"))
    begun = attempts.where("attempt = 1").select(*keys, F.lit(0).cast("long").alias("attempt"), F.lit(1).alias("risk"), fate)
    gone = parked.where(F.col("parked_ms") <= settled_ms).select(
        # Who is parked at once was at risk before any retry; all others were counted with the retry before.
        *keys, attempt - 1, F.when(attempt == 1, 1).otherwise(0).alias("risk"), _given_up().alias("way")
    )  # fmt: skip
    rows = tried.unionAll(begun.withColumn("fate", F.lit("begun"))).unionAll(gone)
    counts = [F.count_if(F.col("way") == way).alias(way) for way in WAYS]
    return rows.groupBy(*keys, "attempt").agg(F.sum("risk").alias("at_risk"), *counts)


def count_by_time(histories: DataFrame, settled_ms: int, *keys: str) -> DataFrame:
    """Count what was decided within each step of time since the first failure.

    Reads keys, `fate`, `watched_ms`, `first_failed_ms` of `retry.analytics.questions.fates`. Gives keys, `step` (of 9 %),
    `left` (with it, decided or not), `recovered`, `parked`, `expired`.
    """
    limit_ms = F.lit(settled_ms) - F.col("first_failed_ms")
    is_decided = F.col("fate").isin(*WAYS) & (F.col("watched_ms") <= limit_ms)
    steps = F.log2(F.greatest(F.least("watched_ms", limit_ms), F.lit(1)).cast("double")) * STEPS_PER_DOUBLING
    # What is decided in a step counts at its end. Who was not watched up to there is not at risk in it.
    step = F.when(is_decided, F.ceil(steps)).otherwise(F.floor(steps))
    return (
        histories.where(limit_ms >= 0)
        .groupBy(*keys, step.alias("step"))
        .agg(F.count("*").alias("left"), *[F.count_if(is_decided & (F.col("fate") == way)).alias(way) for way in WAYS])
    )


def _given_up() -> Column:
    return F.when(F.col("reason") == "max_age", "expired").otherwise("parked")


# How retries ended, counted as finely as `retry.analytics.advice` needs it and no finer: the driver takes the whole answer.

_HOUR_MS = 3_600_000
# First failures of one team and exception without a pause of an hour, cut after six.
_BUCKET_MS, _PAUSE_BUCKETS, _BLOCK_BUCKETS = 900_000, 4, 24
_PERCENTILE_ACCURACY = 1_000
_STRATUM = ("team", "exception", "topic", "policy")
# Names come from letters, and there may be any number of them: beyond so many kinds, exceptions are one.
KINDS_MAX = 1_000


def merge_small_kinds(frame: DataFrame, attempts: DataFrame) -> DataFrame:
    """Name the exception of a frame's rows `OTHER`, but for the 1,000 kinds that have most retries; as it is where there are no
    more. Kinds are of a `team` and an `exception`, and one frame of attempts says for all frames which are the largest."""
    kinds = attempts.groupBy("team", "exception").agg(F.count("*").alias("retries"))
    if kinds.limit(KINDS_MAX + 1).count() <= KINDS_MAX:
        return frame
    largest = kinds.orderBy(F.desc("retries"), "team", "exception").limit(KINDS_MAX)
    named = largest.select(F.col("team").alias("_team"), F.col("exception").alias("_name"), F.lit(True).alias("_is_large"))
    same = F.col("team").eqNullSafe(F.col("_team")) & F.col("exception").eqNullSafe(F.col("_name"))
    exception = F.when(F.col("_is_large"), F.col("exception")).otherwise(OTHER)
    joined = frame.join(F.broadcast(named), on=same, how="left")
    return joined.withColumn("exception", exception).drop("_team", "_name", "_is_large")


def count_cells(attempts: DataFrame, settled_ms: int) -> DataFrame:
    """Count how the retries of each kind of failure ended, by attempt, delay and age.

    What failed after `settled_ms`, less than the settle time before the end of observation, counts as unknown like what may have
    recovered since: failures are known sooner, and late attempts would look worse than they are. What operators returned is left
    out: no policy has made that retry.

    Reads `team`, `exception`, `cause`, `topic`, `first_policy`, `attempt`, `delay_ms`, `due_ms`, `first_failed_ms`, `fate`,
    `ended_ms`, `bytes`, `returned`. Gives `team`, `exception`, `topic`, `policy` (that decided on the letter first), `attempt`,
    `delay_ms` and `age_ms` (from the first failure to the retry; both are medians of those that are within 41 % of each other),
    `recovered`, `failed`, `unknown`, `bytes`, and `is_cause`: whether the exception was the root cause of every one.
    """
    return (
        attempts.where("not returned").withColumns({"age_ms": _age_ms(), "policy": F.col("first_policy")})
        .groupBy(*_STRATUM, "attempt", _bin("delay_ms").alias("delay_bin"), _bin("age_ms").alias("age_bin"))
        .agg(
            F.percentile_approx("delay_ms", 0.5, _PERCENTILE_ACCURACY).alias("delay_ms"),
            F.percentile_approx("age_ms", 0.5, _PERCENTILE_ACCURACY).alias("age_ms"), *_count_ends(settled_ms),
            F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"),
            F.bool_and(F.coalesce(F.col("exception") == F.col("cause"), F.lit(False))).alias("is_cause"),
        )
        .drop("delay_bin", "age_bin")
    )  # fmt: skip


def count_episodes(attempts: DataFrame, settled_ms: int) -> DataFrame:
    """Count how the retries of each kind of failure ended, by episode of its first failures, see `retry.analytics.episodes`.

    Letters are counted by a quarter of an hour, and only these counts are put in order: so no task sees all letters of a kind.
    Reads what `count_cells` does, and `passed_ms`, `sent_ms`. Gives `team`, `exception`, `topic`, `policy`, `run_ms`, `block`,
    `attempt`, `start_ms`, `end_ms`, `recovered`, `failed`, `unknown`, `overdue`, `longest_ms` as in `Episode` and `Ends`.
    """
    sums = ("recovered", "failed", "unknown", "overdue")
    by_quarter = (
        attempts.where("not returned").withColumn("policy", F.col("first_policy"))
        .groupBy(*_STRATUM, "attempt", F.floor(F.col("first_failed_ms") / _BUCKET_MS).alias("bucket"))
        .agg(
            F.min("first_failed_ms").alias("start_ms"), F.max("first_failed_ms").alias("end_ms"),
            *_count_ends(settled_ms), F.count_if(is_overdue(settled_ms)).alias("overdue"),
            F.max(F.when(F.col("fate") == "recovered", _age_ms())).alias("longest_ms"),
        )
    )  # fmt: skip
    of_kind = Window.partitionBy("team", "exception").orderBy("bucket")
    before = F.max("bucket").over(of_kind.rangeBetween(Window.unboundedPreceding, -1))
    begins = F.when(before.isNull() | (F.col("bucket") - before > _PAUSE_BUCKETS), F.col("bucket"))
    run = F.max("begins").over(of_kind.rangeBetween(Window.unboundedPreceding, 0))
    block = F.floor((F.col("bucket") - F.col("run")) / _BLOCK_BUCKETS)
    in_runs = by_quarter.withColumn("begins", begins).withColumn("run", run).withColumn("block", block)
    return in_runs.groupBy(*_STRATUM, (F.col("run") * _BUCKET_MS).alias("run_ms"), "block", "attempt").agg(
        F.min("start_ms").alias("start_ms"), F.max("end_ms").alias("end_ms"), *[F.sum(each).alias(each) for each in sums],
        F.coalesce(F.max("longest_ms"), F.lit(0)).alias("longest_ms"),
    )  # fmt: skip


def _age_ms() -> Column:
    """Compute the time from the first failure to the retry."""
    return F.greatest(F.col("due_ms") - F.col("first_failed_ms"), F.lit(0))


def _count_ends(settled_ms: int) -> list[Column]:
    """Count retries that `recovered`, `failed` by then, or have no known end: what failed later is not counted as failed."""
    has_recovered, has_failed = F.col("fate") == "recovered", (F.col("fate") == "failed") & (F.col("ended_ms") <= settled_ms)
    ends = {"recovered": has_recovered, "failed": has_failed, "unknown": ~(has_recovered | has_failed)}
    return [F.count_if(is_so).alias(name) for name, is_so in ends.items()]


def is_overdue(settled_ms: int) -> Column:
    """Whether a retry was sent more than an hour before, neither failed, nor was passed by its group as far as is known."""
    sent_ms = F.coalesce("sent_ms", "due_ms")
    return (F.col("fate") == "pending") & F.col("passed_ms").isNull() & (sent_ms <= settled_ms - _HOUR_MS)


def count_unwatched(attempts: DataFrame, settled_ms: int) -> DataFrame:
    """Count pending retries that no sample of their group has passed yet: `team`, `topic` they were sent to, and `retries`."""
    overdue = attempts.where(is_overdue(settled_ms)).groupBy("team", F.col("target").alias("topic"))
    return overdue.agg(F.count("*").alias("retries"))


def count_starts(histories: DataFrame) -> DataFrame:
    """Count by hour when letters of each kind failed first: what a policy file is tried on.

    Reads `team`, `topic`, `first_policy`, `exception`, `is_cause`, `first_failed_ms`. Gives `team`, `topic`, `policy` (that
    decided on the first retry), `exception`, `is_cause`, `hour_ms`, `letters`.
    """
    keys = ("team", "topic", "exception", "is_cause", "policy")
    return (
        histories.withColumn("policy", F.col("first_policy"))
        .groupBy(*keys, F.expr(f"first_failed_ms - pmod(first_failed_ms, {_HOUR_MS})").alias("hour_ms"))
        .agg(F.count("*").alias("letters"))
        .select(*keys, "hour_ms", "letters")
    )


def _bin(milliseconds: str) -> Column:
    return F.floor(F.log2(F.greatest(F.col(milliseconds), F.lit(1)).cast("double")) * BINS_PER_DOUBLING)
