"""How late letters come back that arrive at a steady rate."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence

from confluent_kafka import Message

from .figures import Figure
from .letters import Incorrect, flush, parsed, producer, write
from .rates import make_usage_figures
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
    behind_s = trickle(service.bootstrap, [service.letters], letters, _PER_S)
    service.reader.await_count(letters, _PATIENCE_S, service.worker.running)
    usage.stop()
    service.check_retries(letters)
    appended, received = late_ms(service.reader.batches)
    if appended[0] < 0:
        raise Incorrect(f"{sum(ms < 0 for ms in appended):,} letters came back early, the first {-appended[0]} ms")
    return [
        *_percentiles("lateness, appended", appended),
        *_percentiles("lateness, received", received),
        Figure("lateness, producer behind", behind_s * 1_000, "ms"),
        *make_usage_figures("lateness", usage, letters),
    ]


def trickle(
    bootstrap: str, topics: Sequence[str], letters: int, per_s: int, delay_ms: tuple[int, int] = _DELAY_MS, start: int = 0
) -> float:
    """Write letters at a rate, to the topics in turn, numbered from `start` on; say by how many seconds that failed at worst."""
    to, draw = producer(bootstrap), random.Random(11 + start)
    began, behind_s = time.time(), 0.0
    for first in range(0, letters, _AT_ONCE):
        early_s = began + first / per_s - time.time()
        behind_s = max(behind_s, -early_s)
        time.sleep(max(0.0, early_s))
        for number in range(first, min(first + _AT_ONCE, letters)):
            write(to, topics[number % len(topics)], start + number, int(time.time() * 1_000 + draw.uniform(*delay_ms)))
        to.poll(0)
    flush(to)
    return behind_s


def late_ms(batches: Iterable[tuple[float, list[Message]]]) -> tuple[list[float], list[float]]:
    """Sorted lateness of all letters, by the broker's append time and by the time of receipt."""
    appended, received = [], []
    for at_s, batch in batches:
        for message in batch:
            due_ms = parsed(message.value() or b"")[2]
            appended.append(float(message.timestamp()[1] - due_ms))
            received.append(at_s * 1_000 - due_ms)
    return sorted(appended), sorted(received)


def _percentiles(name: str, late_ms: list[float]) -> list[Figure]:
    return [
        Figure(f"{name}, p50", find_quantile(late_ms, 0.5), "ms"),
        Figure(f"{name}, p99", find_quantile(late_ms, 0.99), "ms", most=_P99_MS),
        Figure(f"{name}, max", find_quantile(late_ms, 1), "ms"),
    ]


def find_quantile(ordered: Sequence[float], share: float) -> float:
    """The value that this share of some sorted values does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
