"""Columns of the Parquet sets, and of the frames that are made of them. Times are epoch milliseconds, sizes bytes.

| frame | one row is |
| --- | --- |
| `LETTER` | an outcome record, of version 1 or 2, and its place in Kafka; what version 1 does not tell is null |
| `SENT` | a retry that lies on its target topic |
| `POSITION` | a sample of what a consumer group has committed on one partition |
| `ASIDE` | a record that cannot be read as one of these, and why |
| `ATTEMPT` | a decision to retry, and what became of it |
| `PARKED` | a decision to park |

Sets are partitioned by `day`, UTC, and all but positions by `team`.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from retry.analytics.schema import OUTCOME

_KINDS: dict[str, DataType] = {
    "text": StringType(),
    "number": LongType(),
    "flag": BooleanType(),
    "bytes": BinaryType(),
    "date": DateType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


def _columns(**kinds: str) -> StructType:
    """Columns by name; a `?` after the kind says that there may be nothing."""
    return StructType([StructField(name, _KINDS[kind.rstrip("?")], kind.endswith("?")) for name, kind in kinds.items()])


PLACE = _columns(kafka_topic="text", kafka_partition="number", kafka_offset="number")
LETTER = StructType([*OUTCOME.fields, *PLACE.fields])
SENT = _columns(
    topic="text", partition="number", offset="number", id="text", attempt="number", due_ms="number?", sent_ms="number?",
    timestamp_ms="number", bytes="number", team="text",
)  # fmt: skip
SAMPLE = _columns(v="number", kind="text", group="text", topic="text", partition="number", offset="number", at_ms="number")
POSITION = StructType([*SAMPLE.fields, *PLACE.fields])
ASIDE = StructType([
    *PLACE.fields,
    *_columns(timestamp_ms="number", why="text", key="bytes?", value="bytes?", headers="headers?").fields,
])  # fmt: skip
DAY = _columns(day="date")
UNTIL = _columns(until_ms="number")

# `fate` is waiting, pending, recovered or failed; see `retry.analytics.attempts`.
ATTEMPT = _columns(
    team="text", policy="text", topic="text", target="text", exception="text?", cause="text?", fingerprint="text?",
    id="text", attempt="number", first_failed_ms="number", failed_ms="number", due_ms="number", delay_ms="number",
    sent_ms="number?", passed_ms="number?", back_ms="number?", back_as="text?", ended_ms="number", bytes="number?",
    fate="text", assumed="flag", source="text",
)  # fmt: skip
PARKED = _columns(
    team="text", policy="text", topic="text", target="text", exception="text?", cause="text?", fingerprint="text?",
    id="text", attempt="number", first_failed_ms="number", failed_ms="number", parked_ms="number", reason="text?",
)  # fmt: skip
LINEAGE = _columns(
    team="text", policy="text", id="text", attempt="number", first_failed_ms="number", fate="text", ended_ms="number"
)
