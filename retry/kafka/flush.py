"""Waits until a producer has nothing queued any more, in steps that end where it has failed for good; and lets go of it.

Whoever flushes for 0.2 s or longer is not told of a fatal error at once: the client sets the exception, goes on waiting, and
hands lines of its log to Python with that exception still set (confluent-kafka 2.16, `Producer_flush`, `Producer_poll`). What
Python does then is undefined: mostly it raises a SystemError in place of the error, and it may end the process. A shorter
wait is a single call of the library, which returns behind a fatal error.
"""

from __future__ import annotations

import logging

from confluent_kafka import KafkaException, Producer

from retry.clock import Deadline

log = logging.getLogger(__name__)

_STEP_S, _EMPTY_S = 0.15, 1.0


def flush(producer: Producer, within_s: float) -> int:
    """How many records are still queued when all has arrived or was refused, or the time is over.

    Raises:
      KafkaException: the producer has failed for good; it was fenced, say.
    """
    deadline = Deadline(within_s)
    while (queued := producer.flush(min(_STEP_S, deadline.remaining_s()))) and not deadline.has_passed():
        pass
    return queued


def discard_queued(producer: Producer) -> None:
    """Throw away what a producer has queued, and hear what it still has to tell, so that it can be let go of.

    A client that goes while it has still to tell of records that failed damages the memory of the process, which glibc ends when
    the client's thread ends: "unaligned tcache chunk detected" (librdkafka 2.16, every twentieth producer that was fenced with
    records under way). A fenced one tells of its error once for each call, and of the rest at the next.
    """
    producer.purge()
    deadline = Deadline(_EMPTY_S)
    while len(producer) and not deadline.has_passed():
        try:
            producer.poll(_STEP_S)
        except KafkaException as error:
            log.debug("discarded: %s", error)
