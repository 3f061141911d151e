"""What applications use: Spring, SmallRye, the .NET buses, libraries in Ruby and Go, what teams write by hand, and ourselves."""

from __future__ import annotations

from retry.dead_letters import retry_headers as ours
from retry.dead_letters.frameworks import header_values
from retry.dead_letters.frameworks.header_values import (
    Dialect,
    Tier,
    all_of,
    any_of,
    count,
    locate_name,
    locate_number,
    locate_text,
    read_at,
)

KARAFKA = Dialect(
    family="karafka",
    marks=all_of("source_topic", "source_offset"),
    origin_topic=locate_name("source_topic"),
    origin_partition=count("source_partition"),
    origin_offset=locate_number("source_offset"),
    consumer_group=locate_name("source_consumer_group"),
    attempts=count("source_attempts"),
)

WATERMILL = Dialect(
    family="watermill",
    marks=any_of("topic_poisoned", "reason_poisoned"),
    origin_topic=locate_name("topic_poisoned"),
    attempts=count("_watermill_requeuer_retries", plus=1),
    message=locate_text("reason_poisoned"),
    stage=locate_name("handler_poisoned"),
)

# Counts its own failures; the one that brought the record to it comes before. `x-retry-attempt-count` counts waiting.
# Of two headers of one name it reads and sets the first.
CRONSUMER = Dialect(
    family="kafka-cronsumer",
    marks=(
        any_of("x-retry-attempt-count")
        + all_of("x-retry-count", "x-error-message")
        + all_of("x-retry-count", "x-produce-time")
    ),
    attempts=count("x-retry-count", plus=1, first=True),
    message=locate_text("x-error-message", first=True),
)

UBER = Dialect(
    family="uber",
    marks=any_of("kafka-topic", "kafka-consumergroup", "kafka-retrycount", "kafka-attemptcount"),
    origin_topic=locate_name("kafka-topic"),
    origin_partition=count("kafka-partition"),
    origin_offset=locate_number("kafka-offset"),
    consumer_group=locate_name("kafka-consumergroup"),
    attempts=count("kafka-retrycount", plus=1) + count("kafka-attemptcount"),
)

# Its count shares our name: it is one more at each failure, before the record is scheduled or given up.
ETF1 = Dialect(
    family="etf1",
    marks=all_of(ours.ATTEMPT, "retry-original-timestamp"),
    unless=frozenset({ours.ID}),
    attempts=count(ours.ATTEMPT),
)

_AD_HOC_MARKS = (
    "exception-class", "original-topic", "original-offset", "failure-reason", "failure-count", "dlq-original-topic",
    "dlq-error-class", "dlq-reason", "dlq-attempts", "dlq-stack", "replay_count", "x-retry-count", "x-error-message",
    "__krafka.dlq.exception.message",
)  # fmt: skip

AD_HOC = Dialect(
    family="ad-hoc",
    tier=Tier.AD_HOC,
    marks=any_of(*_AD_HOC_MARKS),
    origin_topic=locate_name("original-topic", "dlq-original-topic"),
    origin_partition=count("original-partition"),
    origin_offset=locate_number("original-offset"),
    attempts=count("failure-count", "dlq-attempts") + count("replay_count", "x-retry-count", plus=1),
    exception=locate_name("exception-class", "dlq-error-class"),
    message=locate_text("failure-reason", "dlq-reason", "x-error-message", "__krafka.dlq.exception.message"),
)

OWN = Dialect(family="own", tier=Tier.OWN, marks=any_of(ours.ID, ours.SOURCE), attempts=count(ours.ATTEMPT, plus=1))

OTHERS = (KARAFKA, WATERMILL, CRONSUMER, UBER, ETF1, AD_HOC, OWN)


# Spring: Kafka's dead-letter recoverer, its retry topics, and the Cloud Stream binder. Numbers are big-endian binary.
#
# Spring Kafka writes `kafka_dlt-*` from its recoverer, but `kafka_original-*` and `kafka_exception-*` where a dead letter comes
# out of `@RetryableTopic`; of the former it has only the consumer group then, whose name is the same in both. Each has a row,
# so that of a letter that went through both the later one is believed.

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
        origin_partition=read_at(header_values.parse_int32, *original("partition")),
        origin_offset=read_at(header_values.parse_int64, *original("offset")),
        origin_timestamp_ms=read_at(header_values.parse_int64, *original("timestamp"))
        + read_at(header_values.parse_big_integer, "retry_topic-original-timestamp"),
        consumer_group=locate_name(_GROUP, "kafka_original-consumer-group"),
        # The first is exact but starts again at each retry topic; the second names the delivery that would come next.
        attempts=read_at(header_values.parse_int32, "kafka_deliveryAttempt")
        + read_at(header_values.parse_byte_or_int32, "retry_topic-attempts", plus=-1),
        exception=locate_name(*exception("fqcn")),
        # The cause header names only the wrapper's direct cause; after a failed deserialisation it is the wrapper.
        thrown=locate_name(*exception("cause-fqcn")),
        cause=read_at(header_values.find_java_root, *exception("stacktrace")) + locate_name(*exception("cause-fqcn")),
        cause_message=read_at(header_values.find_java_message, *exception("stacktrace")),
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
    origin_partition=read_at(header_values.parse_int32, "x-original-partition"),
    origin_offset=read_at(header_values.parse_int64, "x-original-offset"),
    origin_timestamp_ms=read_at(header_values.parse_int64, "x-original-timestamp"),
    attempts=read_at(header_values.parse_digits_or_int32, "x-retries", plus=1),
    exception=locate_name("x-exception-fqcn"),
    cause=read_at(header_values.find_java_root, "x-exception-stacktrace"),
    cause_message=read_at(header_values.find_java_message, "x-exception-stacktrace"),
    message=locate_text("x-exception-message"),
)  # fmt: skip

SPRING = (RECOVERER, RETRY_TOPICS, CLOUD_STREAM)


# SmallRye Reactive Messaging, also known from Quarkus. It writes in front: of duplicates the first is the newest.
#
# The newest exception is the one that counts, so its first value is taken; of the topics, partitions and offsets that delayed
# retries pile up the last is the record that failed first. A letter that ran out of delayed retries has none of the
# `dead-letter-*` headers.

_BROKEN = "deserialization-failure-reason"


def _dead(what: str) -> str:
    return f"dead-letter-{what}"


def _late(what: str) -> str:
    return f"delayed-retry-{what}"


DEAD_LETTER = Dialect(
    family="smallrye",
    marks=any_of(*(_dead(what) for what in ("reason", "topic", "partition", "offset", "exception-class-name"))),
    prepends=True,
    origin_topic=locate_name(_dead("topic"), first=True),
    origin_partition=count(_dead("partition"), first=True),
    origin_offset=locate_number(_dead("offset"), first=True),
    attempts=count(_late("count"), plus=1, first=True),
    exception=locate_name(_dead("exception-class-name"), first=True),
    cause=locate_name(_dead("cause-class-name"), first=True),
    cause_message=locate_text(_dead("cause"), first=True),
    message=locate_text(_dead("reason"), _BROKEN, first=True),
)

DELAYED_RETRY = Dialect(
    family="smallrye",
    marks=any_of(*(_late(what) for what in ("count", "reason", "topic", "exception-class-name"))),
    prepends=True,
    origin_topic=locate_name(_late("topic")),
    origin_partition=count(_late("partition")),
    origin_offset=locate_number(_late("offset")),
    origin_timestamp_ms=locate_number(_late("original-timestamp")),
    attempts=count(_late("count"), plus=1, first=True),
    exception=locate_name(_late("exception-class-name"), first=True),
    cause=locate_name(_late("cause-class-name"), first=True),
    cause_message=locate_text(_late("cause"), first=True),
    message=locate_text(_late("reason"), _BROKEN, first=True),
)

SMALLRYE = (DEAD_LETTER, DELAYED_RETRY)


# The .NET service buses: MassTransit, NServiceBus, Wolverine. All values are UTF-8 text.

_INFO = "NServiceBus.ExceptionInfo."

# It names the base exception, which is the root cause. Its address is no topic.
MASSTRANSIT = Dialect(
    family="masstransit",
    marks=any_of("MT-Reason", "MT-Fault-ExceptionType", "MT-Fault-Message", "MT-Fault-StackTrace"),
    attempts=count("MT-Fault-RetryCount", "MT-Fault-RedeliveryCount", "MT-Redelivery-Count", plus=1),
    exception=locate_name("MT-Fault-ExceptionType"),
    cause=locate_name("MT-Fault-ExceptionType"),
    message=locate_text("MT-Fault-Message"),
)

NSERVICEBUS = Dialect(
    family="nservicebus",
    marks=any_of("NServiceBus.FailedQ", _INFO + "ExceptionType", _INFO + "Message"),
    origin_topic=locate_name("NServiceBus.FailedQ"),
    attempts=count("NServiceBus.Retries", plus=1),
    exception=locate_name(_INFO + "ExceptionType"),
    cause=read_at(header_values.find_dotnet_root, _INFO + "StackTrace"),
    cause_message=read_at(header_values.find_dotnet_message, _INFO + "StackTrace"),
    message=locate_text(_INFO + "Message"),
)

WOLVERINE = Dialect(
    family="wolverine",
    marks=any_of("exception-type"),
    exception=locate_name("exception-type"),
    cause=read_at(header_values.find_dotnet_root, "exception-stack"),
    cause_message=read_at(header_values.find_dotnet_message, "exception-stack"),
    message=locate_text("exception-message"),
)

DOTNET = (NSERVICEBUS, MASSTRANSIT, WOLVERINE)
