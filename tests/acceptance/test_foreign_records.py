"""Somebody else writes to the changelog: the shard stops, says so, and sends nothing; the others go on."""

from __future__ import annotations

import orjson
import pytest
from confluent_kafka import Producer

from retry.clock import wall_ms
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry
from tests.conftest import Deploy
from tests.support.deployment import await_that
from tests.support.letters import Sender
from tests.support.reading import Tail

pytestmark = pytest.mark.check

GOOD = envelopes.encode(Entry("nowhere", b"k", b"v", [], None, "testers"))
ENVELOPE = {
    "truncated": GOOD[:-3],
    "no envelope": b"garbage",
}


@pytest.mark.parametrize("kind", [*ENVELOPE, "unknown kind of key", "control"])
def test_a_foreign_record_stops_its_shard_and_no_other(deploy: Deploy, kind: str) -> None:
    deployment = deploy({"orders": 2}, shards=2, defaults="{backoff: {kind: constant, delay: 100ms}, jitter: none}")
    worker = deployment.worker().start().await_ready()
    (topic,) = deployment.dead_letters
    key = entry_keys.key(wall_ms() - 1_000, entry_keys.key_stem(topic, 0), 1_000_000)
    if kind == "unknown kind of key":
        key = b"\x7f" + key[1:]
    elif kind == "control":
        key = b"\x10pause/team/testers"
    stranger = Producer({"bootstrap.servers": deployment.bootstrap_servers})
    stranger.produce(deployment.names.changelog, ENVELOPE.get(kind, b"garbage"), key, 0)
    assert stranger.flush(60) == 0
    sender = Sender(deployment.bootstrap_servers)
    for n in range(40):
        sender.send(topic, b"key %d" % n, b"letter %d" % n)
    letters = len(sender.finish())

    def stopped() -> bool:
        status, text = worker.get("/health/ready")
        shards = orjson.loads(text or b"{}").get("shards", {})
        return (status, shards.get("1")) == (503, "ready") and shards.get("0", "").startswith("halted: ")

    await_that("one shard has stopped", stopped)
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    await_that("the other shard's letters come back", lambda: tail.read())
    tail.quiet(1.0)
    assert 0 < len(tail.seen) < letters
    assert len(tail.records) == len(tail.seen)
    assert worker.running()
    tail.close()
