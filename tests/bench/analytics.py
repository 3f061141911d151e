"""`python -m tests.bench.analytics`: generated events → Parquet → attempts; how long it takes, and in how much memory.

    python -m tests.bench.analytics [--events N] [--memory 1200m] [--keep DIR [--quick]]

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
| command | `retry analytics report` in a process of its own, from its start to the page |

Beside each stand its seconds, its processor time, which says more than seconds where others work beside it, and the most memory
that was resident meanwhile, both of Python and Java together; and the jobs that Spark ran and the plans that it made so far.
`--quick` measures the last five alone, in a session as `retry analytics report` starts it, which is what a report on few letters
costs.

An event is a letter, a retry that was sent, or a sample of a committed offset. Who recovers at which attempt follows from the
generator; exit code 1 says that something else was found. The last line has seconds and memory of the whole report, `read` to
`questions`.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 what every Spark programmer reads

from retry.analytics import attempts, datasets, schemas
from retry.analytics.decisions import build_decisions
from retry.analytics.decode import find_day
from retry.analytics.findings import findings
from retry.analytics.questions.fates import list_histories
from retry.analytics.schemas import LETTER, POSITION, SENT, lay_out_rows
from retry.analytics.spark_session import end_java, open_session
from retry.cli.analytics_options import counts_of
from tests.support.events import KINDS, SETTLE_MS, START_MS, Kind

from . import machine

_WEEK_MS = 7 * 86_400_000
_LATE_MS, _AGAIN_MS, _SAMPLE_MS, _PARTITIONS = 25, 100, 10_000, 4
_DRAWS = float(1 << 63)
_SUBREAPER = 36
_POSITIONS = len(KINDS) * _PARTITIONS * _WEEK_MS // _SAMPLE_MS
_UNTIL_MS = START_MS + _WEEK_MS + 2 * SETTLE_MS + max(sum(kind.delays_ms) for kind in KINDS)
# Letters and retries that an original record of these kinds leaves on average; the rest is printed as it came out.
_EACH = 9.85
# How often the command's memory is looked at.
_LOOK_S = 0.05
_Answer = TypeVar("_Answer")


class Step(NamedTuple):
    """The cost of one step, of Python and Java together."""

    seconds: float
    cpu_s: float
    most_mb: float


_STEPS: dict[str, Step] = {}
_REPORT = ("read", "frames", "advice", "questions")


def main() -> int:
    """Generate, ask, compare; 1 where the truth was not found."""
    asked = _arguments()
    print(machine.describe(), flush=True)
    lives = max(1_000, int((asked.events - min(_POSITIONS, asked.events // 4)) / _EACH))
    with tempfile.TemporaryDirectory(prefix="retry-analytics-") as folder:
        began_s, before_s = time.monotonic(), _cpu_s()
        with open_session("bench", memory=asked.memory, quick=asked.quick, kafka=False) as spark:
            note_step("session", Step(time.monotonic() - began_s, _cpu_s() - before_s, _resident_mb()), spark)
            wrong = (_report if asked.quick else _measure)(spark, asked.keep or folder, lives)
            report = [_STEPS[name] for name in _REPORT]
            together = f"{sum(each.seconds for each in report):,.1f} s, at most {max(each.most_mb for each in report):,.0f} MB"
        end_java()
        _command(asked.keep or folder, Path(folder) / "report.html", asked.memory)
        print(f"the report: {together}; in a process of its own as `command` says")
        return wrong


def _measure(spark: SparkSession, data: str, lives: int) -> int:
    alive = _lives(spark, lives)
    time_answer("generate", lambda: _write(alive, data), spark)
    found = datasets.read_parquet(spark, data)
    events = [frame.count() for frame in found[:3]]
    print(f"{sum(events):,} events: {events[0]:,} letters, {events[1]:,} retries, {events[2]:,} positions", flush=True)
    decisions = attempts.select_distinct_decisions(found.letters)
    made = attempts.compute_attempts(decisions, found.sent, found.positions, until_ms=_UNTIL_MS)
    fates = time_answer("attempts", lambda: made.groupBy("team", "attempt", "fate").count().collect(), spark)
    by_letter = list_histories(made, attempts.select_parked(decisions))
    ended = time_answer("letters", lambda: by_letter.groupBy("team", "fate").count().collect(), spark)
    _report(spark, data, lives)
    recovered = {(row["team"], row["attempt"]): row["count"] for row in fates if row["fate"] == "recovered"}
    truth = alive.where("recovered").groupBy("team", "last").count().collect()
    wrong = recovered != {(row["team"], row["last"]): row["count"] for row in truth} or sum(r["count"] for r in ended) != lives
    print(f"recovered {sum(recovered.values()):,} of {lives:,}: {'NOT what was generated' if wrong else 'as generated'}")
    return int(wrong)


def _report(spark: SparkSession, data: str, lives: int) -> int:
    """Ask what `retry analytics report` asks; return 1 where it counts other letters than there are in the folder."""
    found = time_answer("read", lambda: datasets.read_parquet(spark, data), spark)
    made = time_answer("frames", lambda: build_decisions(found.select_period(), settle_ms=SETTLE_MS), spark)
    time_answer("advice", lambda: counts_of(made), spark)
    answers = time_answer("questions", lambda: findings(spark, made), spark)
    return int(answers["totals"]["letters"] != lives)


def _command(data: str, page: Path, memory: str) -> None:
    """The command as a user calls it."""
    # Java ends after the command, and only then is its time known.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    before, began_s, most_mb = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), 0.0
    asked = ("analytics", "report", "--data", str(Path(data).absolute()), "--html", str(page), "--memory", memory)
    with subprocess.Popen([sys.executable, "-m", "retry", *asked], env=os.environ | {"RETRY_POLICIES": ""}) as command:
        while command.poll() is None:
            most_mb = max(most_mb, _resident_mb("VmRSS", command.pid))
            with suppress(subprocess.TimeoutExpired):
                command.wait(_LOOK_S)
    if command.returncode:
        raise SystemExit(f"the command ended with {command.returncode}")
    took_s = time.monotonic() - began_s
    with suppress(ChildProcessError):
        while True:
            os.wait()
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime
    print(f"{'command':<10} {took_s:7.1f} s   {cpu_s:7.1f} s of processors   {most_mb:6,.0f} MB", flush=True)


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
        # A hash, as the service makes ids: texts that begin alike take far longer to sort.
        F.lower(F.lpad(F.hex(F.xxhash64("id")), 16, "0")).alias("id"),
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
        (datasets.RETRIES, make_sent_rows(letters), "sent_ms", ("day", "team")),
        (datasets.POSITIONS, _positions(alive.sparkSession), "at_ms", ("day",)),
    ):
        dated = lay_out_rows(frame.withColumn("day", find_day(when_ms)))
        dated.repartition(*folders).write.partitionBy(*folders).parquet(f"{data}/{name}")
    watched = schemas.find_first_days(datasets.read_dated_set(alive.sparkSession, data, datasets.POSITIONS))
    schemas.write_horizon(alive.sparkSession, data, schemas.Horizon(_UNTIL_MS, watched=watched))


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
        F.lit(1).cast("long").alias("v"), "id", F.concat_ws("/", "team", F.col("n").cast("string"),
        attempt.cast("string")).alias("source"), "team",
        F.concat("team", F.lit(".DLT")).alias("topic"), F.concat("team", F.lit("/x")).alias("policy"),
        attempt.cast("long").alias("attempt"), "exception", "first_failed_ms", "failed_ms",
        (F.col("failed_ms") + 20).alias("taken_ms"),
        F.when(retried, "retry").otherwise("park").alias("decision"), F.when(~retried, "max_attempts").alias("reason"),
        "due_ms",
        F.concat("team", F.when(retried, ".retry").otherwise(".parked")).alias("target"), F.col("exception").alias("cause"),
        F.substring(F.sha1("exception"), 1, 16).alias("fingerprint"), F.concat("team", F.lit("-service")).alias("group"),
        (F.col("due_ms") - F.col("failed_ms")).alias("delay_ms"),
        *[F.lit(None).cast("string").alias(name) for name in ("action", "action_kind")],
        F.lit("app-outcomes").alias("kafka_topic"),
        (F.col("n") % _PARTITIONS).alias("kafka_partition"), (F.col("n") * 10 + attempt).alias("kafka_offset"),
    ).select(*LETTER.names)  # fmt: skip


def make_sent_rows(letters: DataFrame) -> DataFrame:
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


def time_answer(name: str, work: Callable[[], _Answer], spark: SparkSession) -> _Answer:
    began_s, before_s = time.monotonic(), _cpu_s()
    for pid in machine.family(os.getpid()):
        machine.forget_peak(pid)
    answer = work()
    note_step(name, Step(time.monotonic() - began_s, _cpu_s() - before_s, _resident_mb()), spark)
    return answer


def note_step(name: str, step: Step, spark: SparkSession) -> None:
    jobs, plans = _jobs_and_plans(spark)
    took = f"{step.seconds:7.1f} s   {step.cpu_s:7.1f} s of processors   {step.most_mb:6,.0f} MB"
    print(f"{name:<10} {took}   {jobs:4} jobs, {plans:3} plans so far", flush=True)
    _STEPS[name] = step


def _jobs_and_plans(spark: SparkSession) -> tuple[int, int]:
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None).size()  # type: ignore[union-attr]
    return jobs, spark._jsparkSession.sharedState().statusStore().executionsCount()


def _cpu_s() -> float:
    return sum(map(machine.cpu_s, machine.family(os.getpid())))


def _resident_mb(field: str = "VmHWM", pid: int = 0) -> float:
    """Sum over a process and all that it has started: resident now, or what each had at most, which is more than all had at
    one time; 0 where one of them is just ending."""
    with suppress(OSError):
        return sum(machine.rss_mb(each, field) for each in machine.family(pid or os.getpid()))
    return 0.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.analytics")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--memory", default="1200m", help="of the Java process")
    parser.add_argument("--keep", metavar="DIR", help="leave the sets in this folder")
    parser.add_argument("--quick", action="store_true", help="ask the sets that --keep left for so many events")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
