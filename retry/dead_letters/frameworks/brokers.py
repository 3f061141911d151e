"""What brokers write themselves: Apache Kafka, and others whose dead letters a bridge carries into it."""

from __future__ import annotations

import msgspec

from retry.dead_letters.frameworks import header_values
from retry.dead_letters.frameworks.header_values import Dialect, any_of, count, locate_name, locate_number, locate_text, read_at

# What Apache Kafka itself writes: Connect, Streams (KIP-1034), share groups (KIP-1191). All values are UTF-8 text.

def _group_of_connector(raw: bytes) -> str | None:
    connector = header_values.decode_name(raw)
    return f"connect-{connector}" if connector else None


_CONNECT_MARKS = ("topic", "partition", "offset", "stage", "exception.class.name", "exception.stacktrace")
# Debezium and managed sinks write the same. It keeps the origin's timestamp, and tells no attempts. The group is the
# default for a connector of that name, which few override.
CONNECT = Dialect(
    family="kafka-connect",
    marks=any_of(*(f"__connect.errors.{what}" for what in _CONNECT_MARKS)),
    origin_topic=locate_name("__connect.errors.topic"),
    origin_partition=count("__connect.errors.partition"),
    origin_offset=locate_number("__connect.errors.offset"),
    consumer_group=read_at(_group_of_connector, "__connect.errors.connector.name"),
    exception=locate_name("__connect.errors.exception.class.name"),
    cause=read_at(header_values.find_java_root, "__connect.errors.exception.stacktrace"),
    cause_message=read_at(header_values.find_java_message, "__connect.errors.exception.stacktrace"),
    message=locate_text("__connect.errors.exception.message"),
    stage=locate_name("__connect.errors.stage"),
)

# A punctuator's letter has no topic, and -1 for partition and offset.
STREAMS = Dialect(
    family="kafka-streams",
    marks=any_of(
        *(f"__streams.errors.{what}" for what in ("exception", "stacktrace", "message", "topic", "partition", "offset"))
    ),
    origin_topic=locate_name("__streams.errors.topic"),
    origin_partition=count("__streams.errors.partition"),
    origin_offset=locate_number("__streams.errors.offset"),
    exception=locate_name("__streams.errors.exception"),
    cause=read_at(header_values.find_java_root, "__streams.errors.stacktrace"),
    cause_message=read_at(header_values.find_java_message, "__streams.errors.stacktrace"),
    message=locate_text("__streams.errors.message"),
    stage=locate_name("__streams.errors.processor.node.id"),
)


def _share(what: str) -> tuple[str, ...]:
    # The second spelling and the third are those of KIP-1317.
    return f"__dlq.errors.{what}", f"_dlq.errors.{what}", f"_dlq.errors.original.{what}"


SHARE_GROUP = Dialect(
    family="share-group",
    marks=any_of(*_share("topic"), *_share("offset"), *_share("group"), *_share("message")),
    origin_topic=locate_name(*_share("topic")),
    origin_partition=count(*_share("partition")),
    origin_offset=locate_number(*_share("offset")),
    consumer_group=locate_name(*_share("group")),
    attempts=count(*_share("delivery.count")),
    message=locate_text(*_share("message")),
)

APACHE_KAFKA = (SHARE_GROUP, STREAMS, CONNECT)


# Other brokers, whose dead letters a bridge carries into Kafka; their properties become headers of UTF-8 text.

_DEATHS_BYTES_MAX = 65_536


class _Death(msgspec.Struct):
    queue: str = ""
    count: int = 0


_decode_deaths = msgspec.json.Decoder(list[_Death]).decode


def _deaths(raw: bytes) -> list[_Death]:
    """RabbitMQ's `x-death` as bridges write it: JSON, an array with one object a queue and reason, newest first."""
    if len(raw) > _DEATHS_BYTES_MAX:
        return []
    try:
        return _decode_deaths(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return []  # Not the array: one header that says nothing, as with any other value.


def _first_queue(raw: bytes) -> str | None:
    deaths = _deaths(raw)
    return header_values.decode_name(deaths[-1].queue.encode("utf-8", "replace")) if deaths else None


def _deaths_counted(raw: bytes) -> int | None:
    return max((death.count for death in _deaths(raw) if 0 <= death.count <= header_values.INT32_MAX), default=None)


ROCKETMQ = Dialect(
    family="rocketmq",
    marks=any_of("DLQ_ORIGIN_TOPIC", "RETRY_TOPIC", "RECONSUME_TIME"),
    origin_topic=locate_name("DLQ_ORIGIN_TOPIC", "RETRY_TOPIC"),
    attempts=count("RECONSUME_TIME"),
)

PULSAR = Dialect(
    family="pulsar",
    marks=any_of("REAL_TOPIC", "RECONSUMETIMES", "REAL_SUBSCRIPTION"),
    origin_topic=locate_name("REAL_TOPIC"),
    consumer_group=locate_name("REAL_SUBSCRIPTION"),
    attempts=count("RECONSUMETIMES"),
)

RABBITMQ = Dialect(
    family="rabbitmq",
    marks=any_of("x-death", "x-first-death-queue", "x-first-death-reason", "x-delivery-count"),
    origin_topic=locate_name("x-first-death-queue") + read_at(_first_queue, "x-death"),
    attempts=count("x-delivery-count", plus=1) + read_at(_deaths_counted, "x-death"),
    message=locate_text("x-first-death-reason"),
)

# Applications give the exception's class as the reason; the broker gives one of its own.
AZURE = Dialect(
    family="azure-service-bus",
    marks=any_of("DeadLetterReason", "DeadLetterErrorDescription", "DeadLetterSource"),
    origin_topic=locate_name("DeadLetterSource"),
    exception=locate_name("DeadLetterReason"),
    message=locate_text("DeadLetterErrorDescription"),
)

PUBSUB = Dialect(
    family="google-pubsub",
    marks=any_of("CloudPubSubDeadLetterSourceSubscription", "CloudPubSubDeadLetterSourceDeliveryCount"),
    consumer_group=locate_name("CloudPubSubDeadLetterSourceSubscription"),
    attempts=count("CloudPubSubDeadLetterSourceDeliveryCount"),
)

SQS = Dialect(
    family="sqs",
    marks=any_of("DeadLetterQueueSourceArn", "ApproximateReceiveCount"),
    origin_topic=read_at(header_values.take_last_part, "DeadLetterQueueSourceArn"),
    attempts=count("ApproximateReceiveCount"),
)

BRIDGED = (ROCKETMQ, PULSAR, RABBITMQ, AZURE, PUBSUB, SQS)
