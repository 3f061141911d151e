"""The frames that all questions of a report read, made once, and how Spark is to ask them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import methodcaller
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retry.analytics import attempts
from retry.analytics.datasets import Datasets
from retry.analytics.questions.fates import list_histories
from retry.analytics.schemas import ATTEMPT, LETTER, PARKED
from retry.errors import RetryError

# Of a letter no question reads more.
_READ = sorted({*ATTEMPT.names, *PARKED.names, "group", "taken_ms", "action", "kafka_topic", "kafka_partition", "kafka_offset"}
               & {*LETTER.names})  # fmt: skip
# Of the files of letters, compressed: some 10,000 to 50,000 letters, and a million.
_FEW_BYTES, _MORE_BYTES = 1 << 20, 32 << 20
# Of rows that fit in memory nearly all the time would go into planning, into compiling code for a plan, and into starting tasks.
FOR_FEW_ROWS = dict.fromkeys(("spark.sql.adaptive.enabled", "spark.sql.codegen.wholeStage"), "false")
FOR_FEW_ROWS["spark.sql.shuffle.partitions"] = "1"


class Decisions(NamedTuple):
    """The decisions on the letters of a period, and what became of them.

    Attributes:
      attempts, parked: `ATTEMPT` and `PARKED`, of letters that failed first in the period.
      histories: see `retry.analytics.questions.fates`.
      aside: `ASIDE`, of all time: what could not be counted.
      since_ms, until_ms: the period: from the first of these failures to the end of observation.
      settled_ms: of a retry that its group has passed by then it is known whether it recovered.
      are_many: whether there are too many to be kept as rows.
    """

    attempts: DataFrame
    parked: DataFrame
    histories: DataFrame
    aside: DataFrame
    since_ms: int
    until_ms: int
    settled_ms: int
    are_many: bool


def build_decisions(datasets: Datasets, *, settle_ms: int, since_ms: int = 0) -> Decisions:
    """Build the frames of letters that failed first at `since_ms` or later; raises RetryError where there are none."""
    made = build_decisions_if_any(datasets, settle_ms=settle_ms, since_ms=since_ms)
    if made is None:
        raise RetryError("no letter failed first in this period: give an earlier --since, or run `retry analytics ingest` again")
    return made


def build_decisions_if_any(datasets: Datasets, *, settle_ms: int, since_ms: int = 0) -> Decisions | None:
    size = measure_bytes(datasets.letters)
    are_many = size > _MORE_BYTES
    # Kept, because all questions read them. Not too many rows are checkpointed, so that no question plans their making again;
    # more are persisted, since they take less room as columns.
    keep, keep_later = (methodcaller("persist"),) * 2 if are_many else (
        methodcaller("localCheckpoint"), methodcaller("localCheckpoint", eager=False)
    )  # fmt: skip
    spark = datasets.letters.sparkSession
    with apply_settings(spark, {} if are_many else _for_more_rows(spark) if size > _FEW_BYTES else FOR_FEW_ROWS):
        once = keep(attempts.select_distinct_decisions(datasets.letters.select(*_READ)))
        every = attempts.compute_attempts(
            once, datasets.sent, datasets.positions, settle_ms=settle_ms, until_ms=datasets.until_ms, watched=datasets.watched
        )
        is_within = F.col("first_failed_ms") >= since_ms
        retried = keep(every.where(is_within))
        parked = keep_later(attempts.select_parked(once).where(is_within))
        by_letter = keep_later(list_histories(retried, parked))
        first_ms = by_letter.agg(F.min("first_failed_ms")).collect()[0][0]
    if first_ms is None:
        return None
    return Decisions(
        attempts=retried, parked=parked, histories=by_letter, aside=datasets.aside, since_ms=int(first_ms),
        until_ms=datasets.until_ms, settled_ms=datasets.until_ms - settle_ms, are_many=are_many,
    )  # fmt: skip


@contextmanager
def configure_for_questions(*made: Decisions) -> Iterator[None]:
    """Give the Spark session, within the block, the settings that suit questions about these decisions."""
    with apply_settings(made[0].attempts.sparkSession, {} if any(each.are_many for each in made) else FOR_FEW_ROWS):
        yield


def _for_more_rows(spark: SparkSession) -> dict[str, str]:
    return {
        "spark.sql.adaptive.enabled": "false",
        # Both sides of each join are spread by lineage already: to collect one and send it to all would be slower.
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.shuffle.partitions": str(spark.sparkContext.defaultParallelism),
    }


@contextmanager
def apply_settings(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Give the Spark session these settings within the block, and the former ones after it."""
    usual = {name: str(spark.conf.get(name)) for name in conf}
    try:
        for name, value in conf.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in usual.items():
            spark.conf.set(name, value)


def measure_bytes(frame: DataFrame) -> int:
    """Measure what a frame is made of, without reading it: the files of its days; else what Spark takes it for."""
    execution = frame._jdf.queryExecution()  # type: ignore[operator]
    leaves = execution.executedPlan().collectLeaves()
    scans = [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.getClass().getSimpleName() == "FileSourceScanExec"]
    if scans:
        return sum(int(scan.selectedPartitions().totalFileSize()) for scan in scans)
    return int(str(execution.optimizedPlan().stats().sizeInBytes()))
