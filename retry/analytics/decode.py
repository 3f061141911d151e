"""Kafka's records → letters, retries that were sent, positions, and those that are none of these though they should be.

The same for a stream and for what was read at once. Every column of Spark's Kafka source is expected, headers included.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from retry import format_versions
from retry.analytics.schemas import ASIDE, PLACE, SAMPLE, SENT
from retry.analytics.schema import OUTCOME
from retry.telemetry.offset_records import KEY as POSITION_KEY

_SAMPLE_READS = (1,)
_LOG_APPEND_TIME = 1
_DAY_MS = 86_400_000
# The year 9999: what a made-up timestamp says beyond is no day that a folder can be named after.
_LAST_DAY = 2_932_896


def letters(outcomes: DataFrame) -> DataFrame:
    """The letters among records of the outcomes topic, in the columns of `LETTER`."""
    told = _told(outcomes, OUTCOME)
    return told.where(_is_letter() & (_letter_fault() == "")).select("told.*", *PLACE.names)


def positions(outcomes: DataFrame) -> DataFrame:
    """The samples of committed offsets among records of the outcomes topic, in the columns of `POSITION`."""
    told = _told(outcomes, SAMPLE)
    return told.where(~_is_letter() & (_sample_fault() == "")).select("told.*", *PLACE.names)


def sent(records: DataFrame) -> DataFrame:
    """The records that this service sent, in the columns of `SENT`; whatever else lies on their topics is left out."""
    sent_ms = F.when(F.col("timestampType") == _LOG_APPEND_TIME, F.unix_millis("timestamp"))
    headers = F.coalesce("headers", F.array().cast(ASIDE["headers"].dataType))
    sizes = F.transform(headers, lambda header: _bytes(header["key"]) + _bytes(header["value"]))
    found = records.select(
        "topic",
        F.col("partition").cast("long"),
        "offset",
        header("retry-id").alias("id"),
        header("retry-attempt").try_cast("long").alias("attempt"),
        header("retry-due-ms").try_cast("long").alias("due_ms"),
        sent_ms.alias("sent_ms"),
        F.unix_millis("timestamp").alias("timestamp_ms"),
        (_bytes("key") + _bytes("value") + F.aggregate(sizes, F.lit(0).cast("long"), lambda x, y: x + y)).alias("bytes"),
        # A policy is named team/topic.
        F.coalesce(F.substring_index(header("retry-policy"), "/", 1), F.lit("")).alias("team"),
    )
    return found.where("id is not null and attempt is not null").select(*SENT.names)


def aside(records: DataFrame, outcomes_topic: str) -> DataFrame:
    """The records that ought to be one of these and cannot be read, in the columns of `ASIDE`."""
    of_outcomes = F.col("topic") == outcomes_topic
    ours = header("retry-id").isNotNull() & header("retry-attempt").try_cast("long").isNull()
    in_letter = _letter_fault(F.from_json(F.col("value").cast("string"), OUTCOME))
    in_sample = _sample_fault(F.from_json(F.col("value").cast("string"), SAMPLE))
    why = F.when(of_outcomes, F.when(_is_letter(), in_letter).otherwise(in_sample)).when(ours, "retry-attempt is no number")
    placed = _placed(records).withColumn("why", why).withColumn("timestamp_ms", F.unix_millis("timestamp"))
    return placed.where("why != ''").select(*ASIDE.names)


def day(moment_ms: str | Column) -> Column:
    """The day in UTC, whatever the session's time zone."""
    days = F.floor((F.col(moment_ms) if isinstance(moment_ms, str) else moment_ms) / _DAY_MS)
    return F.date_add(F.lit("1970-01-01").cast("date"), F.least(F.greatest(days, F.lit(0)), F.lit(_LAST_DAY)).cast("int"))


def header(name: str) -> Column:
    """The last value of a header, as Kafka's own `lastHeader`; null where there is none."""
    same_name = F.filter(F.col("headers"), lambda each: each["key"] == name)
    return F.try_element_at(same_name, F.lit(-1))["value"].cast("string")


def _told(outcomes: DataFrame, schema: StructType) -> DataFrame:
    return _placed(outcomes).withColumn("told", F.from_json(F.col("value").cast("string"), schema))


def _placed(records: DataFrame) -> DataFrame:
    return records.withColumns({
        "kafka_topic": F.col("topic"),
        "kafka_partition": F.col("partition").cast("long"),
        "kafka_offset": F.col("offset"),
    })


def _is_letter() -> Column:
    return ~F.col("key").eqNullSafe(F.lit(POSITION_KEY))


def _letter_fault(told: Column | None = None) -> Column:
    """Why a record is no letter that can be counted; empty where it is one."""
    told = F.col("told") if told is None else told
    retry, park = told["decision"] == "retry", told["decision"] == "park"
    undecided = ~F.coalesce((retry & told["due_ms"].isNotNull()) | park, F.lit(False))
    return _fault(told, OUTCOME, format_versions.OUTCOME.reads, undecided)


def _sample_fault(told: Column | None = None) -> Column:
    """Why a record is no sample of a committed offset; empty where it is one."""
    return _fault(F.col("told") if told is None else told, SAMPLE, _SAMPLE_READS, F.lit(False))


def _fault(told: Column, schema: StructType, reads: Iterable[int], wrong: Column) -> Column:
    for field in schema.fields:
        if not field.nullable:
            wrong = wrong | told[field.name].isNull()
    other = F.concat(F.lit("version "), told["v"].cast("string"))
    of_this = F.coalesce(told["v"].isin(*reads), F.lit(True))
    return F.when(~of_this, other).when(told.isNull() | wrong, "unreadable").otherwise("")


def _bytes(value: str | Column) -> Column:
    return F.coalesce(F.octet_length(value), F.lit(0)).cast("long")
