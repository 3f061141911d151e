"""Letters that wait are acted on from the command line by a running worker, and end once each, whatever ends meanwhile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Deploy
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import COMMITTED, Record, Tail, read

pytestmark = pytest.mark.check

WAITING = "{backoff: {kind: constant, delay: 1h}, jitter: none}"


def waiting(deploy: Deploy, letters: int, shards: int = 2, **options: Any) -> tuple[Deployment, WorkerProcess]:
    """A deployment in which so many letters wait for an hour."""
    deployment = deploy({"orders": 2}, shards=shards, defaults=WAITING, **options)
    (topic,), sender = deployment.dead_letters, Sender(deployment.bootstrap_servers)
    for n in range(letters):
        sender.send(topic, b"%d" % n, b'{"n": %d, "card": "4711"}' % n, [("tenant", b"even" if n % 2 == 0 else b"odd")])
    sender.finish()
    worker = deployment.worker().start().await_ready()
    await_that("all wait", lambda: worker.metric("retry_entries_waiting") == letters)
    return deployment, worker


def acted(deployment: Deployment, *arguments: str, code: int = 0) -> dict[str, Any]:
    """What `retry act … --yes` says of its end."""
    done = deployment.command("act", *arguments, "--yes", "--json", "--wait", "2m")
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)


def came(deployment: Deployment, *topics: str) -> list[Record]:
    return read(deployment.bootstrap_servers, list(topics or deployment.retry_topics()), COMMITTED)


def numbers(records: list[Record]) -> list[int]:
    return sorted(json.loads(record.value or b"")["n"] for record in records)


def test_letters_are_shown_then_retried_at_once(deploy: Deploy) -> None:
    deployment, worker = waiting(deploy, 40)
    shown = deployment.command("act", "retry", "header.tenant:even")
    assert shown.returncode == 0, shown.stderr
    assert "20 letters to retry" in shown.stdout
    assert "by team: testers 20" in shown.stdout
    assert came(deployment) == []
    done = acted(deployment, "retry", "header.tenant:even", "--expect", "20", "--reason", "mended")
    assert (done["done"], done["gone"], done["refused"]) == (20, 0, {})
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(20)
    assert tail.quiet(1.0) == []
    tail.close()
    assert numbers(came(deployment)) == list(range(0, 40, 2))
    assert {record.header("retry-action") for record in came(deployment)} == {done["action"]}
    assert worker.metric("retry_entries_waiting") == 20
    worker.terminate()
