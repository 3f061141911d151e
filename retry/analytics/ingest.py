"""Kafka → Parquet, by Structured Streaming: what is new since the last pass, each record once, whatever is killed when.

A pass is four streams one after another, each with a checkpoint and a Parquet set of its own under the folder:

1. positions, from the outcomes topic
2. letters, from the outcomes topic
3. retries, from the topics that all letters so far name as their targets, or from those that the operator names
4. aside, from all of them: records that ought to be one of these and cannot be read

and then writes down when the second began: the end of observation. Up to that time the letters are complete, and no position is
newer. That is why passes are repeated, and the streams do not run at the same time. Beside it stand the targets of all letters so
far, so that the next pass looks for those of new letters alone: a pass costs what is new, however much there is. So do the groups
that were ever sampled, which whoever asks about a period needs to know of all time; see `retry.analytics.schemas`.

Exactly once is Spark's: a batch is a range of offsets that is written down before it is read, and its files count when they are
listed in the set's `_spark_metadata`. A batch that was begun and not listed is written again, its old files are never read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from retry import clock
from retry.analytics import datasets, decode, schemas
from retry.analytics.file_list import FileList
from retry.analytics.spark_session import translate_failures

BATCH_RECORDS = 1_000_000
# Each tells of up to 500 letters. The first of each record are sorted into files by one task, the next by another, and so on.
_OUTCOMES_A_BATCH, _OF_RECORD_A_TASK = 20_000, 50
# Of 25 to 200 bytes each, compressed.
ROWS_A_FILE = 1_000_000
_STOP_CHECK_S, _WRITTEN = 1, "written"


class Stopped(Exception):
    """A pass was stopped before its end; the next goes on where it stopped."""


class _Written(NamedTuple):
    """The result of one written batch: how many rows it has, and what is noted of them."""

    rows: int
    noted: list[str]


# By set, the batches of this pass.
Added = Mapping[str, Mapping[int, _Written]]


def _noted_of(name: str) -> Column:
    """Return the column to note of a set's rows: the target of retried letters, the day and group of samples, else null."""
    if name == datasets.LETTERS:
        return F.when(F.col("decision") == "retry", F.col("target"))
    if name == datasets.POSITIONS:
        return F.concat_ws(" ", F.col("day").cast("string"), "topic", "group")
    return F.lit(None).cast("string")


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
        """Make one pass, and count how many records it has added to each set.

        Raises:
          RetryError: Kafka cannot be read, the folder cannot be written, or another ingest writes to it.
          Stopped: `stopping` said so.
        """
        with translate_failures(f"{self._topic} cannot be ingested"):
            outcomes = [self._topic]
            positions = decode.select_positions(self._stream(outcomes))
            added = {datasets.POSITIONS: self._pass(datasets.POSITIONS, positions, "at_ms", ["day"])}
            until_ms = clock.wall_ms()
            letters = decode.unpack_letters(self._stream(outcomes, _OUTCOMES_A_BATCH))
            added[datasets.LETTERS] = self._pass(datasets.LETTERS, letters, "taken_ms", ["day", "team"])
            noted = self._note_horizon(until_ms, added)
            retried, added[datasets.RETRIES] = self._retry_topics or noted.targets or [], {}
            if retried:
                sent = decode.select_sent(self._stream(retried))
                added[datasets.RETRIES] = self._pass(datasets.RETRIES, sent, datasets.choose_sent_ms(), ["day", "team"])
            wrong = decode.select_unreadable(self._stream(outcomes + retried), self._topic)
            added[datasets.PUT_ASIDE] = self._pass(datasets.PUT_ASIDE, wrong, "timestamp_ms", ["day"])
            schemas.write_horizon(self._spark, self._data, noted)
            return {name: sum(each.rows for each in added[name].values()) for name in datasets.SETS}

    def _note_horizon(self, until_ms: int, added: Added) -> schemas.Horizon:
        """Build the notes on all letters and samples so far; targets are None where the operator names the retry topics."""
        before = schemas.read_horizon(self._spark, self._data)
        seen, groups_batch = self._list_new_batches(datasets.POSITIONS, before.positions_batch, added)
        watched = dict(before.watched or {})
        for day, place in (each.split(" ", 1) for each in seen or ()):
            each = schemas.Watched.from_text(place)
            watched[each] = min(date.fromisoformat(day), watched.get(each, date.max))
        if seen is None or before.watched is None:
            watched = schemas.find_first_days(datasets.read_dated_set(self._spark, self._data, datasets.POSITIONS))
        went, letters_batch = self._list_new_batches(datasets.LETTERS, before.letters_batch, added)
        targets: list[str] | None = sorted({*(before.targets or ()), *(went or ())})
        if self._retry_topics:
            targets = None
        elif went is None or before.targets is None:
            targets = datasets.list_retry_targets(datasets.read_set(self._spark, self._data, datasets.LETTERS))
        return schemas.Horizon(until_ms, letters_batch, groups_batch, targets, watched)

    def _list_new_batches(self, name: str, known: int | None, added: Added) -> tuple[set[str] | None, int]:
        """Return the notes of batches after `known`, or None where only all rows can tell, and the last batch's number."""
        last, new = FileList(self._spark, f"{self._data}/{name}").latest(), added[name]
        # A pass that was killed has noted nothing of what it wrote.
        if known is None or not {*range(known + 1, last + 1)} <= {*new}:
            return None, last
        return {each for batch in new.values() for each in batch.noted}, last

    def _stream(self, topics: list[str], records_max: int = sys.maxsize) -> DataFrame:
        return (
            self._spark.readStream.format("kafka")
            .options(**self._options)
            .option("subscribePattern", decode.write_topic_pattern(topics))
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .option("maxOffsetsPerTrigger", min(records_max, self._batch_records))
            # Retention may have deleted records that were not read yet; the rest is still read.
            .option("failOnDataLoss", "false")
            .load()
        )

    def _pass(self, name: str, rows: DataFrame, when_ms: str | Column, folders: list[str]) -> dict[int, _Written]:
        """Write what is new of one set, to its end; what each batch has written."""
        # One file for each folder and batch, not one for each of Kafka's partitions; of many letters some more.
        shares = [F.floor(F.col("nth") / _OF_RECORD_A_TASK)] if "nth" in rows.columns else []
        dated = schemas.lay_out_rows(rows.withColumn("day", decode.find_day(when_ms))).repartition(*folders, *shares).drop("nth")
        query = (
            dated.observe(_WRITTEN, F.count(F.lit(1)).alias("rows"), F.collect_set(_noted_of(name)).alias("noted"))
            .writeStream.format("parquet")
            .queryName(name)
            .option("path", f"{self._data}/{name}")
            .option("checkpointLocation", f"{self._data}/_checkpoints/{name}")
            .option("maxRecordsPerFile", ROWS_A_FILE)
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
                        written[batch.batchId] = _Written(observed["rows"], observed["noted"])
                if self._stopping() and not is_over:
                    raise Stopped
        finally:
            query.stop()
        return written
