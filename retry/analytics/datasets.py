"""Letters, sent retries and committed offsets of a period, from Parquet or from Kafka: the same frames either way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from retry import clock
from retry.analytics import decode, schemas
from retry.analytics.attempts import list_watched
from retry.analytics.schemas import ASIDE, DAY, LETTER, POSITION, SENT, Watched, make_no_rows, read_rows
from retry.errors import RetryError

LETTERS, RETRIES, POSITIONS, PUT_ASIDE = "letters", "retries", "positions", "aside"
_CLOCKS_MS = 86_400_000
_SCHEMAS = {LETTERS: LETTER, RETRIES: SENT, POSITIONS: POSITION, PUT_ASIDE: ASIDE}
SETS = tuple(_SCHEMAS)


class Datasets(NamedTuple):
    """The records of the letters of a period, up to the end of observation.

    Attributes:
      letters, sent, positions, aside: `LETTER`, `SENT`, `POSITION` and `ASIDE`.
      watched: all of which a committed offset was ever sampled, before the period as well.
      until_ms: end of observation: every letter taken in before is there.
    """

    letters: DataFrame
    sent: DataFrame
    positions: DataFrame
    aside: DataFrame
    watched: frozenset[Watched]
    until_ms: int


class Recorded(NamedTuple):
    """Everything that was ever recorded; `select_period` takes a period of it.

    Attributes:
      letters, sent, positions: as in `Datasets`, and the `day` of each row.
      watched: the day of the first sample of each group on each topic; None where it is not known.
    """

    letters: DataFrame
    sent: DataFrame
    positions: DataFrame
    aside: DataFrame
    watched: Mapping[Watched, date] | None
    until_ms: int

    def select_period(self, since_ms: int = 0, until_ms: int | None = None) -> Datasets:
        """Select the days needed for letters that failed first since `since_ms`, without what was recorded from `until_ms` on."""
        last_ms = self.until_ms if until_ms is None else min(self.until_ms, until_ms)
        # Whose clock is behind has failures that are later than what came of them.
        within = F.col("day").between(
            *(decode.find_day(F.lit(ms)) for ms in (max(0, since_ms - _CLOCKS_MS), last_ms + _CLOCKS_MS))
        )
        letters, sent, positions = (frame.where(within) for frame in (self.letters, self.sent, self.positions))
        if until_ms is not None:
            letters, positions = letters.where(F.col("taken_ms") < last_ms), positions.where(F.col("at_ms") < last_ms)
            sent = sent.where(choose_sent_ms() < last_ms)
        watched = self._list_watched(None if until_ms is None else last_ms)
        frames = letters.select(*LETTER.names), sent.select(*SENT.names), positions.select(*POSITION.names)
        return Datasets(*frames, self.aside, watched, last_ms)

    def _list_watched(self, until_ms: int | None) -> frozenset[Watched]:
        """List the groups and topics that were sampled before a time; None for ever."""
        if self.watched is None:
            return list_watched(self.positions if until_ms is None else self.positions.where(F.col("at_ms") < until_ms))
        if until_ms is None:
            return frozenset(self.watched)
        last = datetime.fromtimestamp(until_ms / 1_000, UTC).date()
        known = frozenset(each for each, day in self.watched.items() if day < last)
        if last not in self.watched.values():
            return known
        return known | list_watched(self.positions.where((F.col("day") == F.lit(last)) & (F.col("at_ms") < until_ms)))


def choose_sent_ms() -> Column:
    """Choose when a retry was recorded: when it was sent, or was due where its topic does not tell."""
    return F.coalesce("sent_ms", "due_ms", "timestamp_ms")


def read_parquet(spark: SparkSession, data: str) -> Recorded:
    """Read what `retry analytics ingest` wrote to a folder; raises RetryError where nothing was ingested there yet."""
    noted = schemas.read_horizon(spark, data)
    letters, sent, positions = (read_dated_set(spark, data, name) for name in (LETTERS, RETRIES, POSITIONS))
    # Before a pass has ended, nothing was observed after the newest letter.
    until_ms = letters.agg(F.max("taken_ms")).collect()[0][0] if noted.until_ms is None else noted.until_ms
    if until_ms is None:
        raise RetryError(f"{data} holds no letters: run `retry analytics ingest {data}` first")
    return Recorded(letters, sent, positions, read_set(spark, data, PUT_ASIDE), noted.watched, int(until_ms))


def read_set(spark: SparkSession, data: str, name: str) -> DataFrame:
    """Read one set in its columns; empty where none was written."""
    return read_dated_set(spark, data, name).select(*_SCHEMAS[name].names)


def read_dated_set(spark: SparkSession, data: str, name: str) -> DataFrame:
    """Read one set with the `day` of each row; files of days that nobody asks for are not read."""
    schema = _SCHEMAS[name]
    of_team = [StructField(schemas.TEAM_NAME, StringType())] if "team" in schema.names else []
    written = read_rows(spark, f"{data}/{name}", StructType([*schema.fields, *of_team, *DAY.fields]))
    return written.withColumn("team", F.col(schemas.TEAM_NAME)) if of_team else written


def read_kafka(spark: SparkSession, options: Mapping[str, str], topic: str, retry_topics: Iterable[str] = ()) -> Recorded:
    """Read what is on Kafka now; retries are read from the topics that letters name, or from `retry_topics`. Raises RetryError
    where the outcomes topic is missing or empty."""
    until_ms = clock.wall_ms()

    def load_topics(*topics: str) -> DataFrame:
        return decode.load_records(spark, options, topics)

    def select_kept(rows: DataFrame, when_ms: str | Column) -> DataFrame:
        # Spark would otherwise read Kafka again for every question, and find other records each time.
        return rows.withColumn("day", decode.find_day(when_ms)).persist()

    letters = select_kept(decode.decode_letters(load_topics(topic)), "taken_ms")
    positions = select_kept(decode.select_positions(load_topics(topic)), "at_ms")
    targets_of_letters = list_retry_targets(letters)
    if not targets_of_letters and letters.isEmpty():
        where = options["kafka.bootstrap.servers"]
        raise RetryError(f"{topic} on {where} is missing or empty: no letter was taken in under this RETRY_APP_ID yet")
    topics = list(retry_topics) or targets_of_letters
    sent = decode.select_sent(load_topics(*topics)) if topics else make_no_rows(spark, SENT)
    aside = decode.select_unreadable(load_topics(topic, *topics), topic)
    return Recorded(letters, select_kept(sent, choose_sent_ms()), positions, aside, schemas.find_first_days(positions), until_ms)


def list_retry_targets(letters: DataFrame) -> list[str]:
    return sorted(row["target"] for row in letters.where("decision = 'retry'").select("target").distinct().collect())


def find_first_failed_ms(sets: Datasets, since_ms: int) -> int:
    """Find the first failure of all letters that failed first since a time, or the end of observation where none did."""
    first = sets.letters.where(F.col("first_failed_ms") >= since_ms).agg(F.min("first_failed_ms")).collect()[0][0]
    return sets.until_ms if first is None else int(first)
