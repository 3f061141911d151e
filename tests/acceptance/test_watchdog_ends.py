"""A worker that stands still says so and ends; one whose broker is away says so and waits."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from retry.clock import Deadline
from retry.kafka.local_broker import LocalBroker
from tests.acceptance.stalling_worker import POINTS
from tests.conftest import Deploy
from tests.support.afterwards import nothing_is_wrong
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that

pytestmark = pytest.mark.check

STALLING = ("-m", "tests.acceptance.stalling_worker")
STALLED_S = 8
FROZEN_S = 3.0 * STALLED_S
DELAY_MS = 1_000
_PATIENCE_S = 180.0
POLICY = "{backoff: {kind: constant, delay: 1s}, jitter: full}"
# The point is passed once while the worker starts to work; the second time there is certainly something to do.
PASSAGES = {"fold": 6, "sweep": 2, "intake": 2}


def reasons(worker: WorkerProcess) -> dict[str, int]:
    """Why it is not ready, by the label of the metric."""
    status, body = worker.get("/health/ready")
    return json.loads(body)["reasons"] if status == 503 else {}


# Each takes longer than all its steps together: what stands still is borne for a while.
@pytest.mark.parametrize("point", [pytest.param(p, marks=() if p == "sweep" else pytest.mark.slow) for p in POINTS])
def test_a_worker_of_which_a_thread_hangs_is_not_ready_and_then_ends(deploy: Deploy, point: str) -> None:
    deployment = deploy({"one": 1}, shards=2, defaults=POLICY, environ={"RETRY_STALLED_S": str(STALLED_S)})
    worker, sender = deployment.worker(), Sender(deployment.bootstrap_servers)
    worker.start(*STALLING, STALL_AT=f"{point}:{PASSAGES[point]}").await_ready()
    stalled, patience = False, Deadline(_PATIENCE_S)
    # Until it ends: on a slow machine something else may have stood still before the point is reached.
    while worker.running():
        assert not patience.has_passed()
        stalled = stalled or bool(reasons(worker).get("stalled"))
        _send(sender, deployment, 100)
    assert stalled, "it is not ready before it ends"
    assert worker.exit_code() == 1
    log = worker.log()
    # A look comes every second, and counts as two where the machine was slow.
    [stood_s] = re.findall(r"has stood still for (\d+) s", log)
    assert STALLED_S <= int(stood_s) <= STALLED_S + 2
    assert POINTS[point] in log
    assert "stalling_worker.py" in log, "the threads' stacks tell where it hangs"

    worker.start().await_ready()
    nothing_is_wrong(deployment, sender)


@pytest.mark.slow
def test_a_frozen_broker_makes_workers_not_ready_and_ends_none(deploy: Deploy, tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "broker", heap_mb=512) as own:
        environ = {"RETRY_STALLED_S": str(STALLED_S)}
        deployment = deploy({"one": 1, "three": 3}, on=own, shards=2, defaults=POLICY, environ=environ)
        worker, sender = deployment.worker().start().await_ready(), Sender(own.bootstrap_servers)
        _send(sender, deployment, 1_000)
        os.kill(own.pid, signal.SIGSTOP)
        try:
            frozen = Deadline(FROZEN_S)
            await_that("it says that brokers do not answer", lambda: reasons(worker).get("brokers"))
            await_that("far more time is over than a stall may take", lambda: not worker.running() or frozen.has_passed(), 90)
            assert worker.running()
            assert reasons(worker).get("brokers")
            assert 'retry_blocked{reason="brokers"} 1.0' in worker.get("/metrics")[1]
        finally:
            os.kill(own.pid, signal.SIGCONT)
        worker.await_ready()
        _send(sender, deployment, 1_000)
        nothing_is_wrong(deployment, sender)


def _send(sender: Sender, deployment: Deployment, count: int) -> None:
    """Letters of which no two are equal, in half a second: equal ones would count as attempts of one."""
    topics, round_ = list(deployment.dead_letters), len(sender.sent)

    def one(n: int) -> None:
        value = b"letter %d of %d" % (n, round_)
        sender.send(topics[n % len(topics)], b"key-%d" % (n % 50), value, delays_ms=(0, DELAY_MS))

    sender.paced(count, 0.5, one)
    sender.finish()
