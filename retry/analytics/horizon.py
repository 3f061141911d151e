"""What the last pass of `retry analytics ingest` has noted beside the sets: up to when they are complete, and what is in them.

A pass that was killed notes nothing of what it wrote. So beside what is noted stands up to which batch of a set it is known.
"""

from __future__ import annotations

from datetime import date
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from retry.analytics.parquet import rows_of
from retry.analytics.schemas import HORIZON_ROW

_FOLDER = "horizon"


class Horizon(NamedTuple):
    """The notes of the ingest about its sets; None where nothing was noted.

    Attributes:
      until_ms: every letter that was taken in before is there.
      letters_batch, positions_batch: the last batches whose targets, or groups, are among those below.
      targets: where retries of all letters went.
      groups: the day of the first sample, of each group that was ever sampled.
    """

    until_ms: int | None = None
    letters_batch: int | None = None
    positions_batch: int | None = None
    targets: list[str] | None = None
    groups: dict[str, date] | None = None


def read(spark: SparkSession, data: str) -> Horizon:
    """Read the notes of the last pass; all fields are None where no pass has ended."""
    rows = rows_of(spark, f"{data}/{_FOLDER}", HORIZON_ROW).collect()
    noted = max(rows, key=lambda row: row["until_ms"], default=None)
    return Horizon() if noted is None else Horizon(*(noted[name] for name in Horizon._fields))


def write(spark: SparkSession, data: str, horizon: Horizon) -> None:
    """Note it, in place of what was noted before."""
    values = horizon._asdict()
    columns = {name: F.lit(value) for name, value in values.items() if name != "groups"} | {"groups": _map(horizon.groups)}
    row = [columns[field.name].cast(field.dataType).alias(field.name) for field in HORIZON_ROW.fields]
    spark.range(1).select(*row).write.mode("overwrite").parquet(f"{data}/{_FOLDER}")


def first_days(positions: DataFrame) -> dict[str, date]:
    """The day of the first sample of each group; of samples with their `day`."""
    return {row[0]: row[1] for row in positions.groupBy("group").agg(F.min("day")).collect()}


def _map(groups: dict[str, date] | None) -> Column:
    return F.lit(None) if groups is None else F.map_from_arrays(F.lit(list(groups)), F.lit(list(groups.values())))
