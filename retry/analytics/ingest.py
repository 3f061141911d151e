"""Kafka → Parquet, by Structured Streaming: what is new since the last pass, each record once, whatever is killed when.

A pass is four streams one after another, each with a checkpoint and a Parquet set of its own under the folder:

1. positions, from the outcomes topic
2. letters, from the outcomes topic
3. retries, from the topics that all letters so far name as their targets, or from those that the operator names
4. aside, from all of them: records that ought to be one of these and cannot be read

and then writes down when the second began: the end of observation. Up to that time the letters are complete, and no position is
newer. That is why passes are repeated, and the streams do not run at the same time. Beside it stand the targets of all letters so
far, so that the next pass looks for those of new letters alone: a pass costs what is new, however much there is.

Exactly once is Spark's: a batch is a range of offsets that is written down before it is read, and its files count when they are
listed in the set's `_spark_metadata`. A batch that was begun and not listed is written again, its old files are never read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from retry import clock
from retry.analytics import datasets, decode
from retry.analytics.file_list import FileList
from retry.analytics.folder_names import laid_out
from retry.analytics.kafka_source import pattern
from retry.analytics.schemas import HORIZON_ROW
from retry.analytics.spark_session import failing_as

BATCH_RECORDS = 1_000_000
# Each tells of up to 500 letters, and a batch of letters is sorted into files as a whole.
_OUTCOMES_A_BATCH = 20_000
_STOP_CHECK_S, _WRITTEN = 1, "written"


class Stopped(Exception):
    """A pass was stopped before its end; the next goes on where it stopped."""


class _Written(NamedTuple):
    """What a batch has written: how many rows, and of letters where their retries went."""

    rows: int
    targets: list[str]


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
        """One pass; how many records it has added to each set.

        Raises:
          RetryError: Kafka cannot be read, the folder cannot be written, or another ingest writes to it.
          Stopped: `stopping` said so.
        """
        with failing_as(f"{self._topic} cannot be ingested"):
            outcomes = [self._topic]
            positions = decode.positions(self._stream(outcomes))
            added = {datasets.POSITIONS: self._pass(datasets.POSITIONS, positions, "at_ms", ["day"])}
            until_ms = clock.wall_ms()
            letters = decode.letters(self._stream(outcomes, _OUTCOMES_A_BATCH))
            added[datasets.LETTERS] = self._pass(datasets.LETTERS, letters, "taken_ms", ["day", "team"])
            known, batch = self._targets(added[datasets.LETTERS])
            retried, added[datasets.RETRIES] = self._retry_topics or known or [], {}
            if retried:
                when_ms = F.coalesce("sent_ms", "due_ms", "timestamp_ms")
                sent = decode.sent(self._stream(retried))
                added[datasets.RETRIES] = self._pass(datasets.RETRIES, sent, when_ms, ["day", "team"])
            wrong = decode.aside(self._stream(outcomes + retried), self._topic)
            added[datasets.PUT_ASIDE] = self._pass(datasets.PUT_ASIDE, wrong, "timestamp_ms", ["day"])
            self._note(until_ms, known, batch)
            return {
                name: sum(rows for rows, _ in added[name].values())
                for name in (datasets.LETTERS, datasets.RETRIES, datasets.POSITIONS, datasets.PUT_ASIDE)
            }

    def _targets(self, new: Mapping[int, _Written]) -> tuple[list[str] | None, int]:
        """Where retries of all letters went, None where nobody asks; and up to which batch of letters that is known."""
        last = FileList(self._spark, f"{self._data}/{datasets.LETTERS}").latest()
        if self._retry_topics:
            return None, last
        known, batch = datasets.noted_targets(self._spark, self._data)
        # A pass that was killed has noted nothing of what it wrote, and then all letters are looked at.
        if known is None or batch is None or not {*range(batch + 1, last + 1)} <= {*new}:
            return datasets.targets(datasets.read_set(self._spark, self._data, datasets.LETTERS)), last
        return sorted({*known, *(target for _, targets in new.values() for target in targets)}), last

    def _note(self, until_ms: int, targets: list[str] | None, batch: int) -> None:
        values = {"until_ms": F.lit(until_ms), "letters_batch": F.lit(batch), "targets": F.lit(targets)}
        row = [values[field.name].cast(field.dataType).alias(field.name) for field in HORIZON_ROW.fields]
        self._spark.range(1).select(*row).write.mode("overwrite").parquet(f"{self._data}/{datasets.HORIZON}")

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

    def _pass(self, name: str, rows: DataFrame, when_ms: str | Column, folders: list[str]) -> dict[int, _Written]:
        """Write what is new of one set, to its end; what each batch has written."""
        # One file for each folder and batch, not one for each of Kafka's partitions.
        dated = laid_out(rows.withColumn("day", decode.day(when_ms))).repartition(*folders)
        target = F.when(F.col("decision") == "retry", F.col("target")) if name == datasets.LETTERS else F.lit(None).cast("string")
        query = (
            dated.observe(_WRITTEN, F.count(F.lit(1)).alias("rows"), F.collect_set(target).alias("targets"))
            .writeStream.format("parquet")
            .queryName(name)
            .option("path", f"{self._data}/{name}")
            .option("checkpointLocation", f"{self._data}/_checkpoints/{name}")
            .partitionBy(*folders)
            .trigger(availableNow=True)
            .start()
        )
        written: dict[int, _Written] = {}
        try:
            is_over = False
            while not is_over:
                is_over = bool(query.awaitTermination(_STOP_CHECK_S))
                # Spark remembers the last hundred batches. One that was written before, by a run that was killed before it could
                # say so, is not written again and has nothing that was observed.
                for batch in query.recentProgress:
                    if batch.numInputRows and (observed := batch.observedMetrics.get(_WRITTEN)) is not None:
                        written[batch.batchId] = _Written(observed["rows"], observed["targets"])
                if self._stopping() and not is_over:
                    raise Stopped
        finally:
            query.stop()
        return written
