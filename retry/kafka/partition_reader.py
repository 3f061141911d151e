"""Follows partitions from given offsets on, outside every group.

A group's own consumer cannot be told reliably where to begin: it asks for the committed offset of a partition that it
is given, and an answer that comes late overrides a seek. Here nobody else says where reading begins.
"""

from __future__ import annotations

import logging

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from retry.kafka.client_config import Config

log = logging.getLogger(__name__)

# What is said again and again while a topic is not there yet.
_QUIET = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


class Complaints:
    """Tells each kind of consumer error once."""

    def __init__(self) -> None:
        self._told: set[int] = set()

    def tell(self, error: KafkaError) -> None:
        """Log it, unless one of its kind was."""
        if error.code() not in self._told:
            self._told.add(error.code())
            log.log(logging.WARNING if error.code() in _QUIET else logging.ERROR, "consumer: %s", error.str())


class Follower:
    """Committed records, and ends of partitions, of what it was told to follow; for one thread."""

    def __init__(self, config: Config) -> None:
        self._consumer = Consumer(config)
        self._followed: set[tuple[str, int]] = set()
        self._complaints = Complaints()

    def begin(self, topic: str, partition: int, offset: int) -> None:
        """Follow a partition from `offset` on."""
        self._consumer.incremental_assign([TopicPartition(topic, partition, offset)])
        self._followed.add((topic, partition))

    def end(self, topic: str, partition: int) -> None:
        """Follow it no more; nothing of it is read from now on."""
        if (topic, partition) in self._followed:
            self._followed.remove((topic, partition))
            self._consumer.incremental_unassign([TopicPartition(topic, partition)])

    def read(self, records_max: int, wait_s: float) -> list[Message]:
        """The next records and ends of partitions."""
        found = []
        for message in self._consumer.consume(records_max, wait_s):
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                found.append(message)
            else:
                self._complaints.tell(error)
        return found

    def close(self) -> None:
        """Let go of the client."""
        self._consumer.close()
