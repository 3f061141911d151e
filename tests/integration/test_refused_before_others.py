"""After a transaction that was undone since brokers refused a record of it, the next one of the producer goes as any other."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from retry.delay_queue.envelopes import Entry
from retry.errors import TransactionAborted
from retry.kafka.client_config import build_producer_config
from retry.kafka.local_broker import LocalBroker
from retry.kafka.transactional_producer import KafkaTransactionalProducer
from retry.settings import Settings
from tests.support.topics import create_all

TIMES, PATIENT_S = 3, 60.0


def test_the_transaction_behind_one_with_a_refused_record_is_committed(broker: LocalBroker) -> None:
    """Commit behind a gap in the numbers of a client's records: brokers would refuse what follows, and the client keep it."""
    topic = f"t{uuid.uuid4().hex[:8]}"
    compacted = NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})
    create_all(AdminClient({"bootstrap.servers": broker.bootstrap_servers}), [compacted])
    config = build_producer_config(Settings(bootstrap_servers=broker.bootstrap_servers, app_id=topic), f"{topic}-sweep")
    config["transaction.timeout.ms"] = int(2 * PATIENT_S * 1_000)
    writer = KafkaTransactionalProducer(config)
    writer.open(PATIENT_S)
    good = [Entry(topic, b"k", b"%d" % n, [], None, "team") for n in range(40)]
    for _ in range(TIMES):
        with pytest.raises(TransactionAborted, match="must be aborted"):
            writer.begin()
            writer.publish([*good[:20], Entry(topic, None, b"without a key", [], None, "team"), *good[20:]], 0)
            assert writer.await_arrival(PATIENT_S)
            writer.commit()
        writer.begin()
        writer.publish(good, 0)
        assert writer.await_arrival(PATIENT_S)
        writer.commit()
    writer.close()
