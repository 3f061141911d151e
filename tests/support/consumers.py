"""Consumer groups of three teams, whose chance to recover is known: what they process follows from letter and attempt alone.

They commit offsets as consumers do, after what failed again has been dead-lettered again; they do nothing else for the service.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from threading import Event, Thread

from confluent_kafka import Consumer, Message, Producer

from tests.support.events import Kind, draw
from tests.support.reading import COMMITTED, QUIET

_BATCH, _WAIT_S, _ASK_S = 500, 0.1, 120.0
_WORD = "kafka_dlt-"


class Truth:
    """Which of `count` letters of each kind recover at which attempt, before any of them is sent.

    Attributes:
      recovered: by team, exception and attempt.
      parked: by team and exception.
      retries: by team, exception and attempt, how many are made.
    """

    def __init__(self, kinds: Iterable[Kind], count: int, seed: int) -> None:
        self.recovered: Counter[tuple[str, str, int]] = Counter()
        self.parked: Counter[tuple[str, str]] = Counter()
        self.retries: Counter[tuple[str, str, int]] = Counter()
        for kind in kinds:
            for n in range(count):
                self._add(kind, n, seed)

    def _add(self, kind: Kind, n: int, seed: int) -> None:
        for attempt in range(1, len(kind.delays_ms) + 1):
            self.retries[kind.team, kind.exception, attempt] += 1
            if succeeds(kind, n, attempt, seed):
                self.recovered[kind.team, kind.exception, attempt] += 1
                return
        self.parked[kind.team, kind.exception] += 1


def succeeds(kind: Kind, n: int, attempt: int, seed: int) -> bool:
    """Whether this attempt of this letter goes well."""
    return draw(seed, n, attempt) < kind.recovers(attempt, kind.delays_ms[attempt - 1])


def letter(kind: Kind, n: int, prefix: str) -> tuple[str, list[tuple[str, bytes | None]]]:
    """Value and headers of the n-th letter of a kind, as Spring Kafka writes them."""
    headers: list[tuple[str, bytes | None]] = [
        (f"{_WORD}original-topic", f"{prefix}.{kind.team}".encode()),
        (f"{_WORD}original-partition", (0).to_bytes(4, "big")),
        (f"{_WORD}original-offset", n.to_bytes(8, "big")),
        (f"{_WORD}original-consumer-group", group(kind, prefix).encode()),
        (f"{_WORD}exception-fqcn", kind.exception.encode()),
        (f"{_WORD}exception-message", b"order %d failed" % n),
    ]
    return str(n), headers


def group(kind: Kind, prefix: str) -> str:
    """The consumer group of a team."""
    return f"{prefix}.{kind.team}-service"


class Group:
    """The consumer group of one kind, in a thread: reads the team's retry topic, and dead-letters what fails again.

    Attributes:
      done: retries that went well, by attempt.
    """

    def __init__(self, bootstrap_servers: str, kind: Kind, prefix: str, seed: int) -> None:
        self.done: Counter[int] = Counter()
        self._kind, self._seed, self._dead_letters = kind, seed, f"{prefix}.{kind.team}.DLT"
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "logger": QUIET})
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap_servers, "group.id": group(kind, prefix), "isolation.level": COMMITTED,
            "enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50, "logger": QUIET,
        })  # fmt: skip
        self._consumer.subscribe([f"{prefix}.{kind.team}.retry"])
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            records = [m for m in self._consumer.consume(_BATCH, _WAIT_S) if m.error() is None]
            for record in records:
                self._process(record)
            if records:
                assert self._producer.flush(_ASK_S) == 0
                self._consumer.commit(asynchronous=False)
        self._consumer.close()

    def _process(self, record: Message) -> None:
        headers = record.headers() or []
        attempt = int(dict(headers)["retry-attempt"] or b"")
        if succeeds(self._kind, int(record.value() or b""), attempt, self._seed):
            self.done[attempt] += 1
        else:
            self._producer.produce(self._dead_letters, record.value(), record.key(), headers=headers)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(2 * _ASK_S)
        assert not self._thread.is_alive()
