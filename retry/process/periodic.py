"""What is looked at now and then by a thread of its own, so that nothing else waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from retry import clock
from retry.kafka.interface import KafkaException

log = logging.getLogger(__name__)

_FIRST_S = 5.0


class PeriodicTask(NamedTuple):
    every_s: float
    look: Callable[[], None]


class PeriodicTasks:
    """Has each look in its turn. One that fails is logged, and had again when its time comes; `ended` is called in the end."""

    def __init__(self, rounds: Sequence[PeriodicTask], ended: Callable[[], None] = lambda: None) -> None:
        self._ended = ended
        # Not at once: a worker that has just begun owns nothing yet.
        now_s = clock.monotonic_s()
        self._next_s = [(now_s + min(each.every_s, _FIRST_S), each) for each in rounds]
        self._closing = threading.Event()

    def run(self) -> None:
        while self._next_s and not self._closing.is_set():
            at_s, due = min(self._next_s, key=lambda each: each[0])
            if self._closing.wait(max(0.0, at_s - clock.monotonic_s())):
                return
            self._next_s.remove((at_s, due))
            self._next_s.append((clock.monotonic_s() + due.every_s, due))
            try:
                due.look()
            except (KafkaException, TimeoutError) as error:
                log.warning("brokers were asked in vain; again in %s s: %s", due.every_s, error)
            except Exception:
                # Whatever it is, letters go on.
                log.exception("a look failed; again in %s s", due.every_s)

    def close(self) -> None:
        self._closing.set()
        self._ended()
