"""What a consumer group is at, asked from outside."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

_ASK_S = 20.0


def position(admin: AdminClient, group: str, topic: str, partition: int) -> int | None:
    """Where a group goes on reading a partition; None where it has committed nothing."""
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])
    try:
        answer = admin.list_consumer_group_offsets([asked], request_timeout=_ASK_S)[group].result(_ASK_S)
    except KafkaException as error:
        if error.args[0].code() == error.args[0].GROUP_ID_NOT_FOUND:
            return None
        raise
    return next((found.offset for found in answer.topic_partitions if found.offset >= 0), None)


def positions(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    """By topic and partition, where a group goes on reading; empty where there is no such group."""
    try:
        answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=_ASK_S)
        found = answer[group].result(_ASK_S).topic_partitions
    except KafkaException as error:
        if error.args[0].code() == error.args[0].GROUP_ID_NOT_FOUND:
            return {}
        raise
    return {(place.topic, place.partition): place.offset for place in found if place.offset >= 0}


def members(admin: AdminClient, group: str) -> int:
    """How many members a group has; 0 where there is no such group."""
    about = admin.describe_consumer_groups([group], request_timeout=_ASK_S)[group].result(_ASK_S)
    return len(about.members)
