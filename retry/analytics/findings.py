"""The answers to all questions, as plain values: what the page shows, and what `--json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retry.analytics import transforms
from retry.analytics.decisions import Decisions
from retry.analytics.questions import policies as comparison, fingerprints, recovery, retention, storms, survival, waste

# The driver takes the answers: names come from letters, and there may be any number of them.
_ROWS_MAX = 100
_CURVES_MAX = 20
_STEPS = 240
_MINUTE_MS = 60_000
Rows = list[dict[str, Any]]


def findings(spark: SparkSession, asked: Decisions, retentions: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Every answer by name, each a list of rows, the largest first; see `retry.analytics.questions` for their columns.

    Args:
      retentions: by topic, how many milliseconds it keeps records, below 0 for ever; None where nobody knows.
    """
    lived = asked.histories
    policies = _rows(comparison.compared(lived, "team", "policy").orderBy(F.desc("letters"), "team", "policy"))
    teams = [row["team"] for row in _rows(lived.groupBy("team").count().orderBy(F.desc("count"), "team"), _CURVES_MAX)]
    minutes = storms.per_minute(asked.attempts).persist()
    period = asked.since_ms, asked.until_ms
    top = fingerprints.top(asked.attempts, asked.parked, *period).persist()
    return {
        "period": {"since_ms": asked.since_ms, "until_ms": asked.until_ms},
        "totals": _totals(lived),
        # Recovered as far as anybody knows: nobody says what their consumer groups have committed.
        "assumed": asked.attempts.where(F.col("assumed") & (F.col("fate") == "recovered")).count(),
        "survival_by_attempt": _curves(survival.by_attempt(asked.attempts, "team"), teams, "attempt"),
        "survival_by_time": _curves(survival.by_time(lived, "team"), teams, "time_ms"),
        "time_to_recovery": _rows(
            recovery.time_to_recovery(lived, "team", "policy").orderBy(F.desc("recovered"), "team", "policy")
        ),
        "waste": _rows(waste.waste(lived, "team", "exception").orderBy(F.desc("wasted"), F.desc("retries"), "team", "exception")),
        "comparison": policies,
        "fingerprints": _rows(top),
        "fingerprints_over_time": _over_time(asked, top),
        "lateness": _rows(transforms.lateness(asked.attempts).orderBy(F.desc("p99_ms"), "team", "policy")),
        "storms": _rows(storms.storms(minutes).orderBy(F.desc("times"), "team", "minute_ms")),
        "retries_over_time": _busiest(minutes, asked, teams),
        "near_retention": _near(spark, asked, retentions or {}),
        "retention_known": bool(retentions),
    }


def _totals(lived: DataFrame) -> dict[str, Any]:
    together: dict[str, Any] = {}
    for frame in (comparison.compared(lived), waste.waste(lived)):
        together |= frame.collect()[0].asDict()
    times = _rows(recovery.time_to_recovery(lived.withColumn("all", F.lit(True)), "all"))
    return together | {name: times[0][name] if times else None for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms")}


def _curves(frame: DataFrame, teams: list[str], order: str) -> Rows:
    found = _rows(frame.where(F.col("team").isin(teams)).orderBy("team", order), _CURVES_MAX * 1_000)
    return sorted(found, key=lambda row: teams.index(row["team"]))


def _over_time(asked: Decisions, top: DataFrame) -> Rows:
    steps, period = 60, (asked.since_ms, asked.until_ms)
    step_ms = -(-(asked.until_ms - asked.since_ms + 1) // steps)
    found = fingerprints.over_time(asked.attempts, asked.parked, top, *period, steps)
    rows = _rows(found.orderBy("team", "exception", "fingerprint", "at_ms"), _ROWS_MAX * steps)
    return [{**row, "until_ms": row["at_ms"] + step_ms} for row in rows]


def _busiest(minutes: DataFrame, asked: Decisions, teams: list[str]) -> Rows:
    """Of each team the busiest minute of each step, so that a storm of one minute is seen in a month."""
    step_ms = max(_MINUTE_MS, -(-(asked.until_ms - asked.since_ms) // _STEPS // _MINUTE_MS) * _MINUTE_MS)
    step = F.expr(f"minute_ms - pmod(minute_ms, {step_ms})")
    busiest = (
        minutes.where(F.col("team").isin(teams))
        .groupBy("team", step.alias("step_ms"))
        .agg(F.max_by("minute_ms", "sent").alias("minute_ms"), F.max("sent").alias("sent"))
        .select("team", "minute_ms", "sent")
    )
    return _rows(busiest.orderBy("team", "minute_ms"), _CURVES_MAX * (_STEPS + 2))


def _near(spark: SparkSession, asked: Decisions, retentions: Mapping[str, int]) -> Rows:
    if not retentions:
        return []
    kept = spark.createDataFrame(list(retentions.items()), "topic string, retention_ms long")
    return _rows(retention.near(asked.attempts, asked.parked, kept, asked.until_ms).orderBy("left_ms", "team", "topic", "kind"))


def _rows(frame: DataFrame, most: int = _ROWS_MAX) -> Rows:
    return [row.asDict() for row in frame.limit(most).collect()]
