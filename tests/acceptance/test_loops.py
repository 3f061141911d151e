"""Consumers that fail for ever, and what they do to the headers: every letter is sent so often and no more, then it parks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from retry.clock import Deadline
from tests.conftest import Deploy
from tests.support.deployment import Deployment
from tests.support.letters import Headers, Sender
from tests.support.reading import Record, Tail

pytestmark = pytest.mark.check

MAX_ATTEMPTS = 4
LETTERS = 25
DEFAULTS = f"{{backoff: {{kind: constant, delay: 200ms}}, jitter: none, max_attempts: {MAX_ATTEMPTS}}}"

Again = Callable[[Record], tuple[bytes | None, Headers]]


def honest(record: Record) -> tuple[bytes | None, Headers]:
    """Copy a record as an honest consumer does: everything."""
    return record.value, record.headers


def stripper(record: Record) -> tuple[bytes | None, Headers]:
    """Copy a record without its headers."""
    return record.value, []


def forger(record: Record) -> tuple[bytes | None, Headers]:
    """Says each time that it was the first failure."""
    return record.value, [(n, b"0" if n == "retry-attempt" else v) for n, v in record.headers]


def renamer(record: Record) -> tuple[bytes | None, Headers]:
    """Makes up an id, and says that it was the first failure."""
    return record.value, [("retry-id", b"%016x" % record.offset), ("retry-attempt", b"0")]


def rewriter(record: Record) -> tuple[bytes | None, Headers]:
    """Changes the value, keeps the id, forgets the count."""
    return (record.value or b"") + b"!", [(n, v) for n, v in record.headers if n == "retry-id"]


def relocator(record: Record) -> tuple[bytes | None, Headers]:
    """Keeps none of ours, and tells as a framework does where it read the record."""
    return record.value, [
        ("source_topic", record.topic.encode()), ("source_partition", b"%d" % record.partition),
        ("source_offset", b"%d" % record.offset), ("source_consumer_group", b"billing"),
    ]  # fmt: skip


CONSUMERS: dict[str, Again] = {each.__name__: each for each in (honest, stripper, forger, renamer, rewriter, relocator)}


def test_whatever_a_consumer_does_to_the_headers_its_letters_are_sent_so_often_and_then_park(deploy: Deploy) -> None:
    deployment = deploy(dict.fromkeys(CONSUMERS, 2), shards=2, defaults=DEFAULTS)
    worker = deployment.worker().start().await_ready()
    sender = Sender(deployment.bootstrap_servers)
    for topic in deployment.dead_letters:
        for n in range(LETTERS):
            sender.send(topic, b"key %d" % n, b"letter %d" % n)
    assert len(sender.finish()) == LETTERS * len(CONSUMERS)
    sends, parked = fail_for_ever(deployment, LETTERS * len(CONSUMERS))
    assert worker.running()
    for topic, name in zip(deployment.dead_letters, CONSUMERS, strict=True):
        of_topic = {key: count for (at, key), count in sends.items() if at == deployment.retry_of(topic)}
        assert of_topic == {b"key %d" % n: MAX_ATTEMPTS for n in range(LETTERS)}, name
    reasons = Counter(record.header("retry-parked-reason") for record in parked)
    assert reasons == {"max_attempts": LETTERS * len(CONSUMERS)}
    assert {record.header("retry-attempt") for record in parked} == {str(MAX_ATTEMPTS)}


def fail_for_ever(deployment: Deployment, letters: int) -> tuple[Counter[tuple[str, bytes | None]], list[Record]]:
    """Dead-letter every retry again until all letters are parked: how often each was sent, and what was parked."""
    again = dict(zip(deployment.retry_topics(), CONSUMERS.values(), strict=True))
    back = dict(zip(deployment.retry_topics(), deployment.dead_letters, strict=True))
    tail = Tail(deployment.bootstrap_servers, [*again, deployment.parked])
    # What a broker was slow to acknowledge and is sent again must not be a letter more.
    producer = Producer({"bootstrap.servers": deployment.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True})
    sends: Counter[tuple[str, bytes | None]] = Counter()
    parked: list[Record] = []
    deadline = Deadline(300.0)
    while len(parked) < letters:
        assert not deadline.has_passed(), f"{len(parked)} of {letters} parked; sent {sum(sends.values())}"
        for record in tail.read():
            if record.topic == deployment.parked:
                parked.append(record)
                continue
            sends[record.topic, record.key] += 1
            value, headers = again[record.topic](record)
            producer.produce(back[record.topic], value, record.key, headers=list(headers))
        producer.flush(10)
    # Nothing more comes: neither another retry nor another parked letter.
    assert tail.quiet(2.0) == []
    tail.close()
    return sends, parked
