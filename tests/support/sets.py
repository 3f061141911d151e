"""The Parquet sets of generated events, as `retry analytics ingest` lays them down."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from retry.analytics import schemas
from retry.analytics.decode import find_day
from retry.analytics.schemas import LETTER, POSITION, SENT, Watched, lay_out_rows
from tests.support.events import Events, rows


def write(spark: SparkSession, found: Events, folder: Path) -> None:
    """Write letters, retries, positions and the horizon to an empty folder."""
    for name, each, schema, when_ms in (
        ("letters", found.letters, LETTER, "taken_ms"),
        ("retries", found.sent, SENT, "sent_ms"),
        ("positions", found.positions, POSITION, "at_ms"),
    ):
        made = lay_out_rows(spark.createDataFrame(list(rows(each, schema.names)), schema).withColumn("day", find_day(when_ms)))
        folders = ["day", *({"team"} & set(schema.names))]
        made.repartition(*folders).write.partitionBy(*folders).parquet(str(folder / name))
    watched: dict[Watched, date] = {}
    for row in sorted(found.positions, key=lambda row: row["at_ms"]):
        watched.setdefault(Watched(row["group"], row["topic"]), datetime.fromtimestamp(row["at_ms"] / 1_000, UTC).date())
    schemas.write_horizon(spark, str(folder), schemas.Horizon(found.until_ms, watched=watched))
