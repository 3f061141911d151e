"""Single records that are written at once, each acknowledged by itself: what has no transaction to be part of."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from retry.errors import RecordUnwritten
from retry.kafka.client_config import Config

_POLL_S = 0.1
_LEAVE_S = 5.0


class Records:
    """An idempotent producer; for several threads."""

    def __init__(self, config: Config) -> None:
        self._producer = Producer(config)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="records", daemon=True)
        self._thread.start()

    def write(self, topic: str, partition: int, key: bytes, value: bytes | None) -> Future[int]:
        """Write a record; the future has its offset once all copies have it, or `RecordUnwritten`."""
        done: Future[int] = Future()

        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                done.set_result(message.offset() or 0)
            else:
                done.set_exception(RecordUnwritten(error.str()))

        produce: Any = self._producer.produce
        try:
            produce(topic, value, key, partition, told)
        except (BufferError, KafkaException) as error:
            done.set_exception(RecordUnwritten(str(error)))
        return done

    def _run(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(_POLL_S)

    def close(self) -> None:
        """Wait a moment for what is under way."""
        self._producer.flush(_LEAVE_S)
        self._closing.set()
        self._thread.join()
