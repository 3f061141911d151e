"""The checker checked: without the transaction the same crash delivers twice, and the checker says so."""

from __future__ import annotations

import json
import signal

from tests.acceptance.crashing_worker import POINTS
from tests.conftest import Deploy
from tests.support.checker import check
from tests.support.letters import Sender
from tests.support.load import send
from tests.support.reading import Tail

LETTERS = 1_000
LOAD_S = 2.0
POLICY = "{backoff: {kind: constant, delay: 2s}, jitter: full}"
MUTANT = ("-m", "tests.acceptance.mutant_worker")


def test_the_checker_catches_a_worker_without_transactions(deploy: Deploy) -> None:
    deployment = deploy({"one": 1, "three": 3}, shards=2, defaults=POLICY)
    worker, sender = deployment.worker(), Sender(deployment.bootstrap_servers)
    point = "sweep-after-publish"
    worker.start(*MUTANT, CRASH_AT=f"{point}:{POINTS[point]}").await_ready()
    send(sender, deployment, LETTERS, LOAD_S, delay_ms=2_000)
    sent = sender.finish()
    assert worker.wait(30) == -signal.SIGKILL
    worker.start(*MUTANT)
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(LETTERS, 60.0)
    tail.close()
    worker.terminate()
    found = check(deployment, sent)
    assert found.duplicate
    assert not found.lost
    told = deployment.command("verify", "--json")
    assert told.returncode == 1
    assert json.loads(told.stdout)["duplicate"] >= len(found.duplicate)
