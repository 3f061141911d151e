"""`python -m tests.bench.analytics`: generated events → Parquet → attempts; how long it takes, and in how much memory.

    python -m tests.bench.analytics [--events N] [--memory 2g] [--keep DIR [--quick]]

| step | what is done |
| --- | --- |
| session | Java and Spark are started |
| generate | letters, retries and positions of three teams over a week, as `retry analytics ingest` lays them down |
| attempts | every decision to retry and what became of it, counted by team, attempt and fate |
| letters | what became of each original record |
| read | the folders are listed, and the end of observation is read |
| frames | what became of every retry and of every letter, kept for the questions |
| advice | how retries ended, counted as finely as the advice needs it |
| questions | every answer of `retry analytics report` |

Beside each stand the processor time of the Java process so far, which says more than seconds where others work beside it, and
the jobs that Spark ran and the plans that it made. `--quick` measures the last four alone, in a session as
`retry analytics report` starts it, which is what a report on few letters costs.

An event is a letter, a retry that was sent, or a sample of a committed offset. Who recovers at which attempt follows from the
generator; exit code 1 says that something else was found. Memory is the greatest resident size of the Java process.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 what every Spark programmer reads

from retry.analytics import attempts, datasets
from retry.analytics.decisions import decisions
from retry.analytics.decode import day
from retry.analytics.findings import findings
from retry.analytics.folder_names import laid_out
from retry.analytics.questions import cells
from retry.analytics.questions.histories import histories
from retry.analytics.schemas import LETTER, POSITION, SENT
from retry.analytics.spark_session import session
from tests.support.events import KINDS, SETTLE_MS, START_MS, Kind

from . import machine

_WEEK_MS = 7 * 86_400_000
_LATE_MS, _AGAIN_MS, _SAMPLE_MS, _PARTITIONS = 25, 100, 10_000, 4
_DRAWS = float(1 << 63)
_POSITIONS = len(KINDS) * _PARTITIONS * _WEEK_MS // _SAMPLE_MS
_UNTIL_MS = START_MS + _WEEK_MS + 2 * SETTLE_MS + max(sum(kind.delays_ms) for kind in KINDS)
# Letters and retries that an original record of these kinds leaves on average; the rest is printed as it came out.
_EACH = 9.85
_Answer = TypeVar("_Answer")


def main() -> int:
    """Generate, ask, compare; 1 where the truth was not found."""
    asked = _arguments()
    print(machine.describe(), flush=True)
    lives = max(1_000, int((asked.events - min(_POSITIONS, asked.events // 4)) / _EACH))
    with tempfile.TemporaryDirectory(prefix="retry-analytics-") as folder:
        began_s = time.monotonic()
        with session("bench", memory=asked.memory, quick=asked.quick) as spark:
            _said("session", began_s, spark)
            return (_report if asked.quick else _measure)(spark, asked.keep or folder, lives)


def _measure(spark: SparkSession, data: str, lives: int) -> int:
    alive = _lives(spark, lives)
    _timed("generate", lambda: _write(alive, data), spark)
    found = datasets.from_parquet(spark, data)
    events = [frame.count() for frame in found[:3]]
    print(f"{sum(events):,} events: {events[0]:,} letters, {events[1]:,} retries, {events[2]:,} positions", flush=True)
    made = attempts.attempts(found.letters, found.sent, found.positions, until_ms=_UNTIL_MS)
    fates = _timed("attempts", lambda: made.groupBy("team", "attempt", "fate").count().collect(), spark)
    by_letter = histories(made, attempts.parked(found.letters))
    ended = _timed("letters", lambda: by_letter.groupBy("team", "fate").count().collect(), spark)
    _report(spark, data, lives)
    recovered = {(row["team"], row["attempt"]): row["count"] for row in fates if row["fate"] == "recovered"}
    truth = alive.where("recovered").groupBy("team", "last").count().collect()
    wrong = recovered != {(row["team"], row["last"]): row["count"] for row in truth} or sum(r["count"] for r in ended) != lives
    print(f"recovered {sum(recovered.values()):,} of {lives:,}: {'NOT what was generated' if wrong else 'as generated'}")
    return int(wrong)


def _report(spark: SparkSession, data: str, lives: int) -> int:
    """As `retry analytics report` asks; 1 where it counts other letters than there are in the folder."""
    found = _timed("read", lambda: datasets.from_parquet(spark, data), spark)
    made = _timed("frames", lambda: decisions(found, settle_ms=SETTLE_MS), spark)
    _timed("advice", lambda: cells.cells(made.attempts, made.settled_ms).collect(), spark)
    answers = _timed("questions", lambda: findings(spark, made), spark)
    return int(answers["totals"]["letters"] != lives)


def _lives(spark: SparkSession, count: int) -> DataFrame:
    """Each original record: whose, and at which attempt it recovered, or that it was parked after the last."""
    whole = spark.range(count).withColumn("kind", F.col("id") % len(KINDS))
    frames = [_of_kind(whole.where(F.col("kind") == n), kind, count) for n, kind in enumerate(KINDS)]
    return frames[0].unionByName(frames[1]).unionByName(frames[2])


def _of_kind(whole: DataFrame, kind: Kind, count: int) -> DataFrame:
    most = len(kind.delays_ms)
    succeeds = [_draw(k) < kind.recovers(k, delay_ms) for k, delay_ms in enumerate(kind.delays_ms, 1)]
    first = F.array_position(F.array(*succeeds), True)
    return whole.select(
        F.col("id").alias("n"),
        F.lower(F.lpad(F.hex("id"), 16, "0")).alias("id"),
        F.lit(kind.team).alias("team"),
        F.lit(kind.exception).alias("exception"),
        F.array(*map(F.lit, kind.delays_ms)).cast("array<long>").alias("delays"),
        F.when(first > 0, first).otherwise(most + 1).alias("last"),
        (first > 0).alias("recovered"),
        (START_MS + F.floor(F.col("id") * (_WEEK_MS / count))).alias("first_failed_ms"),
    )


def _draw(attempt: int) -> Column:
    return (F.xxhash64(F.lit(attempt), F.col("id")).bitwiseAND(F.lit((1 << 63) - 1))) / F.lit(_DRAWS)


def _write(alive: DataFrame, data: str) -> None:
    letters = _letters(alive)
    for name, frame, when_ms, folders in (
        (datasets.LETTERS, letters, "taken_ms", ("day", "team")),
        (datasets.RETRIES, _sent(letters), "sent_ms", ("day", "team")),
        (datasets.POSITIONS, _positions(alive.sparkSession), "at_ms", ("day",)),
    ):
        dated = laid_out(frame.withColumn("day", day(when_ms)))
        dated.repartition(*folders).write.partitionBy(*folders).parquet(f"{data}/{name}")
    alive.sparkSession.range(1).select(F.lit(_UNTIL_MS).alias("until_ms")).write.parquet(f"{data}/{datasets.HORIZON}")


def _letters(alive: DataFrame) -> DataFrame:
    """A decision for each attempt; after the last delay, to park."""
    attempt, most = F.col("attempt"), F.size("delays")
    waited = F.aggregate(F.slice("delays", 1, attempt - 1), F.lit(0).cast("long"), lambda x, y: x + y)
    due_ms = F.when(attempt <= most, F.col("failed_ms") + F.element_at("delays", F.least(attempt, most)))
    retried = F.col("due_ms").isNotNull()
    each = alive.withColumn("attempt", F.explode(F.sequence(F.lit(1).cast("long"), F.col("last").cast("long"))))
    # Delay by delay, and how late each was sent and how long its consumer took.
    each = each.withColumn("attempt", attempt.cast("int"))
    each = each.withColumn("failed_ms", F.col("first_failed_ms") + waited + (attempt - 1) * (_LATE_MS + _AGAIN_MS))
    each = each.withColumn("due_ms", due_ms)
    return each.select(
        F.lit(2).cast("long").alias("v"), "id", F.concat_ws("/", "team", F.col("n").cast("string"),
        attempt.cast("string")).alias("source"), "team",
        F.concat("team", F.lit(".DLT")).alias("topic"), F.concat("team", F.lit("/x")).alias("policy"),
        attempt.cast("long").alias("attempt"), "exception", "first_failed_ms", "failed_ms",
        (F.col("failed_ms") + 20).alias("taken_ms"),
        F.when(retried, "retry").otherwise("park").alias("decision"), F.when(~retried, "max_attempts").alias("reason"),
        "due_ms",
        F.concat("team", F.when(retried, ".retry").otherwise(".parked")).alias("target"), F.col("exception").alias("cause"),
        F.substring(F.sha1("exception"), 1, 16).alias("fingerprint"), F.concat("team", F.lit("-service")).alias("group"),
        (F.col("due_ms") - F.col("failed_ms")).alias("delay_ms"), F.lit("app-outcomes").alias("kafka_topic"),
        (F.col("n") % _PARTITIONS).alias("kafka_partition"), (F.col("n") * 10 + attempt).alias("kafka_offset"),
    ).select(*LETTER.names)  # fmt: skip


def _sent(letters: DataFrame) -> DataFrame:
    """Every retry, sent a little late; its offset is its time, which is in order and leaves gaps as transactions do."""
    sent_ms = F.col("due_ms") + _LATE_MS
    return letters.where("due_ms is not null").select(
        F.col("target").alias("topic"), F.col("kafka_partition").alias("partition"), (sent_ms - START_MS).alias("offset"),
        "id", "attempt", "due_ms", sent_ms.alias("sent_ms"), sent_ms.alias("timestamp_ms"),
        F.lit(500).cast("long").alias("bytes"), "team",
    ).select(*SENT.names)  # fmt: skip


def _positions(spark: SparkSession) -> DataFrame:
    """Each partition every 10 s: a group that is never behind."""
    until_ms = _WEEK_MS + max(sum(kind.delays_ms) for kind in KINDS) + 4 * _SAMPLE_MS
    teams = F.array(*[F.lit(kind.team) for kind in KINDS])
    each = spark.range(0, until_ms, _SAMPLE_MS).select(F.col("id").alias("offset"), F.explode(teams).alias("team"))
    each = each.withColumn("partition", F.explode(F.array(*[F.lit(n).cast("long") for n in range(_PARTITIONS)])))
    return each.select(
        F.lit(1).cast("long").alias("v"), F.lit("position").alias("kind"), F.concat("team", F.lit("-service")).alias("group"),
        F.concat("team", F.lit(".retry")).alias("topic"), "partition", "offset", (F.col("offset") + START_MS).alias("at_ms"),
        F.lit("app-outcomes").alias("kafka_topic"), F.lit(0).cast("long").alias("kafka_partition"),
        F.col("offset").alias("kafka_offset"),
    ).select(*POSITION.names)  # fmt: skip


def _timed(name: str, work: Callable[[], _Answer], spark: SparkSession) -> _Answer:
    began_s = time.monotonic()
    answer = work()
    _said(name, began_s, spark)
    return answer


def _said(name: str, began_s: float, spark: SparkSession) -> None:
    jobs, plans = _jobs_and_plans(spark)
    took = f"{time.monotonic() - began_s:7.1f} s   {_cpu_s(spark):7.1f} s of processors   {_resident_mb(spark):6,} MB"
    print(f"{name:<10} {took}   {jobs:4} jobs, {plans:3} plans so far", flush=True)


def _jobs_and_plans(spark: SparkSession) -> tuple[int, int]:
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None).size()  # type: ignore[union-attr]
    return jobs, spark._jsparkSession.sharedState().statusStore().executionsCount()


def _cpu_s(spark: SparkSession) -> float:
    fields = (_process(spark) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(spark: SparkSession) -> int:
    status = (_process(spark) / "status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) // 1_024


def _process(spark: SparkSession) -> Path:
    return Path("/proc") / str(spark.sparkContext._jvm.ProcessHandle.current().pid())  # type: ignore[union-attr]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.analytics")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--memory", default="2g", help="of the Java process")
    parser.add_argument("--keep", metavar="DIR", help="leave the sets in this folder")
    parser.add_argument("--quick", action="store_true", help="ask the sets that --keep left for so many events")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
