"""Two workers, three dead-letter topics, and everything that can happen to a process, while letters keep arriving."""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass
from threading import Thread

import pytest

from tests.conftest import Deploy
from tests.support.checker import check
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.load import send
from tests.support.process import WorkerProcess, let_pass
from tests.support.reading import Tail
from tests.support.sizes import only_in_faults

DELAY_MS = 5_000
# The session timeout is 6 s.
FROZEN_S = 9.0
SEED = 20_240_611


@dataclass(frozen=True)
class Plan:
    """How many letters, in how many seconds, and which of the kills take all that a worker knows or come before a freeze."""

    letters: int
    load_s: float
    kills: int
    wipes: tuple[int, ...]
    freeze_after: int

    def __str__(self) -> str:
        return f"{self.letters}-letters"


SMALL = Plan(5_000, 12.0, kills=3, wipes=(1,), freeze_after=2)
LARGE = Plan(20_000, 45.0, kills=10, wipes=(2, 5, 8), freeze_after=6)


@pytest.mark.parametrize("plan", [SMALL, *only_in_faults(LARGE)], ids=str)
def test_3_5_3_6_every_letter_comes_back_exactly_once_through_kills_wipes_and_a_freeze(deploy: Deploy, plan: Plan) -> None:
    deployment = deploy({"one": 1, "three": 3, "six": 6}, shards=6)
    workers = [deployment.worker(name).start() for name in ("a", "b")]
    for worker in workers:
        worker.await_ready()
    sender = Sender(deployment.bootstrap_servers)
    load = Thread(target=send, args=(sender, deployment, plan.letters, plan.load_s, DELAY_MS))
    load.start()
    afflict(deployment, plan, random.Random(SEED))
    load.join()
    sent = sender.finish()
    assert len(sent) == plan.letters
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(plan.letters)
    tail.close()
    for worker in workers:
        # One that was started last may not listen to signals yet.
        worker.await_ready().terminate()
    found = check(deployment, sent)
    assert found.wrong() == {}
    assert found.tables >= deployment.shards


def afflict(deployment: Deployment, plan: Plan, draw: random.Random) -> None:
    """Kill random workers, some of them with all they know, and freeze one past its session."""
    workers = list(deployment.workers.values())
    for kill in range(plan.kills):
        let_pass(draw.uniform(1.5, 4.5))
        victim = draw.choice(workers)
        assert victim.running(), f"{victim.name} ended by itself:\n{victim.tail()}"
        victim.kill()
        if kill in plan.wipes:
            deployment.wipe(victim)
        let_pass(draw.uniform(0.0, 1.0))
        victim.start()
        if kill == plan.freeze_after:
            _freeze(draw.choice(workers).await_ready())


def _freeze(victim: WorkerProcess) -> None:
    victim.signal(signal.SIGSTOP)
    let_pass(FROZEN_S)
    victim.signal(signal.SIGCONT)
