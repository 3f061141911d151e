"""The report: what became of every letter, by team and policy. Reads Kafka once and asks each transform."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from retry.analytics import kafka_source, transforms
from retry.analytics.schema import RETRY
from retry.errors import RetryError

_REASON_CHARS_MAX = 300


@dataclass(frozen=True, slots=True)
class Lateness:
    """Milliseconds between due and sent, over the `measured` retries whose topic keeps the time of appending."""

    measured: int
    p50_ms: int
    p90_ms: int
    p99_ms: int
    max_ms: int


@dataclass(slots=True)
class Line:
    """The numbers of one policy of one team; see `retry.analytics.transforms` for what each means."""

    team: str
    policy: str
    letters: int = 0
    retries: int = 0
    recovered: dict[int, int] = field(default_factory=dict)
    parked: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    lateness: Lateness | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Every line, by team and policy, and the outcome records that could not be counted."""

    lines: list[Line]
    unreadable: int
    other_version: int
    retry_topics: list[str]

    def as_dict(self) -> dict[str, object]:
        """The report as plain values, for JSON."""
        return dataclasses.asdict(self)


def run(spark: SparkSession, options: Mapping[str, str], topic: str, retry_topics: Iterable[str] = ()) -> Report:
    """The report over the outcomes on `topic`.

    Args:
      spark: see `retry.analytics.spark_session`.
      options: see `retry.analytics.spark_kafka_options`.
      topic: the outcomes topic.
      retry_topics: where retries are looked for; none for wherever the outcomes say.

    Raises:
      RetryError: Kafka cannot be read, or the topic is missing or empty.
    """
    try:
        return _run(spark, options, topic, list(retry_topics))
    except (PySparkException, Py4JError) as error:
        raise RetryError(f"{topic} cannot be read: {cause(error)}") from None


def _run(spark: SparkSession, options: Mapping[str, str], topic: str, retry_topics: list[str]) -> Report:
    # Kept, because Spark would otherwise read Kafka again for every question, and find other records each time.
    parsed = kafka_source.parsed(kafka_source.records(spark, options, [topic])).persist()
    counts = parsed.agg(F.count("*"), F.count_if("unreadable"), F.count_if("other_version")).collect()[0]
    if counts[0] == 0:
        where = options["kafka.bootstrap.servers"]
        raise RetryError(f"{topic} on {where} is missing or empty: no letter was taken in under this RETRY_APP_ID yet")
    outcomes = kafka_source.outcomes(parsed)
    topics = sorted(retry_topics or _targets(outcomes))
    retries = kafka_source.retries(kafka_source.records(spark, options, topics)) if topics else spark.createDataFrame([], RETRY)
    sent = transforms.sent(outcomes, retries).persist()
    return Report(_lines(outcomes, sent), counts[1], counts[2], topics)


def _targets(outcomes: DataFrame) -> list[str]:
    rows = outcomes.where(F.col("decision") == "retry").select("target").distinct().collect()
    return [row["target"] for row in rows]


def _lines(outcomes: DataFrame, sent: DataFrame) -> list[Line]:
    lines: dict[tuple[str, str], Line] = {}

    def each(answer: DataFrame) -> Iterator[tuple[Line, Row]]:
        for row in answer.collect():
            key = (row["team"], row["policy"])
            yield lines.setdefault(key, Line(*key)), row

    fates = transforms.fates(outcomes, sent).persist()
    for line, row in each(transforms.letters(outcomes)):
        line.letters = row["letters"]
    for line, row in each(transforms.retries_sent(sent)):
        line.retries = row["retries"]
    for line, row in each(transforms.recovered_by_attempt(fates).orderBy("attempt")):
        line.recovered[row["attempt"]] = row["lineages"]
    for line, row in each(transforms.parked_by_reason(fates).orderBy("reason")):
        line.parked[row["reason"]] = row["lineages"]
    for line, row in each(transforms.waiting(fates)):
        line.waiting = row["waiting"]
    for line, row in each(transforms.lateness(sent)):
        line.lateness = Lateness(*(row[name] for name in Lateness.__slots__))
    return [lines[key] for key in sorted(lines)]


def cause(error: Exception) -> str:
    """The innermost reason in one line: a stack trace tells an operator nothing, and may tell others too much."""
    inner = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while inner is not None and inner.getCause() is not None:
        inner = inner.getCause()
    text = str(inner.getMessage() or inner.getClass().getName()) if inner is not None else str(error)
    return text.partition("\n")[0][:_REASON_CHARS_MAX]
