"""The broker dies as in a power cut, twice, while letters arrive and come back; the workers go on by themselves."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest

from retry.kafka.local_broker import LocalBroker
from tests.conftest import Deploy
from tests.support.checker import check
from tests.support.faults import Runs
from tests.support.letters import Sender
from tests.support.load import send
from tests.support.process import await_that
from tests.support.reading import Tail

pytestmark = pytest.mark.check

LETTERS = 5_000
LOAD_S = 20.0
DELAY_MS = 3_000
KILLS_AFTER = (LETTERS // 4, LETTERS // 2)


@pytest.mark.slow
@pytest.mark.fault("the only broker killed under load (SIGKILL)")
def test_a_broker_killed_under_load_costs_time_and_nothing_else(deploy: Deploy, tmp_path: Path, runs: Runs) -> None:
    with LocalBroker(tmp_path / "broker", heap_mb=512) as own:
        policy = "{backoff: {kind: constant, delay: 3s}, jitter: full}"
        deployment = deploy({"one": 1, "three": 3}, on=own, shards=4, defaults=policy)
        workers = [deployment.worker(name).start() for name in ("a", "b")]
        for worker in workers:
            worker.await_ready()
        sender = Sender(own.bootstrap_servers)
        load = Thread(target=send, args=(sender, deployment, LETTERS, LOAD_S, DELAY_MS))
        load.start()
        for letters in KILLS_AFTER:
            await_that(f"{letters} letters are acknowledged", lambda letters=letters: sender.acknowledged() >= letters)
            own.kill()
            runs.add()
            own.start()
        load.join()
        sent = sender.finish()
        assert len(sent) == LETTERS
        tail = Tail(own.bootstrap_servers, deployment.retry_topics())
        tail.await_seen(LETTERS, 180.0)
        tail.close()
        for worker in workers:
            worker.await_ready()
            worker.terminate()
        assert check(deployment, sent).wrong() == {}
