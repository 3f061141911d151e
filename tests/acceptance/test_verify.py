"""`retry verify` on a real deployment: all is zero through a crash and a pause, and what is forged is named."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Producer

from retry.kafka import topics
from retry.sources import headers as names
from tests.conftest import Deploy
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import COMMITTED, QUIET, Record, Tail, read

LETTERS = 300
KINDS = ("lost", "duplicate", "torn", "early", "phantom", "wrong_topic", "stuck")


def verified(deployment: Deployment, *options: str) -> dict[str, Any]:
    """What the command says; its exit code goes with it."""
    dirs = [option for worker in deployment.workers.values() for option in ("--data-dir", str(worker.data_dir))]
    done = deployment.command("verify", "--json", *dirs, *options)
    assert done.stdout, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    wrong = any(told[kind] for kind in KINDS) or bool(told["tables"]["differing"])
    assert done.returncode == int(wrong), told
    return told


def wrong(told: dict[str, Any]) -> dict[str, int]:
    """Only what is not zero."""
    return {kind: told[kind] for kind in KINDS if told[kind]} | ({"tables": told["tables"]} if told["tables"]["differing"] else {})


def fail_again(sender: Sender, records: list[Record], dead_letters: str) -> None:
    """What a consumer does that fails: every third retry goes back, headers and all."""
    for record in records:
        if record.header(names.ATTEMPT) == "1" and int(record.header(names.SOURCE).rsplit("/", 1)[1]) % 3 == 0:
            sender.send(dead_letters, record.key, record.value, record.headers)


def worked(deployment: Deployment) -> tuple[WorkerProcess, list[Record]]:
    """Letters, of which some fail again, through a kill -9 and a pause; the worker runs on."""
    [topic] = deployment.dead_letters
    worker, sender = deployment.worker().start().await_ready(), Sender(deployment.bootstrap_servers)
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    for n in range(LETTERS):
        sender.send(topic, b"key-%d" % (n % 50), b"letter %d" % n)
    sender.finish()
    tail.await_seen(LETTERS // 3, 30.0)
    worker.kill()
    fail_again(sender, tail.records, topic)
    sender.finish()
    worker.start().await_ready()
    tail.await_seen(len(sender.sent), 60.0)
    assert wrong(verified(deployment)) == {}
    tail.close()
    return worker, tail.records


def test_a_deployment_is_clean_while_it_runs_and_after(deploy: Deploy) -> None:
    deployment = deploy({"orders": 3}, shards=2, defaults="{backoff: {kind: constant, delay: 1s}, jitter: full}")
    worker, records = worked(deployment)
    assert deployment.command("pause", "--all").returncode == 0
    sender = Sender(deployment.bootstrap_servers)
    for n in range(50):
        sender.send(next(iter(deployment.dead_letters)), b"held %d" % n, b"held")
    sender.finish()
    await_that("they wait", lambda: worker.metric("retry_entries_waiting") == 50)
    running = verified(deployment)
    assert wrong(running) == {}
    assert running["letters"] == len(records) + 50
    assert (running["waiting"], running["tables"]["checked"]) == (50, 2)
    worker.terminate()
    assert {**verified(deployment), "undone": 0} == {**running, "undone": 0}
