"""Workers of the commit before and of this one share the work: one after another is replaced, and replaced again."""

from __future__ import annotations

import subprocess
import sys
from itertools import count, takewhile
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.conftest import Deploy
from tests.support.checker import check
from tests.support.letters import Sender
from tests.support.load import send
from tests.support.process import ROOT, WorkerProcess, await_that
from tests.support.reading import Tail
from tests.support.revisions import previous

pytestmark = pytest.mark.check

PART, PART_S = 400, 2.0
DELAY_MS = 3_000
# So many are delivered by each of two workers side by side before the next step.
TOGETHER = 300


@pytest.mark.slow
def test_workers_are_upgraded_and_rolled_back_under_load_and_each_letter_comes_back_once(deploy: Deploy, tmp_path: Path) -> None:
    old = previous(tmp_path / "previous")
    assert (imported(old), imported(ROOT)) == (old, ROOT)
    deployment = deploy({"one": 1, "six": 6}, shards=6, defaults="{backoff: {kind: constant, delay: 3s}, jitter: full}")
    a, b = deployment.worker("a"), deployment.worker("b")
    for worker in (a, b):
        start(worker, old)
    sender = Sender(deployment.bootstrap_servers)
    enough = Event()

    def keep_sending() -> None:
        for part in takewhile(lambda _: not enough.is_set(), count()):
            send(sender, deployment, PART, PART_S, DELAY_MS, first=part * PART)

    load = Thread(target=keep_sending)
    load.start()
    try:
        both_deliver(a, b)
        # Up: one is killed, the other told to end. Down: the other way round. And up again.
        for worker, root, killed in ((a, ROOT, True), (b, ROOT, False), (a, old, False), (b, old, True), (a, ROOT, True)):
            worker.kill() if killed else worker.terminate()
            start(worker, root)
            both_deliver(a, b)
    finally:
        enough.set()
        load.join()
    sent = sender.finish()
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(len(sent))
    tail.close()
    assert len(sent) >= 7 * TOGETHER
    assert (a.root, b.root) == (ROOT, old)
    for worker in (a, b):
        worker.terminate()
    found = check(deployment, sent)
    assert found.wrong() == {}
    assert found.tables >= deployment.shards


def start(worker: WorkerProcess, root: Path) -> None:
    worker.root = root
    worker.start().await_ready()


def both_deliver(*workers: WorkerProcess) -> None:
    """Each owns shards, and has delivered something of them since it was started."""
    for worker in workers:
        await_that(f"{worker.name} delivers", lambda worker=worker: worker.metric("retry_entries_sent_total") >= TOGETHER)  # type: ignore[misc]


def imported(root: Path) -> Path:
    """The tree that a process started in `root` takes its code from."""
    asked = [sys.executable, "-c", "import retry; print(retry.__file__)"]
    done = subprocess.run(asked, cwd=root, capture_output=True, text=True, check=True, timeout=60)
    return Path(done.stdout.strip()).parents[1]
