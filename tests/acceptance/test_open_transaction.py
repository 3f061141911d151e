"""A hung producer keeps a transaction open on a dead-letter topic: health, log and metrics say what that holds back."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer

from tests.conftest import Deploy
from tests.support import policies
from tests.support.letters import Sender
from tests.support.process import await_that
from tests.support.reading import Tail

pytestmark = pytest.mark.slow

LETTERS = 5


@pytest.mark.fault("a hung producer's open transaction")
def test_letters_behind_a_transaction_that_stays_open_are_counted_and_told_of(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, shards=1, retry_partitions=1, defaults=policies.DEFAULTS)
    (name,) = deployment.dead_letters
    hung = Producer({"bootstrap.servers": deployment.bootstrap_servers, "transactional.id": f"{deployment.app_id}-hung"})
    hung.init_transactions(30)
    hung.begin_transaction()
    hung.produce(name, b"of the hung one")
    assert hung.flush(30) == 0
    sender = Sender(deployment.bootstrap_servers)
    for n in range(LETTERS):
        sender.send(name, b"k%d" % n, b"letter")
    sender.finish()
    worker = deployment.worker().start().await_ready()

    def is_told() -> bool:
        said = json.loads(worker.get("/health/ready")[1])
        return bool(said["ready"]) and "--start-offset 0" in said["letters_held"].get(f"{name}/0", "")

    await_that("health says what holds the letters back, and is ready", is_told)
    counted = f'retry_letters_unread{{reason="open_transaction",topic="{name}"}} {float(LETTERS + 1)}'
    assert counted in worker.get("/metrics")[1]
    assert worker.log().count("a transaction of another producer that is open since offset 0") == 1
    hung.abort_transaction(30)
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(LETTERS, 60.0)
    tail.close()
    await_that("nothing is held back any more", lambda: not json.loads(worker.get("/health/ready")[1])["letters_held"])
    worker.terminate()
