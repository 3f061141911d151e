"""Two workers, three dead-letter topics, and everything that can happen to a process, while letters keep arriving."""

from __future__ import annotations

import random
import signal
from threading import Thread

from tests.conftest import Deploy
from tests.support.checker import check
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.load import send
from tests.support.process import WorkerProcess, let_pass
from tests.support.reading import Tail

LETTERS = 20_000
LOAD_S = 45.0
DELAY_MS = 5_000
KILLS = 10
WIPES = {2, 5, 8}
FREEZE_AFTER = 6
# The session timeout is 6 s.
FROZEN_S = 9.0
SEED = 20_240_611


def test_every_letter_comes_back_exactly_once_through_kills_wipes_and_a_freeze(deploy: Deploy) -> None:
    deployment = deploy({"one": 1, "three": 3, "six": 6}, shards=6)
    workers = [deployment.worker(name).start() for name in ("a", "b")]
    for worker in workers:
        worker.await_ready()
    sender = Sender(deployment.bootstrap_servers)
    load = Thread(target=send, args=(sender, deployment, LETTERS, LOAD_S, DELAY_MS))
    load.start()
    afflict(deployment, random.Random(SEED))
    load.join()
    sent = sender.finish()
    assert len(sent) == LETTERS
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(LETTERS, 60.0)
    tail.close()
    for worker in workers:
        worker.terminate()
    found = check(deployment, sent)
    assert found.wrong() == {}
    assert found.tables >= deployment.shards


def afflict(deployment: Deployment, draw: random.Random) -> None:
    """Kill random workers, three of them with all they know, and freeze one past its session."""
    workers = list(deployment.workers.values())
    for kill in range(KILLS):
        let_pass(draw.uniform(1.5, 4.5))
        victim = draw.choice(workers)
        assert victim.running(), f"{victim.name} ended by itself:\n{victim.tail()}"
        victim.kill()
        if kill in WIPES:
            deployment.wipe(victim)
        let_pass(draw.uniform(0.0, 1.0))
        victim.start()
        if kill == FREEZE_AFTER:
            _freeze(draw.choice(workers).await_ready())


def _freeze(victim: WorkerProcess) -> None:
    victim.signal(signal.SIGSTOP)
    let_pass(FROZEN_S)
    victim.signal(signal.SIGCONT)
