"""What time it is for the brokers, and whether the wall clock can be believed: nothing is delivered by one that is wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from retry import clock
from retry.kafka import client_config
from retry.kafka.client_config import Config
from retry.kafka.closing import flush

_FLUSH_S = 4.0
# The null of a control that nobody puts: every fold passes it over.
_KEY = b"\x10clock"


class BrokerClock:
    """Writes a null to a topic that has the broker's time on every record: a broker tells its time only where it appends."""

    def __init__(self, config: Config, topic: str) -> None:
        self._config, self._topic = config, topic
        self._producer: Producer | None = None

    def now_ms(self) -> int:
        """Return the time that a broker gives a record now; raises KafkaException or TimeoutError where none takes it in 4 s."""
        self._producer = self._producer or client_config.make_producer(self._config)
        timestamp_ms: Future[int] = Future()

        def note_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                timestamp_ms.set_result(message.timestamp()[1])
            else:
                timestamp_ms.set_exception(KafkaException(error))

        self._producer.produce(self._topic, None, _KEY, 0, note_delivery)
        flush(self._producer, _FLUSH_S)
        return timestamp_ms.result(0)


# Steps of the wall clock show beside the monotonic clock. After one, and at the start, the brokers' clock decides, which stamps
# every record of the changelog: while the two are further apart than the tolerance, all that is due waits.

log = logging.getLogger(__name__)

TOLERANCE_MS = 30_000
_AGAIN_S = 2.0
# An answer that took longer says too little of the present.
_ANSWER_S = 5.0


class TrustedClock:
    """The wall clock as every sweep asks for it, while it can be believed; `check_skew` belongs to one thread."""

    def __init__(self, brokers_ms: Callable[[], int]) -> None:
        self._brokers_ms = brokers_ms
        # Wall clock minus monotonic clock when the wall clock was right.
        self._apart_ms: float | None = None
        # The brokers' clock minus the monotonic clock, when they were last compared.
        self._told_ms: float | None = None
        self._asking = clock.Interval(_AGAIN_S, at_once=True)
        self.trouble: str | None = "the clock was not compared with the brokers' yet"

    def now_ms(self) -> int | None:
        """Read the wall clock, in milliseconds; return None where the clock cannot be believed."""
        now_ms = clock.wall_ms()
        if self._apart_ms is not None and abs(now_ms - clock.monotonic_s() * 1_000 - self._apart_ms) > TOLERANCE_MS:
            self._apart_ms, self._told_ms, self.trouble = None, None, "the clock was stepped"
            log.warning("nothing is delivered: %s", self.trouble)
        return None if self._apart_ms is None else now_ms

    def known_ms(self) -> int | None:
        """Return the wall clock's time, or the brokers' time where that clock cannot be believed; None where neither is known."""
        now_ms = self.now_ms()
        if now_ms is None and self._told_ms is not None:
            return int(clock.monotonic_s() * 1_000 + self._told_ms)
        return now_ms

    def check_skew(self) -> None:
        """Compare with the brokers every two seconds, while the clock is not believed."""
        if self.now_ms() is not None or not self._asking.is_due():
            return
        began_s = clock.monotonic_s()
        try:
            brokers_ms = self._brokers_ms()
        except (KafkaException, TimeoutError) as error:
            self.trouble = f"the clock cannot be compared with the brokers': {error}"
            return
        if clock.monotonic_s() - began_s > _ANSWER_S:
            return
        ahead_ms = clock.wall_ms() - brokers_ms
        self._told_ms = brokers_ms - clock.monotonic_s() * 1_000
        if abs(ahead_ms) <= TOLERANCE_MS:
            log.info("the clock is %d ms ahead of the brokers'", ahead_ms)
            self._apart_ms, self.trouble = clock.wall_ms() - clock.monotonic_s() * 1_000, None
            return
        said = f"the clock is {abs(ahead_ms) // 1_000} s {'ahead of' if ahead_ms > 0 else 'behind'} the brokers'"
        if said != self.trouble:
            log.error("nothing is delivered: %s", said)
        self.trouble = said
