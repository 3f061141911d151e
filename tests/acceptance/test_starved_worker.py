"""A worker that has a tenth of a core, and far more partitions to read than it has turns for."""

from __future__ import annotations

import pytest

from tests.conftest import Deploy
from tests.support.afterwards import nothing_is_wrong
from tests.support.faults import Runs
from tests.support.letters import Sender
from tests.support.starved_core import starved_core

pytestmark = [pytest.mark.slow, pytest.mark.alone]

PARTITIONS, LETTERS_EACH, DELAY_MS = 300, 300, 1_000
# A tenth of a core takes five times as long for all of them, and no partition may be at work for that long.
STALLED_S, BUSY = 8, 9
PATIENCE_S = 1_800.0


@pytest.mark.fault("a tenth of a core for a worker that reads three hundred partitions")
def test_partitions_that_wait_for_their_turn_are_not_taken_for_stuck(deploy: Deploy, runs: Runs) -> None:
    environ = {"RETRY_STALLED_S": str(STALLED_S)}
    policy = f"{{backoff: {{kind: constant, delay: {DELAY_MS}ms}}, jitter: none}}"
    deployment = deploy({"wide": PARTITIONS}, shards=4, defaults=policy, environ=environ)
    sender, (topic,) = Sender(deployment.bootstrap_servers), deployment.dead_letters
    for n in range(PARTITIONS * LETTERS_EACH):
        sender.send(topic, None, b"%d" % n, partition=n % PARTITIONS, delays_ms=(DELAY_MS, DELAY_MS))
    sender.finish()
    worker = deployment.worker()
    with starved_core(BUSY) as pinned:
        with pinned():
            worker.start()
        runs.add(1)
        nothing_is_wrong(deployment, sender, PATIENCE_S, PATIENCE_S)
    assert "has stood still" not in worker.log()
