"""A dead-letter topic is deleted and made again while its letters wait for a moment at which those of the new one are due."""

from __future__ import annotations

from collections import Counter

import pytest

from retry.clock import wall_ms
from tests.conftest import Deploy
from tests.support import topics
from tests.support.letters import Sender
from tests.support.process import await_that
from tests.support.reading import COMMITTED, Tail, read

pytestmark = pytest.mark.slow

LETTERS, TIMES, WAIT_MS = 40, 3, 60_000
POLICY = "{backoff: {kind: constant, delay: 1s, max_delay: 1h}, jitter: none}"


def test_letters_of_each_of_its_lives_come_back_though_offsets_and_due_times_are_the_same(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, shards=2, defaults=POLICY)
    (topic,), due_ms = deployment.dead_letters, wall_ms() + WAIT_MS
    worker = deployment.worker().start().await_ready()
    expected = Counter[bytes | None]()
    for life in range(TIMES):
        if life:
            topics.delete(deployment.admin, topic)
            topics.create(deployment.admin, topic, 1)
        sender = Sender(deployment.bootstrap_servers)
        for n in range(LETTERS):
            expected[value := b"%d of %d" % (n, life)] += 1
            sender.send(topic, None, value, [("retry-at-ms", b"%d" % due_ms)])
        sender.finish()
        taken = LETTERS * (life + 1)
        await_that("they are taken in", lambda taken=taken: worker.metric("retry_letters_consumed_total") == taken)
    assert wall_ms() < due_ms
    await_that("all of them wait", lambda: worker.metric("retry_entries_waiting") == LETTERS * TIMES)
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics(), header="retry-id")
    tail.await_seen(LETTERS * TIMES)
    tail.close()
    worker.terminate()
    back = read(deployment.bootstrap_servers, deployment.retry_topics(), COMMITTED)
    assert Counter(record.value for record in back) == expected
