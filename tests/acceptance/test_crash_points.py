"""kill -9 at every step of the protocol, each between two effects; the checker finds nothing."""

from __future__ import annotations

import signal

import pytest

from tests.acceptance.crashing_worker import POINTS
from tests.conftest import Deploy
from tests.support.checker import check
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.load import send
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import Tail

CRASHING = ("-m", "tests.acceptance.crashing_worker")
DELAY_MS = 2_000
POLICY = "{backoff: {kind: constant, delay: 2s}, jitter: full}"
IN_TURN = (
    "intake-before-commit",
    "sweep-after-publish",
    "intake-after-commit",
    "sweep-before-commit",
    "fold-after-write",
    "sweep-after-commit",
    "restore",
    "open-after-fence",
)


def test_crashes_one_after_another_lose_and_repeat_nothing(deploy: Deploy) -> None:
    each = 400
    deployment, sender = _deployment(deploy)
    worker = deployment.worker()
    for point in IN_TURN:
        if point == "restore":
            deployment.wipe(worker)
        worker.start(*CRASHING, CRASH_AT=f"{point}:1")
        send(sender, deployment, each, 1.0, DELAY_MS)
        assert worker.wait(30) == -signal.SIGKILL
    worker.start()
    _check(deployment, worker, sender, each * len(IN_TURN))


# Two starts of a worker for each of a dozen points: minutes.
@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_between_two_effects_loses_and_repeats_nothing(deploy: Deploy, point: str) -> None:
    letters = 2_000
    deployment, sender = _deployment(deploy)
    worker = deployment.worker()
    if point == "restore":
        # Something must be there to be restored, and nothing to restore it from but the changelog.
        worker.start().await_ready()
        send(sender, deployment, letters // 2, 1.0, DELAY_MS)
        await_that("entries wait", lambda: worker.metric("retry_entries_waiting") > letters / 10)
        worker.kill()
        deployment.wipe(worker)
    worker.start(*CRASHING, CRASH_AT=f"{point}:{POINTS[point]}")
    send(sender, deployment, letters - len(sender.finish()), 3.0, DELAY_MS)
    assert worker.wait(30) == -signal.SIGKILL
    worker.start()
    _check(deployment, worker, sender, letters)


def _deployment(deploy: Deploy) -> tuple[Deployment, Sender]:
    deployment = deploy({"one": 1, "three": 3}, shards=2, defaults=POLICY)
    return deployment, Sender(deployment.bootstrap_servers)


def _check(deployment: Deployment, worker: WorkerProcess, sender: Sender, letters: int) -> None:
    sent = sender.finish()
    assert len(sent) == letters
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(letters, 60.0)
    tail.close()
    worker.terminate()
    found = check(deployment, sent)
    assert found.wrong() == {}
    assert found.tables == deployment.shards
