"""Letters that wait, as a worker commits them, with when each was committed: what a console that is live has to show."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from confluent_kafka import KafkaException, Producer

from retry import clock
from tests.support.deployment import Deployment
from tests.support.reading import QUIET
from tests.support.replicas import entry

_TIMEOUT_S = 60.0


class CommittedLetters:
    """Commits a few letters again and again, in a thread of its own, also through stops of the broker.

    Args:
      every_s: how long it rests between two transactions.
    """

    def __init__(self, deployment: Deployment, every_s: float = 0.1) -> None:
        self._names, self._every_s = deployment.names, every_s
        self._servers, self._shards = deployment.bootstrap_servers, deployment.shards
        self._committed_ms: list[int] = []
        self._counts: list[int] = []
        self._next, self._certain = 0, 0
        self._ending, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._run, name="committed letters", daemon=True)

    def __enter__(self) -> CommittedLetters:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ending.set()
        self._thread.join()

    def count_before(self, at_ms: int) -> int:
        """How many letters are known to have been committed before that time."""
        n = bisect_right(self._committed_ms, at_ms - 1)
        return self._counts[n - 1] if n else 0

    def commit_many(self, letters: int) -> None:
        """Commit so many at once, as a flood does while nobody looks."""
        with self._producer() as to:
            self._commit(to, letters)

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                with self._producer() as to:
                    while not self._ending.is_set():
                        self._commit(to, 5)
                        self._ending.wait(self._every_s)
            except KafkaException:
                # The broker is away: what was under way may be committed or not, and is not counted.
                self._ending.wait(0.5)

    @contextmanager
    def _producer(self) -> Iterator[Producer]:
        name = f"{self._names.changelog}-{threading.get_ident()}"
        to = Producer({
            "bootstrap.servers": self._servers, "transactional.id": name, "logger": QUIET, "transaction.timeout.ms": 10_000,
        })  # fmt: skip
        to.init_transactions(_TIMEOUT_S)
        yield to

    def _commit(self, to: Producer, letters: int) -> None:
        with self._lock:
            first, self._next = self._next, self._next + letters
        to.begin_transaction()
        for number in range(first, first + letters):
            key, envelope = entry(number, clock.wall_ms() + 3_600_000)
            to.produce(self._names.changelog, envelope, key, number % self._shards)
            to.poll(0)
        to.commit_transaction(_TIMEOUT_S)
        with self._lock:
            self._certain += letters
            self._counts.append(self._certain)
            self._committed_ms.append(clock.wall_ms())
