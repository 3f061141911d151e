"""kill -9 at every step of the protocol, before and after each of its effects; the checker finds nothing."""

from __future__ import annotations

import signal

import pytest

from retry.clock import Deadline
from tests.acceptance.crashing_worker import POINTS, STEPS
from tests.conftest import Deploy
from tests.support.afterwards import nothing_is_wrong
from tests.support.deployment import Deployment
from tests.support.faults import Runs
from tests.support.letters import Sender
from tests.support.load import send
from tests.support.process import WorkerProcess

pytestmark = pytest.mark.slow

CRASHING = ("-m", "tests.acceptance.crashing_worker")
DELAY_MS = 2_000
POLICY = "{backoff: {kind: constant, delay: 2s}, jitter: full}"
SENT_TOGETHER, SENT_WITHIN_S = 100, 0.5
# Where cores are starved a worker takes a quarter of this to start.
REACHED_S = 120.0
IN_TURN = (
    "intake-before-commit",
    "sweep-after-publish",
    "intake-after-commit",
    "sweep-before-commit",
    "fold-after-write",
    "sweep-after-commit",
    "restore",
    "open-after-bounds",
)


def test_crashes_one_after_another_lose_and_repeat_nothing(deploy: Deploy) -> None:
    deployment, sender = _deployment(deploy)
    for point in IN_TURN:
        _crash(deployment, sender, point, 1)
    _check(deployment, sender)


# A dozen starts of a worker, and as many ends: a minute in all.
@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=pytest.mark.fault(f"worker ends at each effect of {step}")) for step in STEPS]
)
def test_3_11_a_crash_around_each_effect_of_a_step_loses_and_repeats_nothing(deploy: Deploy, step: str, runs: Runs) -> None:
    deployment, sender = _deployment(deploy, ordered=step == "apply")
    if step in ("restore", "wipe"):
        # Something must be there to be restored.
        _crash(deployment, sender, "fold-after-write", 5)
    for point in STEPS[step]:
        _crash(deployment, sender, point, POINTS[point])
        runs.add()
    _check(deployment, sender)


def _deployment(deploy: Deploy, *, ordered: bool = False) -> tuple[Deployment, Sender]:
    keys = "ordered: true" if ordered else ""
    deployment = deploy({"one": 1, "three": 3}, shards=2, defaults=POLICY, topic_keys=keys)
    return deployment, Sender(deployment.bootstrap_servers)


def _crash(deployment: Deployment, sender: Sender, point: str, passages: int) -> None:
    """Letters arrive and come back until the worker is at the point."""
    worker = deployment.worker()
    if point == "restore":
        # Nothing to restore it from but the changelog.
        deployment.wipe(worker)
    elif point.startswith("wipe"):
        _make_unreadable(deployment, worker)
    worker.start(*CRASHING, CRASH_AT=f"{point}:{passages}")
    deadline = Deadline(REACHED_S)
    while worker.running():
        assert not deadline.has_passed(), f"{point} was not reached"
        send(sender, deployment, SENT_TOGETHER, SENT_WITHIN_S, DELAY_MS, first=len(sender.finish()))
    assert worker.exit_code() == -signal.SIGKILL


def _make_unreadable(deployment: Deployment, worker: WorkerProcess) -> None:
    """Make tables unreadable: what cannot be opened is wiped, and restored from the changelog."""
    tables = worker.data_dir / "tables"
    for shard in range(deployment.shards):
        path = tables / f"{deployment.names.changelog}-{shard}"
        path.mkdir(parents=True, exist_ok=True)
        (path / "CURRENT").write_bytes(b"nothing")


def _check(deployment: Deployment, sender: Sender) -> None:
    deployment.worker().start()
    assert nothing_is_wrong(deployment, sender).tables == deployment.shards
