"""The frames that all questions of a report read, made once."""

from __future__ import annotations

from collections.abc import Mapping
from operator import methodcaller
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retry.analytics import attempts
from retry.analytics.datasets import Datasets
from retry.analytics.questions.histories import histories
from retry.analytics.schemas import ATTEMPT, LETTER, PARKED
from retry.errors import RetryError

# Of a letter no question reads more.
_READ = sorted({*ATTEMPT.names, *PARKED.names, "group", "taken_ms", "decision", "kafka_topic", "kafka_partition", "kafka_offset"}
               & {*LETTER.names})  # fmt: skip
_SMALL_ROWS, _MIDDLE_ROWS = 50_000, 2_000_000
# What there is of few rows, and of more that still fit in memory as rows: nearly all the time would go into planning, into
# compiling code for a plan, and into starting tasks.
FOR_FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}
# Both sides of each join are spread by lineage already: to collect one and send it to all would be slower.
_FOR_MORE_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": "4",
}


class Decisions(NamedTuple):
    """What was decided of the letters of a period, and what became of them.

    Attributes:
      attempts, parked: `ATTEMPT` and `PARKED`, of letters that failed first in the period.
      histories: see `retry.analytics.questions.histories`.
      aside: `ASIDE`, of all time: what could not be counted.
      since_ms, until_ms: the period: from the first of these failures to the end of observation.
      settled_ms: of a retry that its group has passed by then it is known whether it recovered.
    """

    attempts: DataFrame
    parked: DataFrame
    histories: DataFrame
    aside: DataFrame
    since_ms: int
    until_ms: int
    settled_ms: int


def decisions(datasets: Datasets, *, settle_ms: int, since_ms: int = 0) -> Decisions:
    """The frames of letters that failed first at `since_ms` or later.

    Raises:
      RetryError: there are none.
    """
    rows = _rows_up_to(datasets, _MIDDLE_ROWS)
    is_kept_as_rows = rows <= _MIDDLE_ROWS
    if is_kept_as_rows:
        _configure(datasets, FOR_FEW_ROWS if rows <= _SMALL_ROWS else _FOR_MORE_ROWS)
    # Kept, because all questions read them. Not too many rows are checkpointed, so that no question plans their making again;
    # more are persisted, since they take less room as columns.
    keep = methodcaller("localCheckpoint" if is_kept_as_rows else "persist")
    once = keep(attempts.distinct_decisions(datasets.letters.select(*_READ)))
    every = attempts.of_distinct(
        once, datasets.sent, datasets.positions, settle_ms=settle_ms, until_ms=datasets.until_ms, groups=datasets.groups
    )
    is_within = F.col("first_failed_ms") >= since_ms
    retried, parked = keep(every.where(is_within)), attempts.parked_of(once).where(is_within)
    by_letter = keep(histories(retried, parked))
    first_ms = by_letter.agg(F.min("first_failed_ms")).collect()[0][0]
    if first_ms is None:
        raise RetryError("no letter failed first in this period: give an earlier --since, or run `retry analytics ingest` again")
    if is_kept_as_rows:
        _configure(datasets, FOR_FEW_ROWS)
    settled_ms = datasets.until_ms - settle_ms
    return Decisions(retried, parked, by_letter, datasets.aside, int(first_ms), datasets.until_ms, settled_ms)


def _rows_up_to(datasets: Datasets, most: int) -> int:
    """How many rows are to be read; of more than `most`, one more."""
    letters, sent, positions = (frame.select(F.lit(1)) for frame in (datasets.letters, datasets.sent, datasets.positions))
    return letters.unionAll(sent).unionAll(positions).limit(most + 1).count()


def _configure(datasets: Datasets, conf: Mapping[str, str]) -> None:
    for name, value in conf.items():
        datasets.letters.sparkSession.conf.set(name, value)
