"""Sends records of this program's own making, all of them or with an error."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaException, Producer

from retry.errors import BrokersUnreachable
from retry.kafka.client_config import admin, asking_config
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
    producer = Producer({**asking_config(settings), **own})
    count = 0
    try:
        for key, value in records:
            producer.produce(topic, value, key, on_delivery=lambda error, _: refused.append(error.str()) if error else None)
            producer.poll(0)
            count += 1
        left = producer.flush(_WITHIN_S)
    except (KafkaException, BufferError) as error:
        raise BrokersUnreachable(settings.bootstrap_servers, str(error)) from error
    if left or refused:
        why = refused[0] if refused else "no answer"
        raise BrokersUnreachable(settings.bootstrap_servers, f"{left + len(refused)} of {count} records for {topic}: {why}")
    return count
