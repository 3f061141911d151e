"""Blocks that rate limits, actions and refusals take apart while workers are killed: no letter is lost, and none comes twice."""

from __future__ import annotations

import json
import signal
from collections import Counter
from itertools import count, cycle

import pytest

from retry.clock import Deadline, wall_ms
from retry.kafka import consumer_groups
from tests.acceptance.test_actions_killed import NAMES
from tests.acceptance.test_crash_points import CRASHING
from tests.conftest import Deploy
from tests.support import policies, topics
from tests.support.blocks import count_exploded
from tests.support.checker import verify_deployment
from tests.support.deployment import Deployment
from tests.support.faults import Runs
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import COMMITTED, Tail, read

pytestmark = pytest.mark.slow

KILLS, BURSTS, TOGETHER = 12, 10, 128
# Of the 2,560 letters of a round; the rest come once the limit is gone.
WITHOUT_LIMIT = 500
BLOCKS = 300
# Long enough for a round to be taken in before a limit comes, so that its letters wait in blocks.
DEFAULTS = "{backoff: {kind: constant, delay: 8s}, jitter: none, max_attempts: 3}"
# Fewer than a block has between two looks at the clock.
LIMIT_PER_S = 200
POINTS = (
    "sweep-after-begin", "sweep-after-write", "sweep-after-publish", "sweep-before-commit", "sweep-during-commit",
    "sweep-after-commit", "fold-before-write", "fold-after-write",
)  # fmt: skip
PASSAGES, USED_S, CAME_S, ENDS_S = 4, 180.0, 600.0, 900.0


@pytest.mark.fault("workers killed while half of all blocks are exploded by limits, actions and refusals")
def test_letters_of_exploded_blocks_come_once_whoever_is_killed_meanwhile(deploy: Deploy, runs: Runs) -> None:
    deployment = deploy({"wide": 2, "keyed": 2}, shards=4)
    wide, keyed = deployment.dead_letters
    topics.configure(deployment.admin, deployment.retry_of(keyed), cleanup_policy="compact")
    sender, numbers, points = Sender(deployment.bootstrap_servers), count(), cycle(POINTS)
    _limit(deployment, None)
    for name in NAMES:
        deployment.worker(name).start().await_ready()
    tail = Tail(deployment.bootstrap_servers, [*deployment.retry_topics(), deployment.parked])
    for _, name in zip(range(KILLS), cycle(NAMES), strict=False):
        worker, deadline = deployment.worker(name), Deadline(ENDS_S)
        worker.terminate()
        worker.start(*CRASHING, CRASH_AT=f"{next(points)}:{PASSAGES}")
        while worker.running():
            assert not deadline.has_passed(), f"{runs.count} were killed, and then a point was not reached"
            _send(sender, (wide, keyed), numbers)
            await_that("all are taken in", lambda: _count_taken_in(deployment) == len(sender.sent), CAME_S)
            _limit(deployment, LIMIT_PER_S)
            asked = deployment.command("act", "retry", "state:waiting key:hot", "--yes", "--wait", "1ms", "--by", "ann")
            # 1: some were sent meanwhile; 3: all were.
            assert asked.returncode in (0, 1, 3), asked.stderr
            # The limit must hold while they come back, not only until they are due.
            tail.await_seen(len(sender.sent) - WITHOUT_LIMIT, CAME_S)
            _limit(deployment, None)
        assert worker.exit_code() == -signal.SIGKILL
        worker.start().await_ready(USED_S)
        runs.add()
    tail.await_seen(len(sender.finish()), CAME_S)
    tail.close()
    for name in NAMES:
        deployment.worker(name).terminate()
    came = Counter(record.header("retry-source") for record in tail.records)
    assert (came.keys(), max(came.values())) == (sender.sent.keys(), 1)
    assert verify_deployment(deployment)["findings"] == {}
    put, exploded = count_exploded(read(deployment.bootstrap_servers, [deployment.names.changelog], COMMITTED))
    assert put >= BLOCKS, put
    assert exploded * 2 >= put, (exploded, put)


def _limit(deployment: Deployment, rate: int | None) -> None:
    """Let so many letters a second go to each target, and await that workers which run do so."""
    targets = {deployment.retry_of(topic): {"rate": f"{rate}/s"} for topic in deployment.dead_letters if rate}
    sections = [policies.topic(deployment, topic) for topic in deployment.dead_letters]
    text = policies.text({"testers": policies.team(*sections)}, DEFAULTS, json.dumps(targets))
    deployment.policy_file.write_text(text)
    before_ms = wall_ms() - 1_000
    for worker in deployment.workers.values():
        await_that(f"{worker.name} uses it", lambda worker=worker: not worker.running() or _used_ms(worker) >= before_ms, USED_S)


def _used_ms(worker: WorkerProcess) -> int:
    about = json.loads(worker.get("/health/ready")[1] or "{}")
    return int(about.get("policies", {}).get("used_since_ms", 0))


def _send(sender: Sender, names: tuple[str, str], numbers: count[int]) -> None:
    """Letters that fail together; some have one key, and some have none, which one target refuses."""
    for _ in range(BURSTS):
        stamp_ms = wall_ms()
        for topic in names:
            for n in range(TOGETHER):
                number = next(numbers)
                key = (b"hot" if topic == names[0] else None) if n % 40 == 0 else b"%d" % number
                sender.send(topic, key, b"letter %d" % number, timestamp_ms=stamp_ms)
    sender.finish()


def _count_taken_in(deployment: Deployment) -> int:
    return sum(consumer_groups.read_positions(deployment.admin, deployment.names.intake_group).values())
