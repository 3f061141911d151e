"""The outcome record as Spark reads it, derived by hand from `retry.telemetry.outcomes`; a test keeps the two equal."""

from __future__ import annotations

from pyspark.sql.types import LongType, StringType, StructField, StructType

OUTCOME = StructType(
    [
        StructField("v", LongType(), nullable=False),
        StructField("id", StringType(), nullable=False),
        StructField("source", StringType(), nullable=False),
        StructField("team", StringType(), nullable=False),
        StructField("topic", StringType(), nullable=False),
        StructField("policy", StringType(), nullable=False),
        StructField("attempt", LongType(), nullable=False),
        StructField("exception", StringType(), nullable=True),
        StructField("first_failed_ms", LongType(), nullable=False),
        StructField("failed_ms", LongType(), nullable=False),
        StructField("taken_ms", LongType(), nullable=False),
        StructField("decision", StringType(), nullable=False),
        StructField("reason", StringType(), nullable=True),
        StructField("due_ms", LongType(), nullable=True),
        StructField("target", StringType(), nullable=False),
        # Of version 1 these four are null.
        StructField("cause", StringType(), nullable=True),
        StructField("fingerprint", StringType(), nullable=True),
        StructField("group", StringType(), nullable=True),
        StructField("delay_ms", LongType(), nullable=True),
    ]
)

# A retry as it lies on its target topic. `sent_ms` is null where the topic keeps the letter's own timestamp.
RETRY = StructType(
    [
        StructField("topic", StringType(), nullable=False),
        StructField("id", StringType(), nullable=False),
        StructField("attempt", LongType(), nullable=False),
        StructField("due_ms", LongType(), nullable=True),
        StructField("sent_ms", LongType(), nullable=True),
    ]
)
