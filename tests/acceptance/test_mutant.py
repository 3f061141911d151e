"""The checker checked: without the transaction the same crash loses letters, and the checker says so."""

from __future__ import annotations

import signal

import pytest

from tests.conftest import Deploy
from tests.support.checker import check
from tests.support.letters import Sender
from tests.support.load import send
from tests.support.process import await_that
from tests.support.reading import Tail

pytestmark = pytest.mark.check

LETTERS = 1_000
LOAD_S = 2.0
# Half of the letters ask for their own time, and may be due at once; offsets are committed before, see the mutant.
POLICY = "{backoff: {kind: constant, delay: 2s}, jitter: none}"
MUTANT = ("-m", "tests.acceptance.mutant_worker")


def test_the_checker_catches_a_worker_without_transactions(deploy: Deploy) -> None:
    deployment = deploy({"one": 1, "three": 3}, shards=2, defaults=POLICY)
    worker, sender = deployment.worker(), Sender(deployment.bootstrap_servers)
    worker.start(*MUTANT, CRASH_AT="sweep-after-write:1").await_ready()
    send(sender, deployment, LETTERS, LOAD_S, delay_ms=2_000)
    sent = sender.finish()
    assert worker.wait(120) == -signal.SIGKILL
    worker.start(*MUTANT).await_ready()
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    # Those that were under way at the crash never come: their deletes have arrived without them.
    tail.await_seen(LETTERS // 2)
    await_that("nothing waits any more", lambda: not tail.read() and worker.metric("retry_entries_waiting") == 0)
    tail.close()
    worker.terminate()
    found = check(deployment, sent)
    assert found.lost
    assert not found.duplicate
    assert any(each.startswith("lost") for each in found.verify)
