"""The frames that every question asks, made once."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retry.analytics import attempts as decided
from retry.analytics.questions.histories import histories
from retry.analytics.datasets import Sets
from retry.errors import RetryError


class Decisions(NamedTuple):
    """What was decided of the letters of a period, and what became of them.

    Attributes:
      attempts, parked: `ATTEMPT` and `PARKED`, of letters that failed first in the period.
      histories: see `retry.analytics.questions.histories`.
      since_ms, until_ms: the period: from the first of these failures to the end of observation.
    """

    attempts: DataFrame
    parked: DataFrame
    histories: DataFrame
    since_ms: int
    until_ms: int


def decisions(sets: Sets, *, settle_ms: int, since_ms: int = 0) -> Decisions:
    """The frames of letters that failed first at `since_ms` or later.

    Raises:
      RetryError: there are none.
    """
    tried = decided.attempts(sets.letters, sets.sent, sets.positions, settle_ms=settle_ms, until_ms=sets.until_ms)
    is_within = F.col("first_failed_ms") >= since_ms
    # Kept: ten questions are asked of them, and making them is the dearest part.
    tried, parked = tried.where(is_within).persist(), decided.parked(sets.letters).where(is_within).persist()
    lived = histories(tried, parked).persist()
    first_ms = lived.agg(F.min("first_failed_ms")).collect()[0][0]
    if first_ms is None:
        raise RetryError("no letter failed first in this period: give an earlier --since, or run `retry analytics ingest` again")
    return Decisions(tried, parked, lived, int(first_ms), sets.until_ms)
