"""Spring: Kafka's dead-letter recoverer, its retry topics, and the Cloud Stream binder. Numbers are big-endian binary.

Spring Kafka writes `kafka_dlt-*` from its recoverer, but `kafka_original-*` and `kafka_exception-*` where a dead letter
comes out of `@RetryableTopic`; of the former it has only the consumer group then, whose name is the same in both. Each
has a row, so that of a letter that went through both the later one is believed.
"""

from __future__ import annotations

from retry.dead_letters.frameworks import header_values
from retry.dead_letters.frameworks.dialect import Dialect, any_of, locate_name, locate_text, read_at

_GROUP = "kafka_dlt-original-consumer-group"


def _build_header_names(prefix: str) -> tuple[str, ...]:
    parts = ("fqcn", "cause-fqcn", "message", "stacktrace")
    original = (f"{prefix}original-{what}" for what in ("topic", "partition", "offset", "timestamp"))
    return (*original, *(f"{prefix}{key}exception-{what}" for key in ("", "key-") for what in parts))


def _dialect(newer: str, older: str, *marks: str) -> Dialect:
    both = (newer, older)

    def exception(what: str) -> list[str]:
        return [f"{prefix}{key}exception-{what}" for prefix in both for key in ("", "key-")]

    def original(what: str) -> list[str]:
        return [f"{prefix}original-{what}" for prefix in both]

    return Dialect(
        family="spring-kafka",
        marks=any_of(*_build_header_names(newer), *marks),
        origin_topic=locate_name(*original("topic")),
        origin_partition=read_at(header_values.int32, *original("partition")),
        origin_offset=read_at(header_values.int64, *original("offset")),
        origin_timestamp_ms=read_at(header_values.int64, *original("timestamp"))
        + read_at(header_values.big_integer, "retry_topic-original-timestamp"),
        consumer_group=locate_name(_GROUP, "kafka_original-consumer-group"),
        # The first is exact but starts again at each retry topic; the second names the delivery that would come next.
        attempts=read_at(header_values.int32, "kafka_deliveryAttempt")
        + read_at(header_values.byte_or_int32, "retry_topic-attempts", plus=-1),
        exception=locate_name(*exception("fqcn")),
        # The cause header names only the wrapper's direct cause; after a failed deserialisation it is the wrapper.
        thrown=locate_name(*exception("cause-fqcn")),
        cause=read_at(header_values.java_root, *exception("stacktrace")) + locate_name(*exception("cause-fqcn")),
        message=locate_text(*exception("message")),
    )


RECOVERER = _dialect("kafka_dlt-", "kafka_")
RETRY_TOPICS = _dialect("kafka_", "kafka_dlt-", "retry_topic-attempts", "retry_topic-original-timestamp")

CLOUD_STREAM = Dialect(
    family="spring-cloud-stream",
    marks=any_of(
        "x-original-topic", "x-original-partition", "x-original-offset",
        "x-exception-fqcn", "x-exception-message", "x-exception-stacktrace",
    ),
    origin_topic=locate_name("x-original-topic"),
    origin_partition=read_at(header_values.int32, "x-original-partition"),
    origin_offset=read_at(header_values.int64, "x-original-offset"),
    origin_timestamp_ms=read_at(header_values.int64, "x-original-timestamp"),
    attempts=read_at(header_values.digits_or_int32, "x-retries", plus=1),
    exception=locate_name("x-exception-fqcn"),
    cause=read_at(header_values.java_root, "x-exception-stacktrace"),
    message=locate_text("x-exception-message"),
)  # fmt: skip

DIALECTS = (RECOVERER, RETRY_TOPICS, CLOUD_STREAM)
