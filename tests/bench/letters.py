"""Letters: making them, reading them back, and seeing that each is there exactly once."""

from __future__ import annotations

import base64
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

PARTITIONS = 4
SIZE = 500
_HEAD = b'{"k":"%s","id":"%09d","due":%013d,"pad":"'
_HEAD_BYTES = len(_HEAD % (b"m", 0, 0))
# Random characters, cut at another place for each letter: compression, by whomever, gains nothing.
_PADS = base64.b64encode(random.Random(7).randbytes(3 << 20))
_APART = 21
MEASURED, WARM = b"m", b"w"
Headers = list[tuple[str, bytes | None]]
PLAIN: Headers = [("x-origin", b"bench")]
_TRACE = (
    b"org.springframework.kafka.listener.ListenerExecutionFailedException: Listener failed\n"
    + b"\tat com.example.orders.OrderListener.handle(OrderListener.java:42)\n" * 30
    + b"Caused by: com.example.orders.GatewayTimeout: no answer\n\tat com.example.orders.Gateway.ask(Gateway.java:7)\n"
)
# As Spring Kafka's recoverer writes them; numbers are big-endian.
SPRING: Headers = [
    *PLAIN,
    ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
    ("kafka_dlt-exception-cause-fqcn", b"com.example.orders.GatewayTimeout"),
    ("kafka_dlt-exception-message", b"Listener failed; no answer"),
    ("kafka_dlt-exception-stacktrace", _TRACE),
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", (3).to_bytes(4, "big")),
    ("kafka_dlt-original-timestamp", (1_700_000_000_000).to_bytes(8, "big")),
    ("kafka_dlt-original-timestamp-type", b"CreateTime"),
    ("kafka_dlt-original-consumer-group", b"order-service"),
]


class Incorrect(Exception):
    """A letter is lost, doubled or changed, or something did not come about in time."""


def letter(number: int, due_ms: int, kind: bytes = MEASURED) -> bytes:
    """The value of one letter: 500 bytes of JSON that say which one it is and when it is due."""
    start = number * (SIZE + _APART) % (len(_PADS) - SIZE)
    return _HEAD % (kind, number, due_ms) + _PADS[start : start + SIZE - _HEAD_BYTES - 2] + b'"}'


def key(number: int) -> bytes:
    """The key of one letter."""
    return b"k%09d" % number


def parsed(value: bytes) -> tuple[bytes, int, int]:
    """Kind, number and due time of a letter."""
    return value[6:7], int(value[15:24]), int(value[32:45])


def admin(bootstrap: str) -> AdminClient:
    """Connect an admin client for topics and offsets."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})


def producer(bootstrap: str, **more: Any) -> Producer:
    """A producer that fills topics as fast as it can."""
    return Producer({
        "bootstrap.servers": bootstrap, "log_level": 3, "acks": "all", "linger.ms": 5, "batch.size": 1 << 20,
        "retry.backoff.ms": 5, "queue.buffering.max.messages": 2_000_000, "queue.buffering.max.kbytes": 1 << 20, **more,
    })  # fmt: skip


def fill(
    bootstrap: str, topic: str, numbers: Iterable[int], due_ms: int, kind: bytes = MEASURED, headers: Headers = PLAIN
) -> None:
    """Write letters that are all due at one time."""
    to = producer(bootstrap)
    for number in numbers:
        write(to, topic, number, due_ms, kind, headers)
    flush(to)


def write(
    to: Producer, topic: str, number: int, due_ms: int, kind: bytes = MEASURED, headers: Headers = PLAIN
) -> None:
    headers = [*headers, ("retry-at-ms", b"%d" % due_ms)]
    if headers[: len(SPRING)] == SPRING:
        headers.append(("kafka_dlt-original-offset", number.to_bytes(8, "big")))
    while True:
        try:
            return to.produce(topic, letter(number, due_ms, kind), key(number), headers=headers)
        except BufferError:
            to.poll(0.01)


def flush(to: Producer) -> None:
    """Wait until everything is written."""
    if left := to.flush(120):
        raise Incorrect(f"the bench's own producer could not write {left} records")


def read_committed(bootstrap: str, topic: str, **more: Any) -> Consumer:
    """A reader of all partitions of a topic from their beginning."""
    reader = Consumer({
        "bootstrap.servers": bootstrap, "group.id": f"bench-{topic}", "enable.auto.commit": False,
        "isolation.level": "read_committed", "fetch.wait.max.ms": 100, "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 1 << 20, "fetch.message.max.bytes": 4 << 20, **more,
    })  # fmt: skip
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    return reader


class Reader(threading.Thread):
    """Reads a topic as it grows and notes when each batch came; looks into the records only when asked afterwards."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.batches: list[tuple[float, list[Message]]] = []
        self.count = 0
        self._consumer, self._closing = read_committed(bootstrap, topic), False
        self.start()

    def run(self) -> None:
        """Read records until the reader is closed."""
        while not self._closing:
            first = self._consumer.poll(0.1)
            if first is None:
                continue
            found = [first, *self._consumer.consume(10_000, 0)]
            at = time.time()
            batch = [m for m in found if m.error() is None]
            self.batches.append((at, batch))
            self.count += len(batch)

    def forget(self) -> None:
        """Begin to count anew; only when nothing is on its way."""
        self.batches, self.count = [], 0

    def await_count(self, records: int, timeout_s: float, alive: Callable[[], object] = lambda: None) -> float:
        """When the last of so many records was seen."""
        deadline = time.time() + timeout_s
        while self.count < records:
            alive()
            if time.time() > deadline:
                raise Incorrect(f"{self.count:,} of {records:,} letters came back within {timeout_s:.0f} s")
            time.sleep(0.005)
        return self.batches[-1][0]

    def close(self) -> None:
        self._closing = True
        self.join(5)
        self._consumer.close()
