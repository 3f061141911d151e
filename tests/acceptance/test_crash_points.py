"""kill -9 at every step of the protocol, each between two effects; the checker finds nothing."""

from __future__ import annotations

import signal
from threading import Thread

import pytest

from tests.acceptance.crashing_worker import POINTS
from tests.conftest import Deploy
from tests.support.checker import check
from tests.support.letters import Sender
from tests.support.load import send
from tests.support.process import await_that
from tests.support.reading import Tail

LETTERS = 2_000
LOAD_S = 3.0
DELAY_MS = 2_000


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_between_two_effects_loses_and_repeats_nothing(deploy: Deploy, point: str) -> None:
    deployment = deploy({"one": 1, "three": 3}, shards=2, defaults="{backoff: {kind: constant, delay: 2s}, jitter: full}")
    worker, sender = deployment.worker(), Sender(deployment.bootstrap_servers)
    load = Thread(target=send, args=(sender, deployment, LETTERS, LOAD_S, DELAY_MS))
    if point == "restore":
        # Something must be there to be restored, and nothing to restore it from but the changelog.
        worker.start().await_ready()
        load.start()
        await_that("entries wait", lambda: worker.metric("retry_entries_waiting") > LETTERS / 10)
        worker.kill()
        deployment.wipe(worker)
    else:
        load.start()
    worker.start("-m", "tests.acceptance.crashing_worker", CRASH_AT=f"{point}:{POINTS[point]}")
    assert worker.wait(30) == -signal.SIGKILL
    worker.start()
    load.join()
    sent = sender.finish()
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(LETTERS, 60.0)
    tail.close()
    worker.terminate()
    found = check(deployment, sent)
    assert found.wrong() == {}
    assert found.tables == deployment.shards
