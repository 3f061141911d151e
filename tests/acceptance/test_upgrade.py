"""Workers of this version and of a next one share the work: one after another is replaced, and replaced again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from itertools import count, takewhile
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.conftest import Deploy
from tests.support.checker import check
from tests.support.faults import Runs
from tests.support.letters import Sender
from tests.support.load import send
from tests.support.next_version import make_next_version
from tests.support.process import ROOT, WorkerProcess, await_that
from tests.support.reading import Tail

pytestmark = pytest.mark.check

PART, PART_S = 400, 2.0
DELAY_MS = 3_000
# So many are delivered by each of three workers side by side before the next step.
TOGETHER = 300


@pytest.mark.slow
@pytest.mark.fault("rolling upgrade and rollback of three workers")
def test_workers_are_upgraded_and_rolled_back_under_load_and_each_letter_comes_back_once(
    deploy: Deploy, tmp_path: Path, runs: Runs
) -> None:
    new = make_next_version(tmp_path / "next")
    assert (find_imported_tree(new), find_imported_tree(ROOT)) == (new, ROOT)
    deployment = deploy({"one": 1, "six": 6}, shards=6, defaults="{backoff: {kind: constant, delay: 3s}, jitter: full}")
    a, b, c = workers = [deployment.worker(name) for name in "abc"]
    for worker in workers:
        start(worker, ROOT)
    sender = Sender(deployment.bootstrap_servers)
    enough = Event()

    def keep_sending() -> None:
        for part in takewhile(lambda _: not enough.is_set(), count()):
            send(sender, deployment, PART, PART_S, DELAY_MS, first=part * PART)

    load = Thread(target=keep_sending)
    load.start()
    try:
        all_deliver(workers)
        # Up: some are killed, others told to end. Down: the other way round. And up again.
        up = ((a, new, True), (b, new, False), (c, new, True))
        down = ((a, ROOT, False), (b, ROOT, True))
        for worker, root, killed in (*up, *down, (a, new, True), (b, new, False)):
            worker.kill() if killed else worker.terminate()
            start(worker, root)
            all_deliver(workers)
            runs.add()
    finally:
        enough.set()
        load.join()
    sent = sender.finish()
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(len(sent))
    tail.close()
    assert len(sent) >= 8 * TOGETHER
    assert {worker.root for worker in workers} == {new}
    for worker in workers:
        worker.terminate()
    found = check(deployment, sent)
    assert found.wrong() == {}
    assert found.tables >= deployment.shards


def start(worker: WorkerProcess, root: Path) -> None:
    worker.root = root
    worker.start().await_ready()


def all_deliver(workers: Sequence[WorkerProcess]) -> None:
    """Each owns shards, and has delivered something of them since it was started."""
    for worker in workers:
        await_that(f"{worker.name} delivers", lambda worker=worker: worker.metric("retry_entries_sent_total") >= TOGETHER)  # type: ignore[misc]


def find_imported_tree(root: Path) -> Path:
    """The tree that a process started in `root` takes its code from."""
    asked = [sys.executable, "-c", "import retry; print(retry.__file__)"]
    done = subprocess.run(asked, cwd=root, capture_output=True, text=True, check=True, timeout=60)
    return Path(done.stdout.strip()).parents[1]
