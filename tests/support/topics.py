"""What operators do to topics while the service runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from retry.kafka.asked_again import until_answered
from tests.support.process import await_that

_ASK_S = 20.0


def delete(admin: AdminClient, topic: str) -> None:
    """Delete a topic."""
    admin.delete_topics([topic])[topic].result(_ASK_S)


def create(admin: AdminClient, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
    """Create a topic, as soon as the name is free."""
    await_that(f"{topic} is there", lambda: _created(admin, NewTopic(topic, partitions, 1, config=dict(config or {}))))


def create_all(admin: AdminClient, new: Iterable[NewTopic]) -> None:
    """Create topics. A broker that was starved for seconds counts as away for a moment, and is asked again."""
    left = {each.topic: each for each in new}

    def made(within_s: float) -> None:
        for topic, done in admin.create_topics(list(left.values()), request_timeout=within_s).items():
            done.result(within_s)
            del left[topic]

    until_answered(made, 3 * _ASK_S, (KafkaError.INVALID_REPLICATION_FACTOR,))


def _created(admin: AdminClient, new: NewTopic) -> bool:
    try:
        admin.create_topics([new])[new.topic].result(_ASK_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


def grow(admin: AdminClient, topic: str, partitions: int) -> None:
    """Give a topic more partitions."""
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(_ASK_S)


def configure(admin: AdminClient, topic: str, **config: str) -> None:
    """Change settings of a topic; underscores stand for dots."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
    ]
    wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for done in admin.incremental_alter_configs([wanted]).values():
        done.result(_ASK_S)
