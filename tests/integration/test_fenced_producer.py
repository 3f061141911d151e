"""A producer that is fenced while it waits for its records says so; the lines that its client logs meanwhile do no harm."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from retry.errors import ProducerFenced
from retry.kafka.client_config import build_producer_config
from retry.kafka.local_broker import LocalBroker
from retry.kafka.transactional_producer import KafkaTransactionalProducer
from retry.settings import Settings
from tests.support.topics import create_all

# Each partition is refused by itself, and each refusal is logged: most of them behind the first, which is fatal.
PARTITIONS, TIMES = 12, 5
# As long as a starved core takes; what is waited for is over at once.
PATIENT_S = 60.0


def test_a_producer_that_is_fenced_while_its_records_are_under_way_says_so(broker: LocalBroker) -> None:
    topic = f"t{uuid.uuid4().hex[:8]}"
    create_all(AdminClient({"bootstrap.servers": broker.bootstrap_servers}), [NewTopic(topic, PARTITIONS, 1)])
    config = build_producer_config(Settings(bootstrap_servers=broker.bootstrap_servers, app_id=topic), f"{topic}-shard-0")
    # Nobody but the owner ends the former's transaction, however long a starved core takes.
    config["transaction.timeout.ms"] = int(PATIENT_S * 1_000)

    def has_written(writer: KafkaTransactionalProducer) -> bool:
        for partition in range(PARTITIONS):
            writer.write(topic, partition, [{"key": b"entry", "value": None}])
        return writer.await_arrival(PATIENT_S)

    for _ in range(TIMES):
        former, owner = KafkaTransactionalProducer(config), KafkaTransactionalProducer(config)
        former.open(PATIENT_S)
        former.begin()
        # The coordinator is not asked about these partitions again: it is the partitions' leader that refuses the rest.
        assert has_written(former)
        owner.open(PATIENT_S)
        with pytest.raises(ProducerFenced):
            assert not has_written(former)
        owner.close()
        former.close()
        # Or the client would damage the process's memory where it goes, and one time in some hundred end it.
        assert [len(writer._producer) for writer in (owner, former)] == [0, 0]
