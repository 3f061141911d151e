"""What a consumer group is at, asked from outside."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

_ASK_S = 20.0


def position(admin: AdminClient, group: str, topic: str, partition: int) -> int | None:
    """Where a group goes on reading a partition; None where it has committed nothing."""
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])
    return _committed(admin, asked).get((topic, partition))


def positions(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    """By topic and partition, where a group goes on reading; empty where there is no such group."""
    return _committed(admin, ConsumerGroupTopicPartitions(group))


def _committed(admin: AdminClient, asked: ConsumerGroupTopicPartitions) -> dict[tuple[str, int], int]:
    group = asked.group_id
    try:
        found = admin.list_consumer_group_offsets([asked], request_timeout=_ASK_S)[group].result(_ASK_S).topic_partitions
    except KafkaException as error:
        if error.args[0].code() == error.args[0].GROUP_ID_NOT_FOUND:
            return {}
        raise
    return {(place.topic, place.partition): place.offset for place in found if place.offset >= 0}


def members(admin: AdminClient, group: str) -> int:
    """How many members a group has; 0 where there is no such group."""
    about = admin.describe_consumer_groups([group], request_timeout=_ASK_S)[group].result(_ASK_S)
    return len(about.members)
