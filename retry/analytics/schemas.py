"""Columns of outcome records, of the Parquet sets, and of the frames made of them. Times are epoch milliseconds, sizes bytes.

| frame | one row is |
| --- | --- |
| `OUTCOME` | a letter as `retry.telemetry.outcomes` reads it; a test keeps the two equal |
| `OUTCOME_RECORD` | the value of an outcome record, see there |
| `LETTER` | an outcome and the location of its record |
| `SENT` | a retry that lies on its target topic |
| `POSITION` | a sample of what a consumer group has committed on one partition |
| `ASIDE` | a record that cannot be read as one of these, and why |
| `ATTEMPT` | a decision to retry, and what became of it |
| `PARKED` | a decision not to retry: the letter was parked, or operators discarded or erased it |

Sets are partitioned by `day`, UTC, and all but positions by `team`.
"""

from __future__ import annotations

from datetime import date
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

_KINDS: dict[str, T.DataType] = {
    "text": StringType(), "number": T.LongType(), "flag": T.BooleanType(), "bytes": T.BinaryType(), "date": T.DateType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", T.BinaryType())])),
}  # fmt: skip


def _columns(**kinds: str) -> StructType:
    """Columns by name; a `?` after the kind says that there may be nothing."""
    return StructType([StructField(name, _KINDS[kind.rstrip("?")], kind.endswith("?")) for name, kind in kinds.items()])


OUTCOME = _columns(
    v="number", id="text", source="text", team="text", topic="text", policy="text", attempt="number", exception="text?",
    first_failed_ms="number", failed_ms="number", taken_ms="number", decision="text", reason="text?", due_ms="number?",
    target="text", cause="text?", fingerprint="text?", group="text?", delay_ms="number?", action="text?", action_kind="text?",
)  # fmt: skip
SHARED = _columns(
    team="text", topic="text", partition="number", policy="text", attempt="number", exception="text?", decision="text",
    reason="text?", target="text", cause="text?", fingerprint="text?", group="text?",
)  # fmt: skip
OF_EACH = _columns(id="text", offset="number", first_failed_ms="number", failed_ms="number", due_ms="number?")
LISTED = StructType([StructField(field.name, ArrayType(field.dataType)) for field in OF_EACH.fields])
OUTCOME_RECORD = StructType([
    *_columns(v="number", taken_ms="number", action="text?", action_kind="text?").fields,
    StructField("letters", ArrayType(StructType([*SHARED.fields, *LISTED.fields]))),
])  # fmt: skip
RECORD_LOCATION = _columns(kafka_topic="text", kafka_partition="number", kafka_offset="number")
LETTER = StructType([*OUTCOME.fields, *RECORD_LOCATION.fields])
SENT = _columns(
    topic="text", partition="number", offset="number", id="text", attempt="number", due_ms="number?", sent_ms="number?",
    timestamp_ms="number", bytes="number", team="text",
)  # fmt: skip
SAMPLE = _columns(v="number", kind="text", group="text", topic="text", partition="number", offset="number", at_ms="number")
POSITION = StructType([*SAMPLE.fields, *RECORD_LOCATION.fields])
ASIDE = StructType([
    *RECORD_LOCATION.fields,
    *_columns(timestamp_ms="number", why="text", key="bytes?", value="bytes?", headers="headers?").fields,
])  # fmt: skip
DAY = _columns(day="date")
HORIZON_ROW = StructType([
    *_columns(until_ms="number", letters_batch="number?", positions_batch="number?").fields,
    StructField("targets", ArrayType(StringType())), StructField("watched", T.MapType(StringType(), T.DateType())),
])  # fmt: skip

# `fate` is waiting, pending, recovered or failed; see `retry.analytics.attempts`. `action_kind` is null where the service has
# decided; `returned`: operators had the letter retried once more from where it rested.
ATTEMPT = _columns(
    team="text", policy="text", topic="text", target="text", exception="text?", cause="text?", fingerprint="text?",
    id="text", attempt="number", first_failed_ms="number", failed_ms="number", due_ms="number", delay_ms="number",
    sent_ms="number?", passed_ms="number?", back_ms="number?", back_as="text?", ended_ms="number", bytes="number?",
    fate="text", assumed="flag", source="text", first_policy="text", action_kind="text?", returned="flag",
)  # fmt: skip
# `decision` is park, discard or erase; `stands`: operators have decided nothing else since; `by_policy`: the service has decided,
# and of that lineage no letter had been returned.
PARKED = _columns(
    team="text", policy="text", topic="text", target="text", exception="text?", cause="text?", fingerprint="text?",
    id="text", attempt="number", first_failed_ms="number", failed_ms="number", parked_ms="number", reason="text?", source="text",
    decision="text", action_kind="text?", stands="flag", by_policy="flag",
)  # fmt: skip


# Reads folders of Parquet files, in columns that are given beforehand.

def read_rows(spark: SparkSession, path: str, schema: StructType) -> DataFrame:
    """Read the rows of a folder; none where it is missing, and null in columns that whoever wrote it did not know."""
    try:
        # With a given schema, columns that older runs did not write are null, and team 7 stays a text.
        # Old days may be deleted, though the list of a set names their files for ever.
        return spark.read.schema(schema).option("ignoreMissingFiles", "true").parquet(path)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return make_no_rows(spark, schema)


def make_no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    # Not `createDataFrame`, which starts a Python process for each core.
    return spark.range(0).select(*[F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields])


# How a row's team names the folder that the row lies in: bounded, safe on every file system, and never the same for two teams.
#
# Spark makes a folder of every value of a column that it partitions by. A team's name may be anything, in records that others
# wrote too: longer than a file's name may be, empty, or like another one but for its case. So the column `team` of the Parquet
# sets names the folder, and the column `team_name` has the team itself.

TEAM_NAME = "team_name"
# It begins with a letter and has no upper case, so nothing takes it for a number or a date, and no file system for another one.
# Names with a hash are longer than these, so the two kinds never meet.
_PLAIN = r"^[a-z][a-z0-9_-]{0,62}\z"
_READABLE_CHARS = 24


def name_folder(team: Column) -> Column:
    """Name a team's folder: its own name where that is short and plain, else what is readable of it and its SHA-256."""
    readable = F.regexp_replace(F.lower(F.substring(team, 1, _READABLE_CHARS)), "[^a-z0-9]+", "-")
    return F.when(team.rlike(_PLAIN), team).otherwise(F.concat(readable, F.lit("-"), F.sha2(team, 256)))


def lay_out_rows(rows: DataFrame) -> DataFrame:
    """Lay out rows of a set as they are written: of those that have a team, `team` names the folder."""
    if "team" not in rows.columns:
        return rows
    return rows.withColumn(TEAM_NAME, F.col("team")).withColumn("team", name_folder(F.col("team")))


# What the last pass of `retry analytics ingest` has noted beside the sets: up to when they are complete, and what is in them.
#
# A pass that was killed notes nothing of what it wrote. So beside what is noted stands up to which batch of a set it is known.

_FOLDER = "horizon"


class Watched(NamedTuple):
    """A consumer group of which samples tell what it has committed on a topic; no topic's name has a space.

    >>> Watched.from_text(str(Watched("of two words", "orders"))).group
    'of two words'
    """

    group: str
    topic: str

    def __str__(self) -> str:
        return f"{self.topic} {self.group}"

    @classmethod
    def from_text(cls, text: str) -> Watched:
        topic, _, group = text.partition(" ")
        return cls(group, topic)


class Horizon(NamedTuple):
    """The notes of the ingest about its sets; None where nothing was noted.

    Attributes:
      until_ms: every letter that was taken in before is there.
      letters_batch, positions_batch: the last batches whose targets, or groups, are among those below.
      targets: where retries of all letters went.
      watched: the day of the first sample, of each group and topic that were ever sampled.
    """

    until_ms: int | None = None
    letters_batch: int | None = None
    positions_batch: int | None = None
    targets: list[str] | None = None
    watched: dict[Watched, date] | None = None


def read_horizon(spark: SparkSession, data: str) -> Horizon:
    """Read the notes of the last pass; all fields are None where no pass has ended."""
    noted = max(read_rows(spark, f"{data}/{_FOLDER}", HORIZON_ROW).collect(), key=lambda row: row["until_ms"], default=None)
    if noted is None:
        return Horizon()
    found = Horizon(*(noted[name] for name in Horizon._fields))
    watched = found.watched
    if watched is None:
        return found
    return found._replace(watched={Watched.from_text(str(each)): day for each, day in watched.items()})


def write_horizon(spark: SparkSession, data: str, horizon: Horizon) -> None:
    values = horizon._asdict()
    columns = {name: F.lit(value) for name, value in values.items() if name != "watched"} | {"watched": _as_map(horizon.watched)}
    row = [columns[field.name].cast(field.dataType).alias(field.name) for field in HORIZON_ROW.fields]
    spark.range(1).select(*row).write.mode("overwrite").parquet(f"{data}/{_FOLDER}")


def find_first_days(positions: DataFrame) -> dict[Watched, date]:
    """Find the day of the first sample of each group on each topic; of samples with their `day`."""
    rows = positions.groupBy("group", "topic").agg(F.min("day").alias("first")).collect()
    return {Watched(row["group"], row["topic"]): row["first"] for row in rows}


def _as_map(watched: dict[Watched, date] | None) -> Column:
    if watched is None:
        return F.lit(None)
    return F.map_from_arrays(F.lit([str(each) for each in watched]), F.lit(list(watched.values())))
