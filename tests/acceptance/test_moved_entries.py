"""Letters that wait are moved under a new policy file by the running worker, and come back once each, kill -9 or not."""

from __future__ import annotations

import hashlib
import json
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.acceptance.test_crash_points import CRASHING
from tests.conftest import Deploy
from tests.support.checker import check
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import Tail

pytestmark = pytest.mark.check

LETTERS = 2_000
# So small that rescheduling takes forty batches at least, each with a commit of its own.
SMALL = {"RETRY_BATCH_RECORDS": "50", "RETRY_SWEEP_INTERVAL_MS": "250"}
# After so many it ends. At most 21 move what waits behind another, and nothing goes; then each shard moves and delivers in turn.
COMMITS = 30


def shorten(deployment: Deployment, delay: str = "2s") -> str:
    """Change the delay of the policy file; its SHA-256."""
    deployment.policy_file.write_text(deployment.policy_file.read_text().replace("1h", delay))
    return hashlib.sha256(deployment.policy_file.read_bytes()).hexdigest()


def health(worker: WorkerProcess) -> dict[str, dict[str, str]]:
    """Read what the worker says of itself; empty where it does not answer."""
    return json.loads(worker.get("/health/ready")[1] or "{}")


def uses(worker: WorkerProcess, digest: str) -> bool:
    return health(worker).get("policies", {}).get("sha256") == digest


@pytest.mark.slow
def test_letters_that_wait_an_hour_come_back_at_once_each_exactly_once_through_kill_9(deploy: Deploy) -> None:
    deployment = deploy(
        {"plain": 3, "keyed": 1}, shards=3, environ=SMALL, defaults="{backoff: {kind: constant, delay: 1h}, jitter: none}"
    )
    text = deployment.policy_file.read_text()
    keyed = list(deployment.dead_letters)[1]
    deployment.policy_file.write_text(text.replace(f"{{dead_letters: {keyed}", f"{{ordered: true, dead_letters: {keyed}"))
    worker, sender = deployment.worker(), Sender(deployment.bootstrap_servers)
    # Nothing is due for an hour, so no sweep commits anything before letters are moved.
    worker.start(*CRASHING, CRASH_AT=f"sweep-after-commit:{COMMITS}").await_ready()
    for n in range(LETTERS):
        sender.send(list(deployment.dead_letters)[n % 2], b"key-%d" % (n % 97), b"letter %d" % n)
    sent = sender.finish()
    await_that("all wait", lambda: worker.metric("retry_entries_waiting") == LETTERS)

    digest = shorten(deployment)
    await_that("the worker has read the file", lambda: uses(worker, digest))
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    rehearsed = deployment.command("reschedule", "--json")
    assert rehearsed.returncode == 0, rehearsed.stderr
    told = json.loads(rehearsed.stdout)
    assert (told["total"], told["left_alone"], told["policies"]) == ({"earlier": LETTERS}, 0, digest)
    assert {row["team"] for row in told["counts"]} == {"testers"}
    assert f"{LETTERS:,} earlier" in deployment.command("reschedule", "--dry-run").stderr
    assert tail.quiet(1.0) == []

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(deployment.command, "reschedule", "--yes", "--wait", "4m")
        assert worker.wait(180) == -signal.SIGKILL
        assert not asked.done()
        tail.await_seen(1)
        some = len(tail.seen)
        assert 0 < some < LETTERS
        worker.start()
        tail.await_seen(LETTERS)
        done = asked.result()
    assert done.returncode == 0, done.stderr
    assert "rescheduled in 3 shards" in done.stdout
    assert tail.quiet(1.0) == []
    await_that("nothing is to be moved", lambda: health(worker).get("reschedule") == {})
    tail.close()
    worker.terminate()
    assert check(deployment, sent).wrong() == {}
    by_key: dict[bytes | None, list[int]] = {}
    for record in tail.records:
        if record.topic == deployment.retry_of(keyed):
            by_key.setdefault(record.key, []).append(int((record.value or b"").split()[1]))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_a_worker_with_another_policy_file_waits_for_the_one_that_is_asked_for(deploy: Deploy) -> None:
    deployment = deploy({"one": 1}, shards=1, defaults="{backoff: {kind: constant, delay: 1h}, jitter: none}")
    worker, sender = deployment.worker().start().await_ready(), Sender(deployment.bootstrap_servers)
    sender.send(*deployment.dead_letters, b"key", b"value")
    sent = sender.finish()
    await_that("it waits", lambda: worker.metric("retry_entries_waiting") == 1)
    newer = deployment.folder / "newer.yaml"
    newer.write_text(deployment.policy_file.read_text().replace("1h", "2s"))
    asked = deployment.command("reschedule", "--yes", "--wait", "1s", RETRY_POLICIES=str(newer))
    assert asked.returncode == 1
    assert "not done yet in shards 0" in asked.stderr
    digest = hashlib.sha256(newer.read_bytes()).hexdigest()
    await_that("health says so", lambda: digest in health(worker).get("reschedule", {}).get("0", ""))
    await_that("it still waits", lambda: worker.metric("retry_entries_waiting") == 1)

    assert shorten(deployment) == digest
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(1)
    tail.close()
    await_that("it is done", lambda: health(worker).get("reschedule") == {})
    worker.terminate()
    assert check(deployment, sent).wrong() == {}


def test_what_cannot_be_rescheduled_is_said_in_a_line(deployment: Deployment) -> None:
    for arguments, environ, told in (
        (["--team", "tester"], {}, "did you mean testers?"),
        ([], {"RETRY_POLICIES": ""}, "RETRY_POLICIES: not set"),
        (["--yes", "--dry-run"], {}, "give --dry-run or --yes"),
    ):
        refused = deployment.command("reschedule", *arguments, **environ)
        assert refused.returncode != 0
        assert told in refused.stderr
    assert "nothing waits" in deployment.command("reschedule").stderr
