"""A shard is taken over while a transaction of somebody else is open in its changelog partition.

Such a transaction holds back every read_committed reader: the deletes of the former owner lie behind it, committed and
unseen. Whoever restores only up to what it can see delivers everything a second time.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from retry.clock import wall_ms
from retry.delay_queue import entry_keys, envelopes
from retry.delay_queue.envelopes import Entry
from retry.kafka import topics
from tests.conftest import Deploy
from tests.support.checker import check
from tests.support.deployment import APPEND_TIME, Deployment
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import QUIET, Tail

pytestmark = pytest.mark.slow

LETTERS = 300
DELAY_MS = 1_000
# So long nothing may come back: many sweeps, and longer than any pause between two tries to open a shard.
QUIET_S = 3.0


@pytest.mark.fault("shard taken over behind a stranger's open transaction")
def test_nothing_is_delivered_twice_behind_a_transaction_that_stays_open(deploy: Deploy) -> None:
    deployment = deploy({"one": 1}, shards=1, defaults="{backoff: {kind: constant, delay: 1s}, jitter: none}")
    # Until it is made again, entries wait, however long that takes. A pause would not do: that it is over would be written
    # behind the open transaction, where nobody sees it.
    [retries] = deployment.retry_topics()
    deployment.admin.delete_topics([retries])[retries].result(60.0)
    await_that("the target is gone", lambda: not topics.describe(deployment.admin, [retries]))
    first, second = deployment.worker("first").start().await_ready(), deployment.worker("second")
    sender = Sender(deployment.bootstrap_servers)
    for n in range(LETTERS):
        sender.send(*deployment.dead_letters, b"key-%d" % n, b"letter %d" % n, delays_ms=(DELAY_MS, DELAY_MS))
    sent = sender.finish()
    await_that("all entries wait", lambda: first.metric("retry_entries_waiting") == LETTERS)
    stranger = _open_transaction(deployment)

    deployment.create({retries: (deployment.retry_partitions, APPEND_TIME)})
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(LETTERS)
    first.kill()
    second.start()
    await_that("the second worker has restored what it can see", lambda: count_restored(second) == LETTERS)
    assert tail.quiet(QUIET_S) == []
    assert not second.ready()
    assert second.metric("retry_restore_remaining_records") > 0

    stranger.abort_transaction(60.0)
    second.await_ready()
    await_that("the deletes are seen", lambda: second.metric("retry_entries_waiting") == 0)
    assert tail.quiet(QUIET_S) == []
    tail.close()
    second.terminate()
    assert check(deployment, sent).wrong() == {}


def count_restored(worker: WorkerProcess) -> float:
    return worker.metric("retry_entries_waiting")


def _open_transaction(deployment: Deployment) -> Producer:
    """Open a transaction as another intake would: one entry in the changelog, undecided for longer than the test takes."""
    stranger = Producer({
        "bootstrap.servers": deployment.bootstrap_servers,
        "transactional.id": f"{deployment.app_id}-intake-stranger",
        "transaction.timeout.ms": 600_000,
        "logger": QUIET,
    })
    stranger.init_transactions(60.0)
    stranger.begin_transaction()
    [dead_letters] = deployment.dead_letters
    never = Entry(deployment.retry_of(dead_letters), b"stranger", b"never committed", [], None, "testers")
    key = entry_keys.build_key(wall_ms(), entry_keys.build_key_stem(dead_letters, 0), 1_000_000)
    stranger.produce(deployment.names.changelog, envelopes.encode(never), key, 0)
    assert stranger.flush(60.0) == 0
    return stranger
