"""Letters for an hour, none of which is remembered: `retry verify` has to find them on the topics."""

from __future__ import annotations

import random
from threading import Event, Thread

from confluent_kafka import KafkaError, Message, Producer

from retry.clock import Deadline, pause, wall_ms
from tests.support.deployment import Deployment
from tests.support.reading import QUIET

_KEYS = 50_000
_WISH_MS = 20_000
_TURN_S = 0.05
_FLUSH_S = 300.0


class Load:
    """Sends so many letters a second to all dead-letter topics in turn, until it is stopped.

    Attributes:
      acknowledged: letters that a broker has.
    """

    def __init__(self, deployment: Deployment, rate: float, seed: int) -> None:
        self.acknowledged, self.refused = 0, 0
        self._topics, self._rate, self._draw = list(deployment.dead_letters), rate, random.Random(seed)
        self._stop = Event()
        self._producer = Producer({
            "bootstrap.servers": deployment.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "message.timeout.ms": 0,
            "partitioner": "murmur2_random",
            "reconnect.backoff.max.ms": 500,
            "logger": QUIET,
        })
        self._thread = Thread(target=self._send, name="load", daemon=True)
        self._thread.start()

    def _send(self) -> None:
        n, paced = 0, Deadline(1 << 30)
        start_s = paced.remaining_s()
        while not self._stop.is_set():
            while n < (start_s - paced.remaining_s()) * self._rate:
                self._send_one(n)
                n += 1
            self._producer.poll(0)
            pause(_TURN_S)

    def _send_one(self, n: int) -> None:
        draw, stamp_ms = self._draw, wall_ms()
        key = b"key-%d" % draw.randrange(_KEYS) if draw.random() < 0.9 else None
        headers: list[tuple[str, bytes | None]] = [("trace", b"%d" % n), ("none", None)]
        if draw.random() < 0.3:
            headers.append(("retry-at-ms", b"%d" % (stamp_ms + draw.randrange(_WISH_MS))))
        value = b"letter %d " % n + bytes(draw.randrange(300))
        while True:
            try:
                self._producer.produce(
                    self._topics[n % len(self._topics)], value, key, -1, self._told, timestamp=stamp_ms, headers=headers
                )
                return
            except BufferError:
                self._producer.poll(0.1)

    def _told(self, error: KafkaError | None, _message: Message) -> None:
        self.acknowledged += error is None
        self.refused += error is not None

    def finish(self) -> None:
        """Send nothing more, and wait until all of it is acknowledged."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(_FLUSH_S)
        assert (left, self.refused) == (0, 0), f"{left} letters are not acknowledged, {self.refused} were refused"
