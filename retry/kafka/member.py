"""One member of a consumer group that shares partitions cooperatively: what it owns, and what it reads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from retry.kafka.clients import Config

log = logging.getLogger(__name__)

Owned = tuple[str, int]
Told = Callable[[list[Owned]], None]

_COMMITTED_S = 15.0
# What a subscription to a topic that is not there yet says, again and again.
_QUIET = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


class Member:
    """A consumer and the partitions that it owns. All methods but `metadata` belong to one thread.

    Args:
      gained: told of partitions that are ours from now on.
      leaving: told of partitions before they are given up; it may finish what is under way.
    """

    def __init__(self, config: Config, subscription: Sequence[str], gained: Told, leaving: Told) -> None:
        self.owned: set[Owned] = set()
        self._gained, self._leaving = gained, leaving
        self._consumer = Consumer(config)
        self._complained: set[int] = set()
        self._gave_up = False
        self._consumer.subscribe(
            list(subscription), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )

    def read(self, records_max: int, wait_s: float) -> list[Message]:
        """The next records and, where configured, ends of partitions; only of partitions that are owned.

        Raises:
          KafkaException: the consumer cannot go on, for example since another process uses its instance id.
        """
        self._gave_up = False
        messages = self._consumer.consume(records_max, wait_s)
        usable = [m for m in messages if m.error() is None or self._ends(m)]
        # Partitions may have been given up while the batch was being gathered.
        return [m for m in usable if (m.topic(), m.partition()) in self.owned] if self._gave_up else usable

    def _ends(self, message: Message) -> bool:
        """Whether this is the end of a partition; any other error is told, or raised where nothing helps."""
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.fatal():
            raise KafkaException(error)
        if error.code() not in self._complained:
            self._complained.add(error.code())
            log.log(logging.WARNING if error.code() in _QUIET else logging.ERROR, "consumer: %s", error.str())
        return False

    def positions(self) -> list[TopicPartition]:
        """Where reading goes on, of all owned partitions from which something was read."""
        owned = [TopicPartition(*partition) for partition in self.owned]
        return [p for p in self._consumer.position(owned) if p.offset >= 0]

    def metadata(self) -> object:
        """The proof of membership that goes into a transaction; safe in any thread."""
        return self._consumer.consumer_group_metadata()

    def rewind(self) -> None:
        """Read on from the committed offsets; waits for transactions that are about to commit some."""
        owned = [TopicPartition(*partition) for partition in self.owned]
        for partition in self._consumer.committed(owned, _COMMITTED_S) if owned else ():
            if partition.offset < 0:
                partition.offset = OFFSET_BEGINNING
            self._consumer.seek(partition)

    def hold(self, owned: list[Owned]) -> None:
        """Read nothing of these partitions until `resume`."""
        self._consumer.pause([TopicPartition(*partition) for partition in owned])

    def resume(self, topic: str, partition: int, offset: int) -> None:
        """Read this partition from `offset` on."""
        self._consumer.seek(TopicPartition(topic, partition, offset))
        self._consumer.resume([TopicPartition(topic, partition)])

    def close(self) -> None:
        """Leave; `leaving` is told of everything that is still owned."""
        self._consumer.close()
        if self.owned:
            self._give_up(list(self.owned))

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gained = [(p.topic, p.partition) for p in partitions]
        consumer.incremental_assign(partitions)
        self.owned |= set(gained)
        self._gained(gained)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._give_up([(p.topic, p.partition) for p in partitions])
        consumer.incremental_unassign(partitions)

    def _give_up(self, given_up: list[Owned]) -> None:
        self._leaving(given_up)
        self.owned -= set(given_up)
        self._gave_up = True
