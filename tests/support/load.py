"""Load for fault tests: letters of all kinds, evenly spread over a time."""

from __future__ import annotations

import random
from threading import Event, Thread
from types import TracebackType

from retry.clock import wall_ms
from tests.support.deployment import Deployment
from tests.support.letters import Headers, Sender

_SEED = 4_711


def send(sender: Sender, deployment: Deployment, count: int, seconds: float, delay_ms: int, first: int = 0) -> None:
    """Send letters in turn to every dead-letter topic; half of them ask for their own time.

    Args:
      first: number of the first; no two letters of different numbers are equal.
      delay_ms: the longest delay; the deployment's policy has the same, with full jitter.
    """
    draw, topics = random.Random(_SEED + first), list(deployment.dead_letters)

    def one(n: int) -> None:
        stamp_ms = wall_ms()
        key = b"key-%d" % draw.randrange(500) if draw.random() < 0.9 else None
        headers: Headers = [("trace", b"%d" % n), ("none", None), ("trace", b"again")]
        delays_ms = 0, delay_ms
        if draw.random() < 0.5:
            wish_ms = draw.randrange(delay_ms)
            delays_ms = wish_ms, wish_ms
            headers = [headers[0], ("retry-at-ms", b"%d" % (stamp_ms + wish_ms)), *headers[1:]]
        value = b"letter %d " % n + bytes(draw.randrange(300))
        sender.send(topics[n % len(topics)], key, value, headers, timestamp_ms=stamp_ms, delays_ms=delays_ms)

    sender.paced(count, seconds, lambda n: one(first + n))


class Load:
    """Letters at a steady pace, sent by a thread until it is told to stop.

    Args:
      delay_ms: see `send`.
    """

    def __init__(self, deployment: Deployment, letters_per_s: int, delay_ms: int) -> None:
        self.sender = Sender(deployment.bootstrap_servers)
        self._deployment, self._letters_per_s, self._delay_ms = deployment, letters_per_s, delay_ms
        self._over = Event()
        self._thread = Thread(target=self._run, name="load")

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        first, count = 0, max(1, self._letters_per_s // 4)
        while not self._over.is_set():
            send(self.sender, self._deployment, count, 0.25, self._delay_ms, first)
            first += count
