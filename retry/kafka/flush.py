"""Waits until a producer has nothing queued any more, in steps that end where the producer has failed for good.

Whoever flushes for 0.2 s or longer is not told of a fatal error at once: the client sets the exception, goes on waiting, and
hands lines of its log to Python with that exception still set (confluent-kafka 2.16, `Producer_flush`, `Producer_poll`). What
Python does then is undefined: mostly it raises a SystemError in place of the error, and it may end the process. A shorter
wait is a single call of the library, which returns behind a fatal error.
"""

from __future__ import annotations

from confluent_kafka import Producer

from retry.clock import Deadline

_STEP_S = 0.15


def flush(producer: Producer, within_s: float) -> int:
    """How many records are still queued when all has arrived or was refused, or the time is over.

    Raises:
      KafkaException: the producer has failed for good; it was fenced, say.
    """
    deadline = Deadline(within_s)
    while (queued := producer.flush(min(_STEP_S, deadline.remaining_s()))) and not deadline.passed():
        pass
    return queued
