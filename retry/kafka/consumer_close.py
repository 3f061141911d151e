"""Closes consumers, of which a client of librdkafka does not always come to an end.

Where a coordinator or a broker went away shortly before, and came back, the client may wait for an answer that nobody owes it any
more (confluent-kafka 2.16, its issues 1573 and 1667; librdkafka's 3740): the process that was told to end never would.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Thread

from confluent_kafka import Consumer

from retry.clock import monotonic_s

log = logging.getLogger(__name__)

# With brokers it takes a second, or six where they do not answer.
_CLOSE_S, _LOOK_S = 20.0, 0.5


def close_consumer(consumer: Consumer, is_telling: Callable[[], bool] = lambda: False) -> bool:
    """Close it, or leave it behind after twenty seconds; whether it was closed. Its callbacks are called in another thread.

    Args:
      is_telling: whether one of its callbacks is at work, which may take as long as it needs.
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
