"""Reads letters, sent retries and committed offsets from Parquet or from Kafka: the same frames either way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from retry import clock
from retry.analytics import decode, folder_names, kafka_source
from retry.analytics.schemas import ASIDE, DAY, LETTER, POSITION, SENT, UNTIL
from retry.errors import RetryError

LETTERS, RETRIES, POSITIONS, PUT_ASIDE, HORIZON = "letters", "retries", "positions", "aside", "horizon"
_SCHEMAS = {LETTERS: LETTER, RETRIES: SENT, POSITIONS: POSITION, PUT_ASIDE: ASIDE}


class Datasets(NamedTuple):
    """Everything that was recorded up to a time.

    Attributes:
      letters, sent, positions, aside: `LETTER`, `SENT`, `POSITION` and `ASIDE`.
      until_ms: end of observation: every letter taken in before is there.
    """

    letters: DataFrame
    sent: DataFrame
    positions: DataFrame
    aside: DataFrame
    until_ms: int


def from_parquet(spark: SparkSession, data: str) -> Datasets:
    """What `retry analytics ingest` wrote to a folder.

    Raises:
      RetryError: nothing was ingested there yet.
    """
    letters, sent, positions, aside = (read_set(spark, data, name) for name in (LETTERS, RETRIES, POSITIONS, PUT_ASIDE))
    return Datasets(letters, sent, positions, aside, _until_ms(spark, data, letters))


def read_set(spark: SparkSession, data: str, name: str) -> DataFrame:
    """One set in its columns; empty where none was written."""
    schema = _SCHEMAS[name]
    of_team = _columns_of_team(schema)
    written = _written(spark, f"{data}/{name}", StructType([*schema.fields, *of_team, *DAY.fields]))
    return (folder_names.read_back(written) if of_team else written).select(*schema.names)


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
    return Datasets(letters, sent, positions, decode.aside(records(topic, *topics), topic), until_ms)


def targets(letters: DataFrame) -> list[str]:
    """Where retries were sent, sorted."""
    rows = letters.where("decision = 'retry'").select("target").distinct().collect()
    return sorted(row["target"] for row in rows)


def _written(spark: SparkSession, path: str, schema: StructType) -> DataFrame:
    try:
        # With a given schema, columns that older runs did not write are null, and team 7 stays a text.
        # Old days may be deleted, though the list of a set names their files for ever.
        return spark.read.schema(schema).option("ignoreMissingFiles", "true").parquet(path)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return spark.createDataFrame([], schema)


def _until_ms(spark: SparkSession, data: str, letters: DataFrame) -> int:
    horizon = _written(spark, f"{data}/{HORIZON}", UNTIL).agg(F.max("until_ms")).collect()[0][0]
    if horizon is None:
        # No pass has ended yet: nothing was observed after the newest letter.
        horizon = letters.agg(F.max("taken_ms")).collect()[0][0]
    if horizon is None:
        raise RetryError(f"{data} holds no letters: run `retry analytics ingest {data}` first")
    return int(horizon)
