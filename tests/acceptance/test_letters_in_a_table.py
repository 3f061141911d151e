"""Retry through a table, as the third seed asks for it: what only a real worker and a real broker show."""

from __future__ import annotations

import json

import pytest

from tests.conftest import Deploy
from tests.support.letters import Sender
from tests.support.process import await_that
from tests.support.reading import COMMITTED, Tail, read

pytestmark = pytest.mark.check

COUNTED = "{backoff: {kind: constant, delay: 100ms}, jitter: none, max_attempts: 3, aliases: {attempts: $.retryAttempt}}"
LATER = "{backoff: {kind: constant, delay: 1h}, jitter: none}"
LETTERS = 40


def test_3_1_3_8_a_consumer_that_counts_in_the_body_gets_a_letter_so_often_and_then_it_parks(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, defaults=COUNTED)
    [dead_letters], sender = deployment.dead_letters, Sender(deployment.bootstrap_servers)
    worker = deployment.worker().start()
    tail = Tail(deployment.bootstrap_servers, [*deployment.retry_topics(), deployment.parked])
    for failures in (1, 2, 3, 4):
        # It drops every header, and its counter makes another body of each attempt: nothing else tells what it is.
        body = json.dumps({"order": 4711, "retryAttempt": failures}).encode()
        sender.send(dead_letters, b"key", body, [])
        tail.await_seen(failures)
        assert tail.records[-1].value == body
    *retried, parked = tail.records
    tail.close()
    worker.terminate()
    assert [(each.topic, each.header("retry-attempt")) for each in retried] == [
        (deployment.retry_of(dead_letters), str(attempt)) for attempt in (1, 2, 3)
    ]
    assert (parked.topic, parked.header("retry-parked-reason")) == (deployment.parked, "max_attempts")
    # Deletes go to the service's own changelog: nobody else who reads the dead-letter topic sees any.
    assert len(read(deployment.bootstrap_servers, [dead_letters], COMMITTED)) == len(tail.records)


def test_3_9_what_waits_in_every_partition_is_told_in_one_place_and_no_worker_needs_to_run(deploy: Deploy) -> None:
    deployment = deploy({"orders": 2}, shards=4, defaults=LATER)
    [dead_letters], sender = deployment.dead_letters, Sender(deployment.bootstrap_servers)
    workers = [deployment.worker(name).start() for name in ("a", "b")]
    for n in range(LETTERS):
        sender.send(dead_letters, b"%d" % n, b"value", [])

    def list_waiting() -> set[str]:
        listed = deployment.command("letters", "state:waiting", "--json", "--limit", "1000").stdout.splitlines()
        return {json.loads(line)["name"].partition("/")[2] for line in listed}

    await_that("all wait", lambda: len(list_waiting()) == LETTERS)
    for worker in workers:
        worker.kill()
    letters = read(deployment.bootstrap_servers, [dead_letters], COMMITTED)
    assert list_waiting() == {f"{each.topic}/{each.partition}/{each.offset}" for each in letters}
