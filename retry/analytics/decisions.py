"""The frames that all questions of a report read, made once."""

from __future__ import annotations

from operator import methodcaller
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retry.analytics import attempts
from retry.analytics.datasets import Datasets
from retry.analytics.questions.histories import histories
from retry.errors import RetryError

_SMALL_ROWS = 50_000
# Of so few rows nearly all the time goes into planning, into compiling code for a plan, and into starting tasks.
FOR_FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
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
    # Kept, because fifteen questions read them. Few rows are checkpointed, so that no question plans their making again;
    # many are persisted, since they take less room as columns.
    is_small = _is_small(datasets)
    keep = methodcaller("localCheckpoint" if is_small else "persist")
    if is_small:
        for name, value in FOR_FEW_ROWS.items():
            datasets.letters.sparkSession.conf.set(name, value)
    every = attempts.attempts(
        datasets.letters, datasets.sent, datasets.positions, settle_ms=settle_ms, until_ms=datasets.until_ms
    )
    is_within = F.col("first_failed_ms") >= since_ms
    retried, parked = keep(every.where(is_within)), keep(attempts.parked(datasets.letters).where(is_within))
    by_letter = keep(histories(retried, parked))
    first_ms = by_letter.agg(F.min("first_failed_ms")).collect()[0][0]
    if first_ms is None:
        raise RetryError("no letter failed first in this period: give an earlier --since, or run `retry analytics ingest` again")
    settled_ms = datasets.until_ms - settle_ms
    return Decisions(retried, parked, by_letter, datasets.aside, int(first_ms), datasets.until_ms, settled_ms)


def _is_small(datasets: Datasets) -> bool:
    letters, sent, positions = (frame.select(F.lit(1)) for frame in (datasets.letters, datasets.sent, datasets.positions))
    rows = letters.unionAll(sent).unionAll(positions)
    return rows.limit(_SMALL_ROWS + 1).count() <= _SMALL_ROWS
