"""Reads topics with aiokafka as a stranger installs it, and prints the records: BOOTSTRAP COUNT TOPIC...

In a process of its own, so that what compression needs can be taken away from it.
"""

from __future__ import annotations

import asyncio
import json
import sys

# Extras of aiokafka, which another package of a developer's environment may bring along.
sys.modules |= dict.fromkeys(("cramjam", "lz4", "lz4.frame", "snappy", "zstandard"))

from aiokafka import AIOKafkaConsumer, ConsumerRecord  # noqa: E402

_WITHIN_S = 180.0


async def _read(bootstrap_servers: str, count: int, *topics: str) -> None:
    consumer = AIOKafkaConsumer(
        *topics, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    await consumer.start()
    try:
        for _ in range(count):
            print(json.dumps(describe_record(await consumer.getone())))
    finally:
        await consumer.stop()


def describe_record(record: ConsumerRecord[bytes, bytes]) -> list[object]:
    headers = [[name, _text(value)] for name, value in record.headers]
    return [record.topic, record.partition, record.offset, _text(record.key), _text(record.value), headers]


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("latin-1")


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(_read(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]), _WITHIN_S))
