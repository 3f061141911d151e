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

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

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
    StructField("targets", ArrayType(StringType())), StructField("groups", MapType(StringType(), DateType())),
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
