"""The consumer of the retry topics: some letters fail again and are dead-lettered again, exactly once; the rest are done.

It reads and writes in transactions, as a consumer must that does not want to add letters by itself. It also looks how
late each letter came.
"""

from __future__ import annotations

import logging
import uuid
from threading import Event, Thread
from typing import Any

import xxhash
from confluent_kafka import Consumer, KafkaException, Message, Producer

from retry.clock import pause
from retry.dead_letters import retry_headers as names
from tests.support.deployment import Deployment
from tests.support.reading import COMMITTED, QUIET

log = logging.getLogger(__name__)

_BATCH, _WAIT_S, _AGAIN_S, _ASK_S = 2_000, 0.2, 1.0, 20.0


class Downstream:
    """One consumer in a thread.

    Args:
      fails: which part of what is retried fails again.

    Attributes:
      done, failed_again: retried letters that went well, and that did not.
      worst_late_ms: by the broker's clock, from the due time to the moment in which a letter was appended.
    """

    def __init__(self, deployment: Deployment, fails: float) -> None:
        self.done = self.failed_again = self.worst_late_ms = 0
        self.late_ms: list[int] = [0] * 1_000
        self._deployment, self._limit = deployment, int(fails * 1_000)
        self._id = f"downstream-{uuid.uuid4().hex}"
        self._stop = Event()
        self._thread = Thread(target=self._run, name="downstream", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            consumer, producer = self._consumer(), self._producer()
            try:
                producer.init_transactions(_ASK_S)
                while not self._stop.is_set():
                    self._step(consumer, producer)
            except KafkaException as error:
                # The transaction is undone when the next producer opens, and its letters are read again.
                log.info("downstream begins again: %s", error)
                pause(_AGAIN_S)
            finally:
                consumer.close()

    def _consumer(self) -> Consumer:
        consumer = Consumer({
            "bootstrap.servers": self._deployment.bootstrap_servers,
            "group.id": self._id,
            "isolation.level": COMMITTED,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "logger": QUIET,
        })
        consumer.subscribe(self._deployment.retry_topics())
        return consumer

    def _producer(self) -> Producer:
        return Producer({
            "bootstrap.servers": self._deployment.bootstrap_servers,
            "transactional.id": self._id,
            "transaction.timeout.ms": 10_000,
            "linger.ms": 5,
            "partitioner": "murmur2_random",
            "logger": QUIET,
        })

    def _step(self, consumer: Consumer, producer: Producer) -> None:
        messages = [m for m in consumer.consume(_BATCH, _WAIT_S) if m.error() is None]
        if not messages:
            return
        producer.begin_transaction()
        failing = [m for m in messages if self._fails(m)]
        for m in failing:
            headers = [*(m.headers() or []), ("exception", b"StillDown")]
            topic = (m.topic() or "").removesuffix(".retry") + ".DLT"
            producer.produce(topic, m.value(), m.key(), headers=headers)
        producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), _ASK_S)
        producer.commit_transaction(_ASK_S)
        self.failed_again += len(failing)
        self.done += len(messages) - len(failing)
        for m in messages:
            self._note(m)

    def _fails(self, m: Message) -> bool:
        """Drawn from what the letter is, and which attempt: the same however often it is read."""
        told = b"".join(value or b"" for name, value in m.headers() or () if name in (names.ID, names.ATTEMPT))
        return xxhash.xxh64_intdigest(told) % 1_000 < self._limit

    def _note(self, m: Message) -> None:
        held: dict[str, Any] = dict(m.headers() or ())
        late_ms = max(0, m.timestamp()[1] - int(held[names.DUE_MS]))
        self.worst_late_ms = max(self.worst_late_ms, late_ms)
        self.late_ms[min(late_ms // 100, len(self.late_ms) - 1)] += 1

    def late_ms_at(self, part: float) -> int:
        """How late this part of all letters was at most, to a tenth of a second."""
        wanted, seen = part * sum(self.late_ms), 0
        for tenths, count in enumerate(self.late_ms):
            seen += count
            if seen >= wanted:
                return (tenths + 1) * 100
        return len(self.late_ms) * 100

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
