"""Kafka → Parquet, by Structured Streaming: what is new since the last pass, each record once, whatever is killed when.

A pass is four streams one after another, each with a checkpoint and a Parquet set of its own under the folder:

1. positions, from the outcomes topic
2. letters, from the outcomes topic
3. retries, from the topics that all letters so far name as their targets, or from those that the operator names
4. aside, from all of them: records that ought to be one of these and cannot be read

and then writes down when the second began: the end of observation. Up to that time the letters are complete, and no position is
newer. That is why passes are repeated, and the streams do not run at the same time.

Exactly once is Spark's: a batch is a range of offsets that is written down before it is read, and its files count when they are
listed in the set's `_spark_metadata`. A batch that was begun and not listed is written again, its old files are never read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from retry import clock
from retry.analytics import datasets, decode
from retry.analytics.folder_names import laid_out
from retry.analytics.kafka_source import pattern
from retry.analytics.spark_session import failing_as

BATCH_RECORDS = 1_000_000
# Each tells of up to 500 letters, and a batch of letters is sorted into files as a whole.
_OUTCOMES_A_BATCH = 20_000
_STOP_CHECK_S = 1


class Stopped(Exception):
    """A pass was stopped before its end; the next goes on where it stopped."""


class Ingest:
    """Passes over one deployment's topics into one folder, a path or URL of any file system that Spark knows.

    Args:
      options: see `retry.analytics.spark_kafka_options`.
      topic: the outcomes topic.
      retry_topics: where retries are looked for; none for the targets that letters name.
      batch_records: records in one batch, at most.
      stopping: called every second; true ends the pass.
    """

    def __init__(
        self, spark: SparkSession, options: Mapping[str, str], topic: str, data: str, *,
        retry_topics: Sequence[str] = (), batch_records: int = BATCH_RECORDS,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self._spark, self._options, self._topic, self._data = spark, options, topic, data.rstrip("/")
        self._retry_topics, self._batch_records, self._stopping = list(retry_topics), batch_records, stopping

    def run(self) -> dict[str, int]:
        """One pass; how many records each set has now.

        Raises:
          RetryError: Kafka cannot be read, the folder cannot be written, or another ingest writes to it.
          Stopped: `stopping` said so.
        """
        with failing_as(f"{self._topic} cannot be ingested"):
            outcomes = [self._topic]
            self._pass(datasets.POSITIONS, decode.positions(self._stream(outcomes)), "at_ms", ["day"])
            until_ms = clock.wall_ms()
            letters = decode.letters(self._stream(outcomes, _OUTCOMES_A_BATCH))
            self._pass(datasets.LETTERS, letters, "taken_ms", ["day", "team"])
            retried = self._retry_topics or datasets.targets(datasets.read_set(self._spark, self._data, datasets.LETTERS))
            if retried:
                when_ms = F.coalesce("sent_ms", "due_ms", "timestamp_ms")
                self._pass(datasets.RETRIES, decode.sent(self._stream(retried)), when_ms, ["day", "team"])
            wrong = decode.aside(self._stream(outcomes + retried), self._topic)
            self._pass(datasets.PUT_ASIDE, wrong, "timestamp_ms", ["day"])
            horizon = self._spark.range(1).select(F.lit(until_ms).alias("until_ms"))
            horizon.write.mode("overwrite").parquet(f"{self._data}/{datasets.HORIZON}")
            return {
                name: datasets.read_set(self._spark, self._data, name).count()
                for name in (datasets.LETTERS, datasets.RETRIES, datasets.POSITIONS, datasets.PUT_ASIDE)
            }

    def _stream(self, topics: list[str], records_max: int = sys.maxsize) -> DataFrame:
        return (
            self._spark.readStream.format("kafka")
            .options(**self._options)
            .option("subscribePattern", pattern(topics))
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .option("maxOffsetsPerTrigger", min(records_max, self._batch_records))
            # Retention may have deleted records that were not read yet; the rest is still read.
            .option("failOnDataLoss", "false")
            .load()
        )

    def _pass(self, name: str, rows: DataFrame, when_ms: str | Column, folders: list[str]) -> None:
        """Write what is new of one set, to its end."""
        # One file for each folder and batch, not one for each of Kafka's partitions.
        dated = laid_out(rows.withColumn("day", decode.day(when_ms))).repartition(*folders)
        query = (
            dated.writeStream.format("parquet")
            .queryName(name)
            .option("path", f"{self._data}/{name}")
            .option("checkpointLocation", f"{self._data}/_checkpoints/{name}")
            .partitionBy(*folders)
            .trigger(availableNow=True)
            .start()
        )
        try:
            while not query.awaitTermination(_STOP_CHECK_S):
                if self._stopping():
                    raise Stopped
        finally:
            query.stop()
