"""The answers to every question of the report, as plain values: what the page and the text show, and what `--json` prints."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from retry.analytics import datasets, decode, spark_session
from retry.analytics.decisions import Decisions, build_decisions, configure_for_questions
from retry.analytics.questions import fates, fingerprints, policies, recovery
from retry.analytics.schemas import LETTER, POSITION, SENT, lay_out_rows

# The driver takes the answers: names come from letters, and there may be any number of them.
_ROWS_MAX, _CURVES_MAX = 100, 20
_STEPS, _FINGERPRINT_STEPS, _MINUTE_MS = 240, 60, 60_000
# Letters that say they failed so long before most others have a clock that is wrong, or were left from another time.
_ODD_MS = 90 * 86_400_000
# The first of these parts of the letters that is more than one letter.
_FIRST_PARTS = (0.05, 0.1, 0.25, 0.51)
# For a few thousand letters most of the time is planning, and each question is planned by one thread.
_QUESTIONS_AT_ONCE = 4
_FATES = ("letters", "recovered", "parked", "expired", "discarded", "unknown", "waiting")
_ENDS = (*_FATES, "retries", "recovery", "recovery_low", "recovery_high", "episodes")
_WASTE = ("retries", "wasted", "bytes", "wasted_bytes")
_TIMES = ("p50_ms", "p90_ms", "p99_ms", "max_ms")
Rows = list[dict[str, Any]]


def findings(
    spark: SparkSession, decisions: Decisions, retentions: Mapping[str, int] | None = None, before: Decisions | None = None
) -> dict[str, Any]:
    """Answer every question by name with a list of rows, the largest first; for columns see `retry.analytics.questions`.

    Args:
      retentions: by topic, how many milliseconds it keeps records, below 0 for ever; None where it is unknown.
      before: the period before, as it was known at its end.
    """
    with configure_for_questions(decisions, *([] if before is None else [before])):
        begun, odd = _find_begin(decisions)
        return _answer_questions(spark, begun, retentions, before) | {"odd": odd}


def select_team(decisions: Decisions, team: str) -> Decisions:
    """Select the decisions on the letters of one team."""
    frames = {name: getattr(decisions, name).where(F.col("team") == team) for name in ("attempts", "parked", "histories")}
    return decisions._replace(**frames)


def _find_begin(decisions: Decisions) -> tuple[Decisions, dict[str, int | None]]:
    """Let the period begin with the letters that belong together, and count those that say they failed long before."""
    odd: dict[str, int | None] = {"letters": 0, "first_ms": None}
    since_ms, until_ms = decisions.since_ms, decisions.until_ms
    if until_ms - since_ms <= _ODD_MS:
        return decisions, odd
    first_ms, histories = F.col("first_failed_ms"), decisions.histories
    sums = F.count("*"), F.percentile_approx(first_ms, list(_FIRST_PARTS)), F.min(first_ms)
    letters, parts_ms, least_ms = histories.agg(*sums).collect()[0]
    usual_ms = next((ms for part, ms in zip(_FIRST_PARTS, parts_ms, strict=True) if part * letters > 1), parts_ms[-1])
    # What lies further back than twice the time of all others.
    limit_ms = usual_ms - max(until_ms - usual_ms, _ODD_MS)
    if least_ms >= limit_ms:
        return decisions, odd
    early, begin_ms = histories.agg(F.count_if(first_ms < limit_ms), F.min(F.when(first_ms >= limit_ms, first_ms))).collect()[0]
    return decisions._replace(since_ms=begin_ms), {"letters": early, "first_ms": least_ms}


def _answer_questions(
    spark: SparkSession, decisions: Decisions, retentions: Mapping[str, int] | None, before: Decisions | None
) -> dict[str, Any]:
    attempts, parked, histories = decisions.attempts, decisions.parked, decisions.histories
    since_ms, until_ms, settled_ms = decisions.since_ms, decisions.until_ms, decisions.settled_ms
    is_within = F.col("minute_ms").between(since_ms - _MINUTE_MS, until_ms)
    minutes = fingerprints.count_per_minute(attempts).where(is_within).persist()
    # Not persisted: Spark plans that a second time where less of it is asked.
    top = fingerprints.find_top_fingerprints(attempts, parked, since_ms, until_ms).localCheckpoint(eager=False)
    by_policy = ("team", "policy")

    def teams() -> dict[str, float]:
        """Return the teams with most letters, and for each how many letters count as one independent letter."""
        return {row["team"]: row["effect"] for row in letters.result()["team"][:_CURVES_MAX]}

    def is_assumed() -> bool:
        return bool(letters.result()["all"][0]["assumed"])

    questions: dict[str, Callable[[], Any]] = {
        "not_counted": lambda: _collect_rows(decisions.aside.groupBy("why").agg(F.count("*").alias("records")).orderBy("why")),
        "acted": lambda: _largest(fates.count_acted_by_kind(attempts, parked), "letters", "team", "action_kind"),
        "parked_by_reason": lambda: _largest(policies.count_parked_by_reason(parked), "letters", *by_policy, "reason"),
        "changed": lambda: [] if before is None else _describe_changes(decisions, before),
        "totals_before": lambda: None if before is None else _sum_letters(before),
        "unsampled": lambda: _largest(_count_unsampled(attempts), "retries", *by_policy, "target") if is_assumed() else [],
        "fingerprints": lambda: _explain_rows(
            _collect_rows(top), _collect_rows(fingerprints.find_samples(attempts, parked, top))
        ),
        "fingerprints_over_time": lambda: _over_time(decisions, top),
        "lateness": lambda: _largest(policies.measure_lateness(attempts), "p99_ms", *by_policy),
        "storms": lambda: _largest(fingerprints.find_storms(minutes, since_ms, until_ms), "times", "team", "minute_ms"),
        "incidence_by_attempt": lambda: _curves(
            recovery.build_attempt_curves, recovery.count_by_attempt(attempts, parked, settled_ms, "team"), teams()
        ),
        "incidence_by_time": lambda: _curves(
            recovery.build_time_curves, recovery.count_by_time(histories, settled_ms, "team"), teams()
        ),
        "unwatched": lambda: _largest(recovery.count_unwatched(attempts, settled_ms), "retries", "team", "topic"),
        "retries_over_time": lambda: _busiest(minutes, decisions, [*teams()]),
        "near_retention": lambda: _near_retention(spark, decisions, retentions or {}),
    }
    with ThreadPoolExecutor(_QUESTIONS_AT_ONCE) as pool:
        # First, since others wait for it: curves are those of the teams with most letters.
        letters = pool.submit(_letter_sums, histories)
        answers = {name: pool.submit(question) for name, question in questions.items()}
        return {
            "period": {"since_ms": since_ms, "until_ms": until_ms},
            "before": before and {"since_ms": before.since_ms, "until_ms": before.until_ms},
            **_of_letters(letters.result()),
            **{name: answer.result() for name, answer in answers.items()},
            "retention_known": bool(retentions),
        }


def _letter_sums(histories: DataFrame) -> dict[str, Rows]:
    found: dict[str, Rows] = {"all": [], "team": [], "policy": [], "exception": []}
    for row in policies.sum_largest_groups(histories, _ROWS_MAX).collect():
        found[row["of"]].append(policies.bound_recovery(row.asDict()))
    return {of: _group_rows(rows, "letters") for of, rows in found.items()}


def _of_letters(sums: Mapping[str, Rows]) -> dict[str, Any]:
    (totals,) = sums["all"]
    recovered = [row for row in _group_rows(sums["policy"], "recovered") if row["recovered"]]
    return {
        "totals": _take_totals(totals),
        "teams": [{"team": row["team"]} | _take_totals(row) for row in sums["team"][:_ROWS_MAX]],
        # Counted as recovered, though no sample says what their consumer groups have committed.
        "assumed": totals["assumed"],
        "time_to_recovery": _cut(recovered, "team", "policy", "recovered", *_TIMES),
        "waste": _cut(_group_rows(sums["exception"], "wasted", "retries"), "team", "exception", *_WASTE),
        "comparison": _cut(sums["policy"], "team", "policy", *_ENDS),
    }


def _take_totals(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in (*_ENDS, *_WASTE[1:], *_TIMES)}


def _sum_letters(decisions: Decisions) -> dict[str, Any] | None:
    rows = _letter_sums(decisions.histories)["all"]
    return _take_totals(rows[0]) if rows and rows[0]["letters"] else None


def _count_unsampled(attempts: DataFrame) -> DataFrame:
    """Count retries that were sent to consumer groups of which no sample tells."""
    sent = attempts.where("assumed and fate in ('recovered', 'pending')")
    return sent.groupBy("team", "policy", "target").agg(F.count("*").alias("retries"))


def _group_rows(rows: Rows, *columns: str) -> Rows:
    names = ("team", "policy", "exception")
    return sorted(rows, key=lambda row: ([-row[each] for each in columns], [row[each] or "" for each in names]))


def _cut(rows: Rows, *columns: str) -> Rows:
    return [{name: row[name] for name in columns} for row in rows[:_ROWS_MAX]]


def _curves(build: Callable[..., Rows], counts: DataFrame, teams: Mapping[str, float]) -> Rows:
    curves = build(_collect_rows(counts.where(F.col("team").isin([*teams])), _CURVES_MAX * 1_000), "team", effects=teams)
    return sorted(curves, key=lambda row: [*teams].index(row["team"]))


def _over_time(decisions: Decisions, top: DataFrame) -> Rows:
    since_ms, until_ms = decisions.since_ms, decisions.until_ms
    step_ms = -(-(until_ms - since_ms + 1) // _FINGERPRINT_STEPS)
    frame = fingerprints.count_over_time(decisions.attempts, decisions.parked, top, since_ms, until_ms, _FINGERPRINT_STEPS)
    rows = _collect_rows(frame.orderBy("team", "exception", "fingerprint", "at_ms"), _ROWS_MAX * _FINGERPRINT_STEPS)
    return [{**row, "until_ms": row["at_ms"] + step_ms} for row in rows]


def _busiest(minutes: DataFrame, decisions: Decisions, teams: list[str]) -> Rows:
    """Find each team's busiest minute in each step of time, so that a storm of one minute is seen in a month."""
    step_ms = max(_MINUTE_MS, -(-(decisions.until_ms - decisions.since_ms) // _STEPS // _MINUTE_MS) * _MINUTE_MS)
    busiest = (
        minutes.where(F.col("team").isin(teams))
        .groupBy("team", F.expr(f"minute_ms - pmod(minute_ms, {step_ms})").alias("step_ms"))
        .agg(F.max_by("minute_ms", "sent").alias("minute_ms"), F.max("sent").alias("sent"))
        .select("team", "minute_ms", "sent")
    )
    return _collect_rows(busiest.orderBy("team", "minute_ms"), _CURVES_MAX * (_STEPS + 2))


def _describe_changes(decisions: Decisions, before: Decisions) -> Rows:
    both = decisions, before
    sums = (policies.count_by_policy(each.histories, _ROWS_MAX) for each in both)
    return policies.compare_periods(*sums, *(policies.list_policy_doings(each.attempts, each.parked) for each in both))[
        :_ROWS_MAX
    ]


def _explain_rows(top: Rows, samples: Rows) -> Rows:
    """With the letters, and the commands that tell of them. A topic's name may come from a record that a stranger wrote."""
    key = itemgetter("team", "exception", "fingerprint")
    places = {key(row): row["samples"] for row in samples}
    rows = []
    for row in top:
        found = places[key(row)]
        shown = {name: value for name, value in row.items() if name not in ("first_ms", "parked_ms")}
        rows.append({**shown, "samples": found, "explain": [f"retry explain {shlex.quote(each)}" for each in found]})
    return rows


def _near_retention(spark: SparkSession, decisions: Decisions, retentions: Mapping[str, int]) -> Rows:
    if not retentions:
        return []
    # Not `createDataFrame`, which starts a Python process for each core.
    by_topic = F.map_from_arrays(F.lit(list(retentions)), F.lit(list(retentions.values())).cast("array<long>"))
    topics = spark.range(1).select(F.explode(by_topic).alias("topic", "retention_ms"))
    expiring = fates.find_near_retention(decisions.attempts, decisions.parked, topics, decisions.until_ms)
    return _collect_rows(expiring.orderBy("left_ms", "team", "topic", "kind"))


def _largest(frame: DataFrame, column: str, *then: Any) -> Rows:
    return _collect_rows(frame.orderBy(F.desc(column), *then))


def _collect_rows(frame: DataFrame, most: int = _ROWS_MAX) -> Rows:
    return [row.asDict() for row in frame.limit(most).collect()]


_MADE_UP = {datasets.LETTERS: (LETTER, "taken_ms"), datasets.RETRIES: (SENT, "sent_ms"), datasets.POSITIONS: (POSITION, "at_ms")}


def prepare() -> Path:
    """Find the file of the present Java and Spark, or make it; raises RetryError where Java did not make it."""
    return spark_session.find_archive() or spark_session.create_archive(_run_report)


def _run_report(java: str) -> None:
    with tempfile.TemporaryDirectory(prefix="retry-prepare-") as data:
        with spark_session.open_session("retry-prepare", kafka=False, java=java) as spark:
            for name, (schema, when_ms) in _MADE_UP.items():
                _write(spark, f"{data}/{name}", schema, when_ms)
            made = build_decisions(datasets.read_parquet(spark, data).select_period(), settle_ms=0)
            recovery.count_cells(made.attempts, made.settled_ms).collect()
            recovery.count_episodes(made.attempts, made.settled_ms).collect()
            findings(spark, made, {"x": 1}, made)
        spark_session.end_java()


def _write(spark: SparkSession, folder: str, schema: StructType, when_ms: str) -> None:
    values: dict[str, Any] = {"decision": "retry", "attempt": 1}
    usual = {"string": "x", "bigint": 1_000}
    columns = [F.lit(values.get(field.name, usual[field.dataType.simpleString()])).cast(field.dataType).alias(field.name)
               for field in schema.fields]  # fmt: skip
    made = lay_out_rows(spark.range(1).select(*columns).withColumn("day", decode.find_day(when_ms)))
    made.write.partitionBy(*{"day", "team"} & {*made.columns}).parquet(folder)
