"""The one loop that reads from a consumer: whichever errors its caller does not decide about pass, and are logged once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, KafkaError, Message

from retry.clock import Deadline
from retry.kafka import authorization

log = logging.getLogger(__name__)

# Reported again and again of a topic that is not there yet, or cannot be.
MISSING_TOPIC = (
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.TOPIC_EXCEPTION,
)  # fmt: skip


class ErrorLog:
    """Logs each kind of consumer error once, of each topic that this user may not read.

    Args:
      group: of the consumer; "" where it is in none, though the client wants a name of one.
    """

    def __init__(self, group: str = "") -> None:
        self._group, self._logged = group, set[str]()

    def report(self, error: KafkaError, topic: str | None = None) -> None:
        """Log it, unless one of its kind was, or it is of no concern."""
        if not self._group and authorization.of_group(error):
            return
        text = authorization.advice(error, authorization.READ, topic=topic or "", group=self._group)
        if text not in self._logged:
            self._logged.add(text)
            log.log(logging.WARNING if error.code() in MISSING_TOPIC else logging.ERROR, "consumer: %s", text)


def is_end(error: KafkaError) -> bool:
    """Whether it only says that reading has come to the end of a partition."""
    return error.code() == KafkaError._PARTITION_EOF


class ReadingLoop:
    """Reads one consumer.

    Args:
      decides: whether the caller decides about an error. Every other passes by itself: the client asks the brokers again.
    """

    def __init__(self, consumer: Consumer, errors: ErrorLog, decides: Callable[[KafkaError], bool] = is_end) -> None:
        self._consumer, self._errors, self._decides = consumer, errors, decides

    def read(self, records_max: int, wait_s: float) -> list[Message]:
        """The next records, and errors that the caller decides about, in their order."""
        messages = self._consumer.consume(records_max, wait_s)
        passing = [m for m in messages if (error := m.error()) is not None and not self._decides(error)]
        if passing:
            for message in passing:
                self._errors.report(message.error(), message.topic())  # type: ignore[arg-type]
            messages = [m for m in messages if (error := m.error()) is None or self._decides(error)]
        return messages

    def until(self, wanted: Callable[[], int], wait_s: float, deadline: Deadline | None = None) -> Iterator[list[Message]]:
        """What is read until nothing more is wanted, or to a deadline; an empty list where nothing comes for `wait_s`.

        Args:
          wanted: how many records may come at once; 0 ends the loop.
        """
        while (records_max := wanted()) and not (deadline and deadline.passed()):
            yield self.read(records_max, min(wait_s, deadline.remaining_s()) if deadline else wait_s)
