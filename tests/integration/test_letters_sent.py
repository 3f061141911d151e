"""What tests compare with is what lies on the dead-letter topic: also a letter that their own client wrote twice."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Producer

from retry.kafka.local_broker import LocalBroker
from tests.support.letters import Sender
from tests.support.reading import QUIET, admin
from tests.support.topics import create

pytestmark = pytest.mark.check


def test_a_letter_that_the_client_wrote_twice_is_two_letters(broker: LocalBroker) -> None:
    topic = f"twice-{uuid.uuid4().hex[:8]}"
    create(admin(broker.bootstrap_servers), topic, 1)
    sender = Sender(broker.bootstrap_servers)
    for n in range(3):
        sender.send(topic, b"key", b"letter %d" % n, timestamp_ms=1_790_000_000_000 + n)
    sent = dict(sender.finish())
    assert (list(sent), sender.find_copies()) == ([f"{topic}/0/{n}" for n in range(3)], {})
    other = Producer({"bootstrap.servers": broker.bootstrap_servers, "logger": QUIET})
    other.produce(topic, b"letter 1", b"key", timestamp=1_790_000_000_001)
    other.produce(topic, b"letter 1", b"key", timestamp=1_790_000_000_009)
    other.produce(topic, b"another", b"key", timestamp=1_790_000_000_001)
    assert other.flush(60) == 0
    (copy,) = sender.find_copies().items()
    assert copy == (f"{topic}/0/3", sent[f"{topic}/0/1"]._replace(offset=3))
