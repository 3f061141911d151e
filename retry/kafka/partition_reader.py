"""Follows partitions from given offsets on, outside every group.

A group's own consumer cannot be told reliably where to begin: it asks for the committed offset of a partition that it
is given, and an answer that comes late overrides a seek. Here nobody else says where reading begins.
"""

from __future__ import annotations

from confluent_kafka import Message, TopicPartition

from retry.kafka import client_config
from retry.kafka.client_config import Config
from retry.kafka.consumer_close import close_consumer
from retry.kafka.reading_loop import IDLE_S, ErrorLog, ReadingLoop


class KafkaPartitionReader:
    """Committed records, and ends of partitions, of what it was told to follow; for one thread."""

    def __init__(self, config: Config) -> None:
        self._consumer = client_config.consumer(config)
        self._followed: set[tuple[str, int]] = set()
        self._loop = ReadingLoop(self._consumer, ErrorLog(), idle_s=IDLE_S)

    def follow_partition(self, topic: str, partition: int, offset: int) -> None:
        """Follow a partition from `offset` on."""
        self._consumer.incremental_assign([TopicPartition(topic, partition, offset)])
        self._followed.add((topic, partition))

    def unfollow_partition(self, topic: str, partition: int) -> None:
        """Follow it no more; nothing of it is read from now on."""
        if (topic, partition) in self._followed:
            self._followed.remove((topic, partition))
            self._consumer.incremental_unassign([TopicPartition(topic, partition)])

    def read(self, records_max: int, wait_s: float) -> list[Message]:
        """The next records and ends of partitions."""
        return self._loop.read(records_max, wait_s)

    def close(self) -> None:
        """Let go of the client."""
        close_consumer(self._consumer)
