"""Ends clients of librdkafka, which do not always come to an end: consumers are closed, producers flushed or let go of."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Thread

from confluent_kafka import Consumer, KafkaException, Producer

from retry.clock import Deadline, monotonic_s

# Closes consumers, of which a client of librdkafka does not always come to an end.
#
# Where a coordinator or a broker went away shortly before, and came back, the client may wait for an answer that nobody owes it
# any more (confluent-kafka 2.16, its issues 1573 and 1667; librdkafka's 3740): the process that was told to end never would.

log = logging.getLogger(__name__)

# With brokers it takes a second, or six where they do not answer.
_CLOSE_S, _LOOK_S = 20.0, 0.5


def close_consumer(consumer: Consumer, is_telling: Callable[[], bool] = lambda: False) -> bool:
    """Close it in another thread, or leave it behind after twenty seconds; whether it was closed.

    While a callback `is_telling`, that may take as long as it needs.
    """
    failures: list[Exception] = []

    def close() -> None:
        try:
            consumer.close()
        except Exception as error:
            failures.append(error)

    # Whoever leaves it behind may end: a daemon thread keeps no process.
    thread, since_s = Thread(target=close, name="close", daemon=True), monotonic_s()
    thread.start()
    thread.join(_LOOK_S)
    while thread.is_alive():
        if is_telling():
            since_s = monotonic_s()
        elif monotonic_s() - since_s > _CLOSE_S:
            log.warning("a consumer has not closed within %.0f s, and is left behind", _CLOSE_S)
            return False
        thread.join(_LOOK_S)
    if failures:
        raise failures[0]
    return True


# Waits until a producer has nothing queued any more, in steps that end where it has failed for good; and lets go of it.
#
# Whoever flushes for 0.2 s or longer is not told of a fatal error at once: the client sets the exception, goes on waiting, and
# hands lines of its log to Python with that exception still set (confluent-kafka 2.16, `Producer_flush`, `Producer_poll`). What
# Python does then is undefined: mostly it raises a SystemError in place of the error, and it may end the process. A shorter
# wait is a single call of the library, which returns behind a fatal error.

_STEP_S, _EMPTY_S = 0.15, 1.0


def flush(producer: Producer, within_s: float) -> int:
    """Wait until all has arrived or was refused, or time is over; return how many are queued. Raises KafkaException if fenced."""
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
