"""A thundering herd: all entries of one team are due within one second, while letters of another trickle in."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from confluent_kafka import Message

from . import check, spread, steady, waiting
from .figures import Figure
from .letters import MEASURED, Incorrect, parsed
from .machine import cpu_s, forget_peak, rss_mb
from .service import Service

TEAM = "herd"
_PER_S = 200
_DELAY_MS = (500, 1_500)
# From the first letter of the other team until the herd is due, and on after its last entry.
_BEFORE_S, _AFTER_S = 10, 3
_FILLED_PER_S, _DRAINED_PER_S = 15_000, 2_000

Batches = list[tuple[float, list[Message]]]


def herd(service: Service, entries: int) -> list[Figure]:
    """Fill, wait, and read until the last of them is seen.

    Raises:
      Incorrect: an entry or a letter did not come back exactly once, came early, or one overtook another of its lane.
    """
    service.warmed()
    due_s = int(time.time() + _BEFORE_S + 5 + entries / _FILLED_PER_S) + 1.0
    waiting.fill(service, entries, lambda n: int(due_s * 1_000) + n * 7 % 1_000)
    service.until_waiting(entries, max(1.0, due_s - _BEFORE_S - time.time()))
    calm = rss_mb(service.worker.pid)
    forget_peak(service.worker.pid)
    other = Trickle(service, due_s - _BEFORE_S)
    spent_s = cpu_s(service.worker.pid)
    until_s = due_s - time.time() + 30 + entries / _DRAINED_PER_S
    last = _last_of_herd(service, entries, until_s)
    spent_s = cpu_s(service.worker.pid) - spent_s
    letters = other.end()
    service.reader.await_count(entries + letters, 60, service.worker.running)
    time.sleep(1.0)
    of_herd, of_other = _split(service.reader.batches)
    check.retries(of_herd, entries, waiting.HERD)
    check.retries(of_other, letters)
    early = min(spread.late_ms(of_herd)[0][0], spread.late_ms(of_other)[0][0])
    if early < 0:
        raise Incorrect(f"up to {-early:.0f} ms early")
    in_order, first = count_in_order(of_herd, service.shards), of_herd[0][0]
    return [
        Figure("herd, first after due", first - due_s, "s"),
        Figure("herd, due to last", last - due_s, "s"),
        Figure("herd, rate", entries / max(1e-3, last - first), "entries/s"),
        Figure("herd, CPU", spent_s / entries * 1e6, "us an entry"),
        Figure("herd, RSS before", calm, "MB"),
        *steady.memory(service, "of the drain")[1:],
        *_lateness("before", of_other, 0, due_s),
        *_lateness("during", of_other, due_s, last),
        Figure("herd, delivered in the order of their lane", in_order, "entries"),
    ]


class Trickle(threading.Thread):
    """Letters of the other team, at a steady rate until told to end."""

    def __init__(self, service: Service, from_s: float) -> None:
        super().__init__(daemon=True)
        self._service, self._ending, self._letters = service, threading.Event(), 0
        time.sleep(max(0.0, from_s - time.time()))
        self.start()

    def run(self) -> None:
        """Write for a second at a time."""
        while not self._ending.is_set():
            of_team = [self._service.letters]
            spread.trickle(self._service.bootstrap, of_team, _PER_S, _PER_S, _DELAY_MS, self._letters)
            self._letters += _PER_S

    def end(self) -> int:
        """How many there were."""
        time.sleep(_AFTER_S)
        self._ending.set()
        self.join()
        return self._letters


def _last_of_herd(service: Service, entries: int, timeout_s: float) -> float:
    """When the last of the herd was seen: batches are looked into as they come, each once."""
    seen, looked, deadline = 0, 0, time.time() + timeout_s
    while seen < entries:
        service.worker.running()
        if time.time() > deadline:
            raise Incorrect(f"{seen:,} of {entries:,} entries of the herd came back")
        time.sleep(0.05)
        while looked < len(service.reader.batches):
            at, batch = service.reader.batches[looked]
            seen += sum(_kind(message) == waiting.HERD for message in batch)
            looked += 1
    return at


def _split(batches: Batches) -> tuple[Batches, Batches]:
    def select_kind(kind: bytes) -> Batches:
        chosen = ((at, [message for message in batch if _kind(message) == kind]) for at, batch in batches)
        return [(at, batch) for at, batch in chosen if batch]

    return select_kind(waiting.HERD), select_kind(MEASURED)


def count_in_order(batches: Iterable[tuple[float, list[Message]]], shards: int) -> int:
    """How many entries there are, all in order: within a lane of a shard, each partition has them by due time and source.

    Nothing is promised between shards, which sweep on their own.

    Raises:
      Incorrect: some were overtaken.
    """
    reached: dict[tuple[int, int], tuple[int, int]] = {}
    looked_at = overtaken = 0
    for _, batch in batches:
        for message in batch:
            _, number, due_ms = parsed(message.value() or b"")
            place = waiting.shard(message.key() or b"", shards), message.partition() or 0
            overtaken += (due_ms, number) < reached.get(place, (0, -1))
            reached[place] = due_ms, number
        looked_at += len(batch)
    if overtaken:
        raise Incorrect(f"{overtaken:,} entries were overtaken within their lane")
    return looked_at


def _kind(message: Message) -> bytes:
    return (message.value() or b"")[6:7]


def _lateness(when: str, batches: Batches, from_s: float, to_s: float) -> list[Figure]:
    due = ((m.timestamp()[1], parsed(m.value() or b"")[2]) for _, batch in batches for m in batch)
    late_ms = sorted(float(at_ms - due_ms) for at_ms, due_ms in due if from_s <= due_ms / 1_000 < to_s)
    name = f"other team's lateness {when}"
    return [
        Figure(f"{name}, p50", spread.find_quantile(late_ms, 0.5) if late_ms else 0.0, "ms"),
        Figure(f"{name}, p99", spread.find_quantile(late_ms, 0.99) if late_ms else 0.0, "ms"),
        Figure(f"{name}, letters", len(late_ms), ""),
    ]
