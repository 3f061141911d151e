"""How late letters come back that arrive at a steady rate."""

from __future__ import annotations

import random
import time

from .figures import Figure
from .letters import Incorrect, flush, parsed, producer, write
from .rates import used
from .service import Service

_PER_S = 2_000
_SECONDS = 20
_DELAY_MS = (1_000, 5_000)
_AT_ONCE = 10
_PATIENCE_S = 60
_P99_MS = 200.0


def lateness(service: Service, _letters: int) -> list[Figure]:
    """2,000 letters a second for 20 seconds, each due 1 to 5 seconds after it was written."""
    service.warmed()
    usage = service.usage()
    letters = _PER_S * _SECONDS
    behind_s = _trickle(service, letters)
    service.reader.await_count(letters, _PATIENCE_S, service.worker.running)
    usage.stop()
    service.check_retries(letters)
    appended, received = _late_ms(service)
    if appended[0] < 0:
        raise Incorrect(f"{sum(ms < 0 for ms in appended):,} letters came back early, the first {-appended[0]} ms")
    return [
        *_percentiles("lateness, appended", appended),
        *_percentiles("lateness, received", received),
        Figure("lateness, producer behind", behind_s * 1_000, "ms"),
        *used("lateness", usage, letters),
    ]


def _trickle(service: Service, letters: int) -> float:
    """Write the letters at their rate, and say by how much that failed at worst."""
    to, draw = producer(service.bootstrap), random.Random(11)
    began, behind_s = time.time(), 0.0
    for first in range(0, letters, _AT_ONCE):
        early_s = began + first / _PER_S - time.time()
        behind_s = max(behind_s, -early_s)
        time.sleep(max(0.0, early_s))
        for number in range(first, first + _AT_ONCE):
            write(to, service.letters, number, int(time.time() * 1_000 + draw.uniform(*_DELAY_MS)))
        to.poll(0)
    flush(to)
    return behind_s


def _late_ms(service: Service) -> tuple[list[float], list[float]]:
    """Sorted lateness of all letters, by the broker's append time and by the time of receipt."""
    appended, received = [], []
    for at_s, batch in service.reader.batches:
        for message in batch:
            due_ms = parsed(message.value() or b"")[2]
            appended.append(float(message.timestamp()[1] - due_ms))
            received.append(at_s * 1_000 - due_ms)
    return sorted(appended), sorted(received)


def _percentiles(name: str, late_ms: list[float]) -> list[Figure]:
    def at(share: float) -> float:
        return late_ms[min(len(late_ms) - 1, int(share * len(late_ms)))]

    return [
        Figure(f"{name}, p50", at(0.5), "ms"),
        Figure(f"{name}, p99", at(0.99), "ms", most=_P99_MS),
        Figure(f"{name}, max", at(1), "ms"),
    ]
