"""The one loop that reads from a consumer: whichever errors its caller does not decide about pass, and are logged once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from retry.clock import Deadline
from retry.kafka import authorization, client_config
from retry.kafka.client_config import Config
from retry.kafka.closing import close_consumer

log = logging.getLogger(__name__)

# Who reads on and on looks this often while nothing comes.
IDLE_S = 0.2
# Reported again and again of a topic that is not there yet, or cannot be.
MISSING_TOPIC = (
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.TOPIC_EXCEPTION,
)  # fmt: skip
# A policy file may name thousands of topics that nobody has made.
_MISSING_NAMED_MAX = 20


class ErrorLog:
    """Logs each kind of consumer error once, of each topic that this user may not read, and of twenty that are not there.

    `group` is empty for a consumer that is in none, though the client wants a name of one.
    """

    def __init__(self, group: str = "") -> None:
        self._group, self._logged, self._missing = group, set[str](), 0

    def log_error(self, error: KafkaError, topic: str | None = None) -> None:
        if not self._group and authorization.is_group_refusal(error):
            return
        text = authorization.describe_refusal(error, authorization.READ, topic=topic or "", group=self._group)
        if text not in self._logged:
            self._logged.add(text)
            if error.code() not in MISSING_TOPIC:
                log.error("consumer: %s", text)
                return
            self._missing += 1
            log.log(logging.WARNING if self._missing <= _MISSING_NAMED_MAX else logging.DEBUG, "consumer: %s", text)
            if self._missing == _MISSING_NAMED_MAX + 1:
                log.warning("consumer: more topics are not there than are named here; the others are logged at DEBUG")


def is_end(error: KafkaError) -> bool:
    """Whether it only says that reading has come to the end of a partition."""
    return error.code() == KafkaError._PARTITION_EOF


class ReadingLoop:
    """A loop that reads one consumer, and logs those errors that its caller does not decide about: the client asks again.

    With `idle_s` it waits for the first record where none came the last time, for who reads on and on.
    """

    def __init__(
        self, consumer: Consumer, errors: ErrorLog, decides: Callable[[KafkaError], bool] = is_end, idle_s: float = 0.0
    ) -> None:
        self._consumer, self._errors, self._decides, self._idle_s = consumer, errors, decides, idle_s
        self._is_idle = False

    def read(self, records_max: int, wait_s: float) -> list[Message]:
        """Return the next records, and the errors that the caller decides about, in their order."""
        messages = self._gather_messages(records_max, wait_s)
        passing = [m for m in messages if (error := m.error()) is not None and not self._decides(error)]
        if passing:
            for message in passing:
                self._errors.log_error(message.error(), message.topic())  # type: ignore[arg-type]
            messages = [m for m in messages if (error := m.error()) is None or self._decides(error)]
        return messages

    def _gather_messages(self, records_max: int, wait_s: float) -> list[Message]:
        """Gather messages for `wait_s`, counted from the first of them where none came the last time."""
        if not (self._is_idle and wait_s):
            messages = self._consumer.consume(records_max, wait_s)
        elif messages := self._consumer.consume(1, max(wait_s, self._idle_s)):
            messages += self._consumer.consume(records_max - 1, wait_s) if records_max > 1 else []
        self._is_idle = bool(self._idle_s and wait_s) and not messages
        return messages

    def until(self, wanted: Callable[[], int], wait_s: float, deadline: Deadline | None = None) -> Iterator[list[Message]]:
        """Yield what is read until `wanted` says 0 records, or to a deadline; an empty list where nothing comes for `wait_s`."""
        while (records_max := wanted()) and not (deadline and deadline.has_passed()):
            yield self.read(records_max, min(wait_s, deadline.remaining_s()) if deadline else wait_s)


# Follows partitions from given offsets on, outside every group.
#
# A group's own consumer cannot be told reliably where to begin: it asks for the committed offset of a partition that it is
# given, and an answer that comes late overrides a seek. Here nobody else says where reading begins.

class KafkaPartitionReader:
    """Committed records, and ends of partitions, of what it was told to follow; for one thread."""

    def __init__(self, config: Config) -> None:
        self._consumer = client_config.make_consumer(config)
        self._followed: set[tuple[str, int]] = set()
        self._loop = ReadingLoop(self._consumer, ErrorLog(), idle_s=IDLE_S)

    def follow_partition(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.incremental_assign([TopicPartition(topic, partition, offset)])
        self._followed.add((topic, partition))

    def unfollow_partition(self, topic: str, partition: int) -> None:
        if (topic, partition) in self._followed:
            self._followed.remove((topic, partition))
            self._consumer.incremental_unassign([TopicPartition(topic, partition)])

    def read(self, records_max: int, wait_s: float) -> list[Message]:
        return self._loop.read(records_max, wait_s)

    def close(self) -> None:
        close_consumer(self._consumer)
