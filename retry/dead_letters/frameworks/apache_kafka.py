"""What Apache Kafka itself writes: Connect, Streams (KIP-1034), share groups (KIP-1191). All values are UTF-8 text."""

from __future__ import annotations

from retry.dead_letters.frameworks import header_values
from retry.dead_letters.frameworks.dialect import Dialect, any_of, count, locate_name, locate_number, locate_text, read_at


def _group_of_connector(raw: bytes) -> str | None:
    connector = header_values.decode_name(raw)
    return f"connect-{connector}" if connector else None


# Debezium and managed sinks write the same. It keeps the origin's timestamp, and tells no attempts. The group is the
# default for a connector of that name, which few override.
CONNECT = Dialect(
    family="kafka-connect",
    marks=any_of(
        *(
            f"__connect.errors.{what}"
            for what in ("topic", "partition", "offset", "stage", "exception.class.name", "exception.stacktrace")
        )
    ),
    origin_topic=locate_name("__connect.errors.topic"),
    origin_partition=count("__connect.errors.partition"),
    origin_offset=locate_number("__connect.errors.offset"),
    consumer_group=read_at(_group_of_connector, "__connect.errors.connector.name"),
    exception=locate_name("__connect.errors.exception.class.name"),
    cause=read_at(header_values.java_root, "__connect.errors.exception.stacktrace"),
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
    cause=read_at(header_values.java_root, "__streams.errors.stacktrace"),
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

DIALECTS = (SHARE_GROUP, STREAMS, CONNECT)
