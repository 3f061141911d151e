"""`retry worker --processes 2`: several workers under one, which share the shards and end with it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.conftest import Deploy
from tests.support.afterwards import nothing_is_wrong
from tests.support.letters import Sender
from tests.support.load import send
from tests.support.process import WorkerProcess, await_that

pytestmark = pytest.mark.check

TWO = ("-m", "retry", "worker", "--processes", "2")
LETTERS = 4_000
DELAY_MS = 5_000


def test_two_workers_under_one_share_the_work_and_come_back_when_one_is_killed(deploy: Deploy) -> None:
    deployment = deploy({"orders": 4}, shards=4)
    both = deployment.worker("both").start(*TWO).await_ready()
    await_that("the shards are shared out", lambda: shards_of(both) == [2, 2])
    wanted = ['retry_shards_owned{process="0"} 2.0', 'retry_shards_owned{process="1"} 2.0']
    # A worker that does not answer within two seconds is left out.
    await_that("metrics tell of both", lambda: list_owned(both) == wanted)
    sender, first = Sender(deployment.bootstrap_servers), workers_of(both)
    send(sender, deployment, LETTERS, 2.0, DELAY_MS)
    os.kill(first[0], signal.SIGKILL)
    await_that("another is in its place", lambda: len(workers_of(both)) == 2 and first[0] not in workers_of(both))
    send(sender, deployment, LETTERS, 2.0, DELAY_MS, first=LETTERS)
    await_that("both share again", lambda: shards_of(both) == [2, 2])
    nothing_is_wrong(deployment, sender)


def test_workers_end_with_a_supervisor_that_is_killed(deploy: Deploy) -> None:
    both = deploy({"orders": 1}).worker("both").start(*TWO).await_ready()
    workers = workers_of(both)
    assert len(workers) == 2
    both.kill()
    await_that("they end too", lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def test_workers_that_cannot_run_end_all_of_them_with_a_reason(deploy: Deploy) -> None:
    both = deploy({"orders": 1}).worker("both")
    both.start(*TWO, RETRY_POLICIES="/nowhere/policies.yaml")
    await_that("it ends", lambda: not both.running())
    assert both.exit_code() == 1
    assert "/nowhere/policies.yaml" in both.log()
    assert "ended within a minute" in both.log()


def workers_of(supervisor: WorkerProcess) -> list[int]:
    """The processes that it has started and that run."""
    return [int(pid) for pid in Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text().split()]


def list_owned(supervisor: WorkerProcess) -> list[str]:
    """List the lines of metrics about the shards of each worker."""
    return [line for line in supervisor.get("/metrics")[1].splitlines() if line.startswith("retry_shards_owned{")]


def shards_of(supervisor: WorkerProcess) -> list[int]:
    """How many shards each of them owns."""
    status, body = supervisor.get("/health/ready")
    told = json.loads(body)["processes"] if status else {}
    return [each.get("shards_owned", 0) for each in told.values()]
