"""Of several processes one at a time holds a topic's first partition: what shall be done by one of them, is done by that.

Nothing is read. Where the holder is silent for longer than its session, the brokers give the partition to another; for a moment
two may think that they hold it. What the holder does has to bear that.
"""

from __future__ import annotations

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from retry import clock
from retry.kafka import client_config
from retry.kafka.closing import close_consumer
from retry.kafka.reading_loop import ErrorLog, ReadingLoop
from retry.settings import Settings

_POLL_S = 0.05
_PARTITION = 0


class ElectedMember:
    """A member of a group that shares one topic; joins when it is asked first. For one thread."""

    def __init__(self, settings: Settings, group: str, topic: str) -> None:
        config = client_config.consumer_config(settings, group, "")
        # Whoever has no name of its own leaves the group when it ends, and need not be waited for.
        self._config = {name: value for name, value in config.items() if name != "group.instance.id"}
        self._topic, self._group = topic, group
        self._consumer: Consumer | None = None
        self._loop: ReadingLoop | None = None
        self.since_ms: int | None = None

    def is_holder(self) -> bool:
        """Whether this member holds the partition; ask every few seconds, which keeps it a member."""
        if self._loop is None:
            self._consumer = client_config.consumer(self._config)
            callbacks = {"on_assign": self._on_assign, "on_revoke": self._on_revoke, "on_lost": self._on_revoke}
            self._consumer.subscribe([self._topic], **callbacks)  # type: ignore[arg-type]
            self._loop = ReadingLoop(self._consumer, ErrorLog(self._group))
        self._loop.read(1, _POLL_S)
        return self.since_ms is not None

    def close(self) -> None:
        if self._consumer is not None:
            close_consumer(self._consumer)
        self._consumer, self._loop, self.since_ms = None, None, None

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign([TopicPartition(each.topic, each.partition, OFFSET_END) for each in partitions])
        consumer.pause(partitions)
        if any(each.partition == _PARTITION for each in partitions):
            self.since_ms = clock.wall_ms()

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if any(each.partition == _PARTITION for each in partitions):
            self.since_ms = None
        consumer.incremental_unassign(partitions)
