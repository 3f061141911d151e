"""The sets that analytics asks, read from Parquet or straight from Kafka: the same frames either way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from retry import clock
from retry.analytics import decode, kafka_source
from retry.analytics.schemas import ASIDE, DAY, LETTER, POSITION, SENT, UNTIL
from retry.errors import RetryError

LETTERS, RETRIES, POSITIONS, PUT_ASIDE, HORIZON = "letters", "retries", "positions", "aside", "horizon"
_SCHEMAS = {LETTERS: LETTER, RETRIES: SENT, POSITIONS: POSITION, PUT_ASIDE: ASIDE}


class Sets(NamedTuple):
    """Everything that is known up to a time.

    Attributes:
      letters, sent, positions: `LETTER`, `SENT` and `POSITION`.
      until_ms: end of observation: every letter taken in before is there.
    """

    letters: DataFrame
    sent: DataFrame
    positions: DataFrame
    until_ms: int


def from_parquet(spark: SparkSession, data: str) -> Sets:
    """What `retry analytics ingest` wrote to a folder.

    Raises:
      RetryError: nothing was ingested there yet.
    """
    letters, sent, positions = (one(spark, data, name) for name in (LETTERS, RETRIES, POSITIONS))
    return Sets(letters, sent, positions, _until_ms(spark, data, letters))


def one(spark: SparkSession, data: str, name: str) -> DataFrame:
    """One set in its columns; empty where none was written."""
    schema = _SCHEMAS[name]
    written = _written(spark, f"{data}/{name}", StructType([*schema.fields, *DAY.fields]))
    # A folder cannot be named after an empty text.
    return (written.fillna("", ["team"]) if "team" in schema.names else written).select(*schema.names)


def from_kafka(spark: SparkSession, options: Mapping[str, str], topic: str, retry_topics: Iterable[str] = ()) -> Sets:
    """What lies on Kafka now; retries are looked for where letters say, or on `retry_topics`.

    Raises:
      RetryError: the outcomes topic is missing or empty.
    """
    until_ms = clock.wall_ms()
    outcomes = kafka_source.records(spark, options, [topic])
    # Kept, because Spark would otherwise read Kafka again for every question, and find other records each time.
    letters, positions = decode.letters(outcomes).persist(), decode.positions(outcomes).persist()
    if letters.isEmpty():
        where = options["kafka.bootstrap.servers"]
        raise RetryError(f"{topic} on {where} is missing or empty: no letter was taken in under this RETRY_APP_ID yet")
    wanted = list(retry_topics) or targets(letters)
    sent = decode.sent(kafka_source.records(spark, options, wanted)).persist() if wanted else spark.createDataFrame([], SENT)
    return Sets(letters, sent, positions, until_ms)


def targets(letters: DataFrame) -> list[str]:
    """Where retries were sent, sorted."""
    rows = letters.where("decision = 'retry'").select("target").distinct().collect()
    return sorted(row["target"] for row in rows)


def _written(spark: SparkSession, path: str, schema: StructType) -> DataFrame:
    try:
        # A schema that is given: what older runs did not know is null, and team 7 stays a text.
        # Old days may be deleted, though the list of a set names their files for ever.
        return spark.read.schema(schema).option("ignoreMissingFiles", "true").parquet(path)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return spark.createDataFrame([], schema)


def _until_ms(spark: SparkSession, data: str, letters: DataFrame) -> int:
    horizon = _written(spark, f"{data}/{HORIZON}", UNTIL).agg(F.max("until_ms")).collect()[0][0]
    if horizon is None:
        # No pass has come to its end yet: nothing is known of the time after the newest letter.
        horizon = letters.agg(F.max("taken_ms")).collect()[0][0]
    if horizon is None:
        raise RetryError(f"{data} holds no letters: run `retry analytics ingest {data}` first")
    return int(horizon)
