"""Reads letters, sent retries and committed offsets from Parquet or from Kafka: the same frames either way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from retry import clock
from retry.analytics import decode, folder_names, kafka_source
from retry.analytics.schemas import ASIDE, DAY, HORIZON_ROW, LETTER, POSITION, SENT
from retry.errors import RetryError

LETTERS, RETRIES, POSITIONS, PUT_ASIDE, HORIZON = "letters", "retries", "positions", "aside", "horizon"
_CLOCKS_MS = 86_400_000
_SCHEMAS = {LETTERS: LETTER, RETRIES: SENT, POSITIONS: POSITION, PUT_ASIDE: ASIDE}


class Datasets(NamedTuple):
    """Everything that was recorded up to a time.

    Attributes:
      letters, sent, positions, aside: `LETTER`, `SENT`, `POSITION` and `ASIDE`.
      groups: `group` and `at_ms` of every sample of a committed offset, before the period as well.
      until_ms: end of observation: every letter taken in before is there.
    """

    letters: DataFrame
    sent: DataFrame
    positions: DataFrame
    aside: DataFrame
    groups: DataFrame
    until_ms: int


def from_parquet(spark: SparkSession, data: str, *, since_ms: int = 0, until_ms: int | None = None) -> Datasets:
    """What `retry analytics ingest` wrote to a folder.

    Args:
      since_ms, until_ms: read days alone on which anything of letters may have happened that failed first since then, and that
        was recorded until then.

    Raises:
      RetryError: nothing was ingested there yet.
    """
    last_ms = _until_ms(spark, data)
    last_ms = last_ms if until_ms is None else min(last_ms, until_ms)
    # Whose clock is behind has failures that are later than what came of them.
    days = [decode.day(F.lit(ms)) for ms in (max(0, since_ms - _CLOCKS_MS), last_ms + _CLOCKS_MS)]
    within, before = F.col("day").between(*days), F.col("day") <= days[1]
    letters, sent, positions = (read_set(spark, data, name, within) for name in (LETTERS, RETRIES, POSITIONS))
    sets = Datasets(
        letters, sent, positions, read_set(spark, data, PUT_ASIDE),
        # What a group had committed before the period is as good a sign that it is watched.
        read_set(spark, data, POSITIONS, before).select("group", "at_ms"), last_ms,
    )  # fmt: skip
    return sets if until_ms is None else recorded_until(sets, last_ms)


def recorded_until(sets: Datasets, until_ms: int) -> Datasets:
    """What was known at a time: nothing that was recorded later."""
    sent_ms = F.coalesce("sent_ms", "due_ms", "timestamp_ms")
    return Datasets(
        sets.letters.where(F.col("taken_ms") < until_ms), sets.sent.where(sent_ms < until_ms),
        sets.positions.where(F.col("at_ms") < until_ms), sets.aside,
        sets.groups.where(F.col("at_ms") < until_ms), min(sets.until_ms, until_ms),
    )  # fmt: skip


def read_set(spark: SparkSession, data: str, name: str, within: Column | None = None) -> DataFrame:
    """One set in its columns, of rows `within` some days; empty where none was written."""
    schema = _SCHEMAS[name]
    of_team = _columns_of_team(schema)
    written = _written(spark, f"{data}/{name}", StructType([*schema.fields, *of_team, *DAY.fields]))
    chosen = written if within is None else written.where(within)
    return (folder_names.read_back(chosen) if of_team else chosen).select(*schema.names)


def _columns_of_team(schema: StructType) -> list[StructField]:
    return [StructField(folder_names.TEAM_NAME, StringType())] if "team" in schema.names else []


def from_kafka(spark: SparkSession, options: Mapping[str, str], topic: str, retry_topics: Iterable[str] = ()) -> Datasets:
    """What is on Kafka now; retries are looked for where letters say, or on `retry_topics`.

    Raises:
      RetryError: the outcomes topic is missing or empty.
    """
    until_ms = clock.wall_ms()

    def records(*topics: str) -> DataFrame:
        return kafka_source.records(spark, options, topics)

    # Persisted, because Spark would otherwise read Kafka again for every question, and find other records each time.
    letters, positions = decode.letters(records(topic)).persist(), decode.positions(records(topic)).persist()
    targets_of_letters = targets(letters)
    if not targets_of_letters and letters.isEmpty():
        where = options["kafka.bootstrap.servers"]
        raise RetryError(f"{topic} on {where} is missing or empty: no letter was taken in under this RETRY_APP_ID yet")
    topics = list(retry_topics) or targets_of_letters
    sent = decode.sent(records(*topics)).persist() if topics else spark.createDataFrame([], SENT)
    aside, groups = decode.aside(records(topic, *topics), topic), positions.select("group", "at_ms")
    return Datasets(letters, sent, positions, aside, groups, until_ms)


def targets(letters: DataFrame) -> list[str]:
    """Where retries were sent, sorted."""
    rows = letters.where("decision = 'retry'").select("target").distinct().collect()
    return sorted(row["target"] for row in rows)


def first_failed_ms(sets: Datasets, since_ms: int) -> int:
    """The first failure of all letters that failed first since a time, or the end of observation where none did."""
    first = sets.letters.where(F.col("first_failed_ms") >= since_ms).agg(F.min("first_failed_ms")).collect()[0][0]
    return sets.until_ms if first is None else int(first)


def noted_targets(spark: SparkSession, data: str) -> tuple[list[str] | None, int | None]:
    """What the last pass has noted: where retries of all letters went, and the last batch of letters that it knew."""
    (row,) = _written(spark, f"{data}/{HORIZON}", HORIZON_ROW).agg(F.max("targets"), F.max("letters_batch")).collect()
    return row[0], row[1]


def _written(spark: SparkSession, path: str, schema: StructType) -> DataFrame:
    try:
        # With a given schema, columns that older runs did not write are null, and team 7 stays a text.
        # Old days may be deleted, though the list of a set names their files for ever.
        return spark.read.schema(schema).option("ignoreMissingFiles", "true").parquet(path)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return spark.createDataFrame([], schema)


def _until_ms(spark: SparkSession, data: str) -> int:
    horizon = _written(spark, f"{data}/{HORIZON}", HORIZON_ROW).agg(F.max("until_ms")).collect()[0][0]
    if horizon is None:
        # No pass has ended yet: nothing was observed after the newest letter.
        horizon = read_set(spark, data, LETTERS).agg(F.max("taken_ms")).collect()[0][0]
    if horizon is None:
        raise RetryError(f"{data} holds no letters: run `retry analytics ingest {data}` first")
    return int(horizon)
