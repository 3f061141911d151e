"""Parses Kafka's records into letters, sent retries, committed offsets, and records that cannot be read as one of these.

Works on streams and on batches. Needs every column of Spark's Kafka source, headers included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from retry import format_versions
from retry.analytics.schemas import ASIDE, LISTED, OUTCOME, OUTCOME_RECORD, RECORD_LOCATION, SAMPLE, SENT, SHARED
from retry.dead_letters import retry_headers
from retry.kafka.topics import LEGAL_NAME
from retry.telemetry.offset_records import KEY as POSITION_KEY
from retry.telemetry.outcomes import DISCARD, ERASE, PARK, RETRY, RETURN

# Reads every committed record of some topics into a frame, through Spark's Kafka source.

def load_records(spark: SparkSession, options: Mapping[str, str], topics: Iterable[str]) -> DataFrame:
    """Read everything committed on `topics` by now; a topic that does not exist holds nothing."""
    return (
        spark.read.format("kafka")
        .options(**options)
        .option("subscribePattern", write_topic_pattern(topics))
        .option("includeHeaders", "true")
        # Retention may delete records while they are read; a report shows what is left.
        .option("failOnDataLoss", "false")
        .load()
    )


def write_topic_pattern(topics: Iterable[str]) -> str:
    """Write the topics as a pattern: a missing topic subscribed by name fails the read, a pattern without a match reads nothing.

    Spark looks for it anywhere in a name, so it says where a name begins and ends. A text that no topic can be called, which
    others may have written into an outcome, is left out.
    """
    names = sorted({topic for topic in topics if LEGAL_NAME.fullmatch(topic)})
    return f"^(?:{'|'.join(map(re.escape, names))})$"


_SAMPLE_READS = (1,)
_LOG_APPEND_TIME = 1
_DAY_MS = 86_400_000
# In the year 9999: a folder cannot be named after the day of a made-up timestamp beyond it.
_LAST_DAY = 2_932_896
_LAST_MS, _ATTEMPT_MAX, _OFFSET_MAX = 253_402_300_799_999, 9_999_999_999, 1 << 62
_TIMES = ("taken_ms", "first_failed_ms", "failed_ms", "due_ms")


def decode_letters(outcomes: DataFrame) -> DataFrame:
    return unpack_letters(outcomes).drop("nth")


def unpack_letters(outcomes: DataFrame) -> DataFrame:
    """Unpack the letters of all records: `LETTER`, and `nth`, the place of a letter in its record, from 0."""
    parsed = _parse_outcomes(outcomes, OUTCOME_RECORD)
    readable = parsed.where(_is_letter() & (_letter_fault(F.col("parsed")) == ""))
    each = readable.select(F.posexplode(_unpack_letters(F.col("parsed"))).alias("nth", "letter"), *RECORD_LOCATION.names)
    return each.select("letter.*", *RECORD_LOCATION.names, "nth")


def select_positions(outcomes: DataFrame) -> DataFrame:
    parsed = _parse_outcomes(outcomes, SAMPLE)
    return parsed.where(~_is_letter() & (_sample_fault() == "")).select("parsed.*", *RECORD_LOCATION.names)


def select_sent(records: DataFrame) -> DataFrame:
    """Select the records that the service sent, in the columns of `SENT`; leave out other records on the same topics."""
    sent_ms = F.when(F.col("timestampType") == _LOG_APPEND_TIME, F.unix_millis("timestamp"))
    headers = F.coalesce("headers", F.array().cast(ASIDE["headers"].dataType))
    sizes = F.transform(headers, lambda find_header: _bytes(find_header["key"]) + _bytes(find_header["value"]))
    columns: list[Column | str] = [
        "topic", F.col("partition").cast("long"), "offset", find_header(retry_headers.ID).alias("id"),
        find_header(retry_headers.ATTEMPT).try_cast("long").alias("attempt"),
        find_header(retry_headers.DUE_MS).try_cast("long").alias("due_ms"),
        sent_ms.alias("sent_ms"), F.unix_millis("timestamp").alias("timestamp_ms"),
        (_bytes("key") + _bytes("value") + F.aggregate(sizes, F.lit(0).cast("long"), lambda x, y: x + y)).alias("bytes"),
        # A policy is named team/topic.
        F.coalesce(F.substring_index(find_header(retry_headers.POLICY), "/", 1), F.lit("")).alias("team"),
    ]  # fmt: skip
    return records.select(*columns).where("id is not null and attempt is not null").select(*SENT.names)


def select_unreadable(records: DataFrame, outcomes_topic: str) -> DataFrame:
    """Select records that ought to be letters, samples or sent retries and cannot be read, in the columns of `ASIDE`."""
    of_outcomes = F.col("topic") == outcomes_topic
    ours = find_header(retry_headers.ID).isNotNull() & find_header(retry_headers.ATTEMPT).try_cast("long").isNull()
    in_letter = _letter_fault(F.from_json(F.col("value").cast("string"), OUTCOME_RECORD))
    in_sample = _sample_fault(F.from_json(F.col("value").cast("string"), SAMPLE))
    why = F.when(of_outcomes, F.when(_is_letter(), in_letter).otherwise(in_sample)).when(ours, "retry-attempt is no number")
    located = _add_location(records).withColumn("why", why).withColumn("timestamp_ms", F.unix_millis("timestamp"))
    return located.where("why != ''").select(*ASIDE.names)


def find_day(moment_ms: str | Column) -> Column:
    """Find the day in UTC, whatever the session's time zone."""
    days = F.floor((F.col(moment_ms) if isinstance(moment_ms, str) else moment_ms) / _DAY_MS)
    return F.date_add(F.lit("1970-01-01").cast("date"), F.least(F.greatest(days, F.lit(0)), F.lit(_LAST_DAY)).cast("int"))


def find_header(name: str) -> Column:
    """Find the last value of a header, as Kafka's own `lastHeader`; null where there is none."""
    same_name = F.filter(F.col("headers"), lambda each: each["key"] == name)
    return F.try_element_at(same_name, F.lit(-1))["value"].cast("string")


def _parse_outcomes(outcomes: DataFrame, schema: StructType) -> DataFrame:
    return _add_location(outcomes).withColumn("parsed", F.from_json(F.col("value").cast("string"), schema))


def _add_location(records: DataFrame) -> DataFrame:
    partition = F.col("partition").cast("long")
    return records.withColumns({"kafka_topic": F.col("topic"), "kafka_partition": partition, "kafka_offset": F.col("offset")})


def _is_letter() -> Column:
    return ~F.col("key").eqNullSafe(F.lit(POSITION_KEY))


def _unpack_letters(record: Column) -> Column:
    """List the letters that a record of outcomes tells of, as `OUTCOME`."""
    return F.flatten(F.transform(record["letters"], lambda alike: _letters_alike(record, alike)))


def _letters_alike(record: Column, alike: Column) -> Column:
    def build_letter(id_: Column, n: Column) -> Column:
        fields = {name: record[name] for name in ("v", "taken_ms", "action", "action_kind")}
        fields |= {name: alike[name] for name in OUTCOME.names if name in SHARED.names}
        fields |= {name: F.get(alike[name], n) for name in LISTED.names} | {"id": id_}
        place = alike["topic"], alike["partition"].cast("string"), fields["offset"].cast("string")
        # Not `concat_ws`, which passes over what is missing.
        fields["source"] = F.concat(place[0], F.lit("/"), place[1], F.lit("/"), place[2])
        # What is beyond all bounds is found out below, and must not end the query before.
        fields["delay_ms"] = F.try_subtract(fields["due_ms"], fields["failed_ms"])
        return F.struct(*(fields[name].alias(name) for name in OUTCOME.names))

    return F.transform(alike["id"], build_letter)


def _letter_fault(record: Column) -> Column:
    """Say why a record tells of no letters that can be counted; empty where it does."""
    # A list that is null has no length to compare: then the record cannot be read.
    wrong = F.exists(_unpack_letters(record), _is_undecided) | F.exists(record["letters"], _uneven)
    return _fault(record, format_versions.OUTCOME.reads, F.coalesce(wrong, F.lit(True)))


def _uneven(alike: Column) -> Column:
    first, *others = (F.size(alike[name]) for name in LISTED.names)
    return reduce(or_, (size != first for size in others))


def _is_undecided(letter: Column) -> Column:
    is_sent, rests = letter["decision"].isin(RETRY, RETURN), letter["decision"].isin(PARK, DISCARD, ERASE)
    decided = F.coalesce((is_sent & letter["due_ms"].isNotNull()) | rests, F.lit(False))
    is_beyond = _is_beyond(letter, *_TIMES) | _is_beyond(letter, "attempt", most=_ATTEMPT_MAX)
    return ~decided | _is_incomplete(letter, OUTCOME) | is_beyond


def _sample_fault(parsed: Column | None = None) -> Column:
    """Say why a record is no sample of a committed offset; empty where it is one."""
    parsed = F.col("parsed") if parsed is None else parsed
    beyond = _is_beyond(parsed, "at_ms") | _is_beyond(parsed, "partition", "offset", most=_OFFSET_MAX)
    return _fault(parsed, _SAMPLE_READS, _is_incomplete(parsed, SAMPLE) | beyond)


def _is_incomplete(parsed: Column, schema: StructType) -> Column:
    return reduce(or_, (parsed[field.name].isNull() for field in schema.fields if not field.nullable))


def _is_beyond(parsed: Column, *names: str, most: int = _LAST_MS) -> Column:
    """Whether a number that is there is negative, or greater than any that is real: what is reckoned with it would overflow."""
    return reduce(or_, (F.coalesce(~parsed[name].between(0, most), F.lit(False)) for name in names))


def _fault(parsed: Column, reads: Iterable[int], wrong: Column) -> Column:
    other = F.concat(F.lit("version "), parsed["v"].cast("string"))
    of_this = F.coalesce(parsed["v"].isin(*reads), F.lit(True))
    return F.when(~of_this, other).when(parsed.isNull() | wrong, "unreadable").otherwise("")


def _bytes(value: str | Column) -> Column:
    return F.coalesce(F.octet_length(value), F.lit(0)).cast("long")
