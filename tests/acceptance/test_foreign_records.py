"""Somebody else writes to the changelog: it is passed over or held, and told; it is never sent, and all others go."""

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
def test_a_foreign_record_stops_nothing_and_is_told(deploy: Deploy, kind: str) -> None:
    deployment = deploy({"orders": 2}, shards=2, defaults="{backoff: {kind: constant, delay: 100ms}, jitter: none}")
    worker, topic = deployment.worker().start().await_ready(), deployment.names.changelog
    (dead_letters,) = deployment.dead_letters
    key = entry_keys.build_key(wall_ms() - 1_000, entry_keys.build_key_stem(dead_letters, 0), 1_000_000)
    if kind == "unknown kind of key":
        key = b"\x7f" + key[1:]
    elif kind == "control":
        key = b"\x10pause/team/testers"
    stranger = Producer({"bootstrap.servers": deployment.bootstrap_servers})
    stranger.produce(topic, ENVELOPE.get(kind, b"garbage"), key, 0)
    assert stranger.flush(60) == 0
    sender = Sender(deployment.bootstrap_servers)
    for n in range(40):
        sender.send(dead_letters, b"key %d" % n, b"letter %d" % n)
    letters = len(sender.finish())
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(letters)

    def is_passed_over() -> bool:
        status, text = worker.get("/health/ready")
        found = orjson.loads(text or b"{}").get("unreadable", {}).get(topic, "")
        return status == 200 and found.startswith(f"1 passed over, the first: {topic}/0")

    await_that("it is told", is_passed_over)
    assert tail.quiet(1.0) == []
    assert worker.metric("retry_entries_waiting") == (kind in ENVELOPE), "what is no entry is held"
    tail.close()
