"""A hundred thousand parked letters are returned in steps while workers are killed, and two operators ask for the same."""

from __future__ import annotations

import json
import signal
import uuid
from collections import Counter
from itertools import cycle
from typing import Any

import pytest

from retry.clock import Deadline
from tests.acceptance.test_crash_points import CRASHING
from tests.acceptance.test_ramped_letters import Failing, show_action, sums
from tests.conftest import Deploy
from tests.support.checker import verify_deployment
from tests.support.deployment import Deployment
from tests.support.faults import Runs
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that, let_pass
from tests.support.reading import COMMITTED, Tail, read

pytestmark = pytest.mark.slow

LETTERS = 100_000
KILLS = 20
NAMES = ("a", "b", "c")
# Of these each is killed at its fifth passage: in the midst of an action, or of sweeps of what it has put.
POINTS = (
    "sweep-after-begin", "sweep-after-write", "sweep-after-publish", "sweep-before-commit", "sweep-during-commit",
    "sweep-after-commit", "fold-before-write", "fold-after-write",
)  # fmt: skip
PASSAGES = 5
# A transaction has few letters, so that the action lasts for as long as workers are killed.
SMALL = {"RETRY_BATCH_BYTES": "65536"}
POLICY = "{backoff: {kind: constant, delay: 1s}, jitter: none, max_attempts: 2}"
# A step is judged once the consumer group that the policy file names has passed it, and so long after.
RAMP = ("--ramp", "--settle", "500ms", "--yes")
REACHED_S, ENDED_S = 180.0, 600.0


@pytest.mark.fault("workers killed while 100,000 parked letters are returned in steps, asked for twice")
def test_parked_letters_are_returned_once_whoever_is_killed_meanwhile(deploy: Deploy, runs: Runs) -> None:
    group = f"billing-{uuid.uuid4().hex[:8]}"
    deployment = deploy({"orders": 4}, shards=4, defaults=POLICY, environ=SMALL, topic_keys=f"group: {group}")
    _park(deployment)
    consumer = Failing(deployment, group, keeps_headers=True)
    consumer.mended.set()
    for by in ("ann", "bob"):
        asked = deployment.command("act", "retry", "state:parked", *RAMP, "--expect", str(LETTERS), "--wait", "1ms", "--by", by)
        assert asked.returncode == 1, asked.stderr
    _kill(deployment, runs)
    await_that("both are done", lambda: [each["status"] for each in _actions(deployment)] == ["done"] * 2, ENDED_S)
    actions = _actions(deployment)
    assert sum(each["done"] for each in actions) == LETTERS
    assert sum((Counter(each["refused"]) for each in actions), Counter()) == {"returned": LETTERS}
    for each in actions:
        # What one of them finds returned was put by the other, and nobody has to pass it.
        told = show_action(deployment, each["action"])
        assert (told["ramp"]["passed_in_silence"], sums(told)["failed"], sums(told)["passed"]) == ([], 0, each["done"])
    await_that("nothing waits", lambda: count_waiting(deployment) == 0)
    consumer.close()
    records = read(deployment.bootstrap_servers, deployment.retry_topics(), COMMITTED)
    came = Counter(record.header("retry-source") for record in records)
    assert (len(came), max(came.values())) == (LETTERS, 1)
    for name in NAMES:
        deployment.worker(name).terminate()
    assert verify_deployment(deployment)["findings"] == {}


def _park(deployment: Deployment) -> None:
    """All letters, given up."""
    (topic,), sender = deployment.dead_letters, Sender(deployment.bootstrap_servers)
    for n in range(LETTERS):
        sender.send(topic, b"%d" % n, b'{"n": %d}' % n, [("retry-attempt", b"2")])
    sender.finish()
    worker = deployment.worker(NAMES[0]).start().await_ready()
    parked = Tail(deployment.bootstrap_servers, [deployment.parked])
    parked.await_seen(LETTERS, 300.0)
    parked.close()
    worker.terminate()


def _kill(deployment: Deployment, runs: Runs) -> None:
    """One worker after another comes to a point, while the others go on; in the middle one leaves as it should."""
    points, names = cycle(POINTS), cycle(NAMES)
    for name in NAMES[1:]:
        deployment.worker(name).start().await_ready()
    for n in range(KILLS):
        worker = deployment.worker(next(names))
        if worker.running():
            worker.terminate()
        worker.start(*CRASHING, CRASH_AT=f"{next(points)}:{PASSAGES}")
        _await_end(worker, deployment, n)
        worker.start()
        runs.add()


def _await_end(worker: WorkerProcess, deployment: Deployment, killed: int) -> None:
    deadline = Deadline(REACHED_S)
    while worker.running():
        if deadline.has_passed():
            raise AssertionError(f"{killed} were killed, and then a point was not reached: {_actions(deployment)}")
        let_pass(0.05)
    assert worker.exit_code() == -signal.SIGKILL


def _actions(deployment: Deployment) -> list[dict[str, Any]]:
    return [json.loads(line) for line in deployment.command("actions", "--json").stdout.splitlines()]


def count_waiting(deployment: Deployment) -> float:
    return sum(deployment.worker(name).metric("retry_entries_waiting") for name in NAMES)
