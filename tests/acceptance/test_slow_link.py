"""A link, or a quota, that is slower than the transactions of a worker: it writes less at a time, and all goes through."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.conftest import Deploy
from tests.support import policies
from tests.support.letters import Sender
from tests.support.process import await_that
from tests.support.quotas import limit_producer
from tests.support.reading import Tail

pytestmark = pytest.mark.slow

LETTERS, LETTER_BYTES, QUOTA, PATIENT_S = 4_000, 3_000, 500_000, 400.0


@pytest.mark.fault("a quota smaller than a transaction")
def test_letters_come_through_a_quota_that_is_used_up_long_before_a_transaction_is_whole(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, shards=2, retry_partitions=1, defaults=policies.DEFAULTS)
    (name,) = deployment.dead_letters
    limit_producer(deployment.bootstrap_servers, deployment.app_id, QUOTA)
    sender = Sender(deployment.bootstrap_servers)
    for n in range(LETTERS):
        sender.send(name, b"k%d" % n, os.urandom(LETTER_BYTES))
    sender.finish()
    worker = deployment.worker().start().await_ready()
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    said: dict[str, Any] = {}

    def is_told() -> bool:
        said.update(json.loads(worker.get("/health/ready")[1]))
        return said["ready"] and bool(said["slow"])

    await_that("health says why it is slow, and is ready", is_told)
    assert all("producer_byte_rate" in why for why in said["slow"].values())
    assert 0 < worker.metric("retry_transaction_bytes_max") < 2 * (16 << 20)
    assert said["reasons"]["slow_link"] == len(said["slow"])
    tail.await_seen(LETTERS, PATIENT_S)
    assert len(tail.records) == LETTERS
    tail.close()
    # It was no other worker's doing, and no time of a transaction ran out more often than it takes to halve what is in one.
    assert worker.log().count("letters are read again") < 20
    worker.terminate()
