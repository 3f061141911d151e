"""After a transaction that was undone while records were on their way, the next one of the producer is committed whole."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from retry.delay_queue.envelopes import Entry
from retry.kafka.client_config import build_producer_config
from retry.kafka.transactional_producer import KafkaTransactionalProducer
from retry.settings import Settings
from tests.support.faults import Runs
from tests.support.process import await_that
from tests.support.proxied_broker import Way, proxied_broker
from tests.support.reading import COMMITTED, UNCOMMITTED, read
from tests.support.topics import create_all

pytestmark = pytest.mark.slow

TIMES, PATIENT_S = 3, 60.0
LATE_RETRIES = {"retry.backoff.ms": 3_000, "retry.backoff.max.ms": 3_000}


@pytest.fixture
def way(tmp_path: Path) -> Iterator[Way]:
    with proxied_broker(tmp_path / "broker") as made:
        yield made


@pytest.mark.fault("an answer lost, and its transaction undone")
def test_a_record_of_the_transaction_behind_it_is_not_taken_for_one_that_was_undone(way: Way, runs: Runs) -> None:
    """A broker has a record, and its answer is lost. Once that is undone, the client gives the next record its number."""
    broker, proxy = way
    topic = f"t{uuid.uuid4().hex[:8]}"
    # Its records are of 1970, and brokers look every five minutes for what is older than a week.
    new = NewTopic(topic, 1, 1, config={"retention.ms": "-1"})
    create_all(AdminClient({"bootstrap.servers": broker.bootstrap_servers}), [new])
    config = build_producer_config(Settings(bootstrap_servers=way.proxied_servers, app_id=topic), f"{topic}-sweep")
    config |= {"transaction.timeout.ms": int(2 * PATIENT_S * 1_000), **LATE_RETRIES}
    writer = KafkaTransactionalProducer(config)
    writer.open(PATIENT_S)

    def publish(value: str) -> None:
        writer.publish([Entry(topic, b"k", value.encode(), [], None, "team")], 0)

    def values(isolation: str) -> list[str]:
        return [(record.value or b"").decode() for record in read(broker.bootstrap_servers, [topic], isolation)]

    for n in range(TIMES):
        writer.begin()
        publish(f"arrives {n}")
        assert writer.await_arrival(PATIENT_S)
        proxy.half_open()
        publish(f"on its way {n}")
        await_that("the broker has it", lambda text=f"on its way {n}": text in values(UNCOMMITTED), PATIENT_S)

        # The client is about to send it once more, when everything is undone.
        proxy.reset()
        proxy.restore()
        runs.add()
        writer.abort()
        writer.begin()
        publish(f"committed {n}")
        assert writer.await_arrival(PATIENT_S)
        writer.commit()
    writer.close()
    assert values(COMMITTED) == [f"committed {n}" for n in range(TIMES)]
