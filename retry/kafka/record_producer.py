"""Single records that are written at once, each acknowledged by itself: what has no transaction to be part of."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from retry.errors import BrokersUnreachable, RecordUnwritten
from retry.kafka import authorization, client_config
from retry.kafka.client_config import Config, admin, asking_config
from retry.kafka.flush import flush
from retry.settings import Settings

_WITHIN_S = 30.0


def send(settings: Settings, topic: str, records: Iterable[tuple[bytes, bytes | None]]) -> int:
    """Send keys and values; how many they were.

    Raises:
      BrokersUnreachable: not all were taken.
    """
    admin(settings)
    refused: list[str] = []
    # As the Java client does: whoever else writes the same keys finds the same partitions.
    own = {"linger.ms": 5, "partitioner": "murmur2_random", "message.timeout.ms": 20_000}
    producer = client_config.producer({**asking_config(settings), **own})
    count = 0

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            refused.append(authorization.advice(error, authorization.WRITE, topic=topic))

    try:
        for key, value in records:
            producer.produce(topic, value, key, on_delivery=delivered)
            producer.poll(0)
            count += 1
        left = flush(producer, _WITHIN_S)
    except (KafkaException, BufferError) as error:
        raise BrokersUnreachable(settings.bootstrap_servers, str(error)) from error
    if left or refused:
        why = refused[0] if refused else "no answer"
        raise BrokersUnreachable(settings.bootstrap_servers, f"{left + len(refused)} of {count} records for {topic}: {why}")
    return count


_POLL_S = 0.1
_LEAVE_S = 5.0


class Records:
    """An idempotent producer; for several threads."""

    def __init__(self, config: Config) -> None:
        self._producer = client_config.producer(config)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="records", daemon=True)
        self._thread.start()

    def write(self, topic: str, partition: int, key: bytes, value: bytes | None) -> Future[int]:
        """Write a record; the future has its offset once all copies have it, or `RecordUnwritten`."""
        done: Future[int] = Future()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                done.set_result(message.offset() or 0)
            else:
                done.set_exception(RecordUnwritten(authorization.advice(error, authorization.WRITE, topic=topic)))

        produce: Any = self._producer.produce
        try:
            produce(topic, value, key, partition, delivered)
        except (BufferError, KafkaException) as error:
            done.set_exception(RecordUnwritten(str(error)))
        return done

    def _run(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(_POLL_S)

    def close(self) -> None:
        """Wait a moment for what is under way."""
        flush(self._producer, _LEAVE_S)
        self._closing.set()
        self._thread.join()
