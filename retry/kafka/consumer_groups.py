"""What a consumer group is at, asked from outside."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from retry.clock import Deadline
from retry.kafka.interface import Partition

_ASK_S = 20.0
# A question about a group that expires before its search for the coordinator does can end the process (librdkafka issue 4605,
# see `retry.kafka.unassigned_partitions`). So it is left to run; we wait less.
_EXPIRES_S = 180.0


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
        return _offsets(admin.list_consumer_group_offsets([asked], request_timeout=_ASK_S)[group].result(_ASK_S))
    except KafkaException as error:
        if error.args[0].code() == error.args[0].GROUP_ID_NOT_FOUND:
            return {}
        raise


class Committed:
    """Asks many groups again and again. A question that is not answered in time is left to run, and none is asked beside it."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._asked: dict[str, Future[ConsumerGroupTopicPartitions]] = {}

    def __call__(self, groups: Iterable[str], wait_s: float) -> tuple[dict[str, dict[Partition, int]], dict[str, str]]:
        """What groups have committed, nothing where there is no such group, and why some could not be asked."""
        groups, deadline = list(groups), Deadline(wait_s)
        self._asked = {group: self._asked.get(group) or self._ask(group) for group in groups}
        found: dict[str, dict[Partition, int]] = {}
        failed: dict[str, str] = {}
        for group in groups:
            try:
                found[group] = _offsets(self._asked[group].result(deadline.remaining_s()))
            except TimeoutError:
                failed[group] = "no answer in time"
                continue
            except KafkaException as error:
                if error.args[0].code() == error.args[0].GROUP_ID_NOT_FOUND:
                    found[group] = {}
                else:
                    failed[group] = error.args[0].str()
            del self._asked[group]
        return found, failed

    def _ask(self, group: str) -> Future[ConsumerGroupTopicPartitions]:
        asked = ConsumerGroupTopicPartitions(group)
        answer: Future[ConsumerGroupTopicPartitions]
        answer = self._admin.list_consumer_group_offsets([asked], request_timeout=_EXPIRES_S)[group]
        return answer


def _offsets(told: ConsumerGroupTopicPartitions) -> dict[Partition, int]:
    return {(place.topic, place.partition): place.offset for place in told.topic_partitions or () if place.offset >= 0}


def members(admin: AdminClient, group: str) -> int:
    """How many members a group has; 0 where there is no such group."""
    about = admin.describe_consumer_groups([group], request_timeout=_ASK_S)[group].result(_ASK_S)
    return len(about.members)
