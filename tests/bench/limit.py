"""The limit of the machine: the same letters, copied by librdkafka and nothing else."""

from __future__ import annotations

import gc
import time
import uuid

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import NewTopic

from retry.kafka.local_broker import LocalBroker

from .figures import LIMIT, Figure
from .letters import PARTITIONS, Incorrect, admin, fill, producer, read_committed
from .machine import Usage

_IN_TRANSACTION = 10_000
_PATIENCE_S = 120


def copy(broker: LocalBroker, letters: int) -> list[Figure]:
    """Consume → produce, key, value and 2 headers, in transactions of 10,000 records that include the offsets.

    The clock runs from the first batch in hand to the end of the last commit.
    """
    bootstrap = broker.bootstrap_servers
    tag = uuid.uuid4().hex[:8]
    source, target = f"limit-{tag}-source", f"limit-{tag}-target"
    topics = admin(bootstrap)
    for made in topics.create_topics([NewTopic(t, PARTITIONS, 1) for t in (source, target)]).values():
        made.result(20)
    fill(bootstrap, source, range(letters), int(time.time() * 1_000))
    reader = Consumer({
        "bootstrap.servers": bootstrap, "group.id": f"limit-{tag}", "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 1 << 20,
        "fetch.message.max.bytes": 4 << 20,
    })  # fmt: skip
    reader.subscribe([source])
    writer = producer(bootstrap, **{"transactional.id": f"limit-{tag}"})
    writer.init_transactions(20)
    gc.collect()
    usage = Usage(0, broker.pid)
    seconds = copy_records(reader, writer, target, letters)
    usage.stop()
    reader.close()
    verify_copy(bootstrap, target, letters)
    for gone in topics.delete_topics([source, target]).values():
        gone.result(20)
    return [Figure(LIMIT, letters / seconds, "letters/s"), Figure(f"{LIMIT}, others", usage.others, "cores")]


def copy_records(reader: Consumer, writer: Producer, target: str, letters: int) -> float:
    began, copied, in_transaction = 0.0, 0, 0
    deadline = time.time() + _PATIENCE_S
    produce = writer.produce
    while copied < letters:
        if time.time() > deadline:
            raise Incorrect(f"copied only {copied:,} of {letters:,}")
        messages = reader.consume(min(_IN_TRANSACTION - in_transaction, letters - copied), 0.05)
        began = began or (time.time() if messages else 0.0)
        if messages and not in_transaction:
            writer.begin_transaction()
        for message in messages:
            if message.error():
                raise Incorrect(str(message.error()))
            produce(target, message.value(), message.key(), headers=message.headers())
        copied += len(messages)
        in_transaction += len(messages)
        if in_transaction and (in_transaction >= _IN_TRANSACTION or copied == letters):
            writer.send_offsets_to_transaction(reader.position(reader.assignment()), reader.consumer_group_metadata())
            writer.commit_transaction()
            in_transaction = 0
    return time.time() - began


def verify_copy(bootstrap: str, target: str, letters: int) -> None:
    reader, found, deadline = read_committed(bootstrap, target), 0, time.time() + _PATIENCE_S
    while found < letters and time.time() < deadline:
        found += sum(m.error() is None for m in reader.consume(10_000, 0.2))
    found += sum(m.error() is None for m in reader.consume(10_000, 0.3))
    reader.close()
    if found != letters:
        raise Incorrect(f"the copy holds {found:,} of {letters:,} letters")
