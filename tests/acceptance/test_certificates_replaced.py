"""Client certificates are replaced under load and kill -9: who runs goes on, and every process shows the new one in the end."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from retry.clock import wall_ms
from tests.acceptance.test_processes import TWO, workers_of
from tests.conftest import Deploy
from tests.support.afterwards import nothing_is_wrong
from tests.support.client_files import ClientFiles, all_show, ends_s, rights
from tests.support.faults import Runs
from tests.support.load import Load
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import Tail
from tests.support.secured import SecuredBroker

LETTERS_PER_S, DELAY_MS, MORE_S = 100, 2_000, 180.0
POLICY = "{backoff: {kind: constant, delay: 2s}, jitter: full}"
ROTATIONS, VALID = 5, timedelta(seconds=120)
OLD, NEW = "holder-of-the-old-certificate", "holder-of-the-new-certificate"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.mark.fault("client certificate replaced under load, with SIGKILL between its two files")
def test_a_client_certificate_is_replaced_while_workers_run_and_one_is_killed(
    deploy: Deploy, secured: SecuredBroker, tmp_path: Path, runs: Runs
) -> None:
    files = ClientFiles(secured, tmp_path)
    for holder in (OLD, NEW):
        secured.grant(rights(holder))
    list(files.replace(OLD))
    deployment = deploy({"one": 1, "three": 3}, shards=4, defaults=POLICY, on=secured.inner, environ=files.environ)
    a, b = (deployment.worker(name).start() for name in ("a", "b"))
    for worker in (a, b):
        worker.await_ready()
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    with Load(deployment, LETTERS_PER_S, DELAY_MS) as load:
        tail.await_more(LETTERS_PER_S, MORE_S)
        replacing = files.replace(NEW)
        next(replacing)
        a.kill()
        runs.add()
        a.start()
        await_that("a certificate without its key is refused", lambda: not a.running())
        assert a.exit_code() == 1
        assert "RETRY_KAFKA_SSL_" in a.log() and "Traceback" not in a.log(), a.tail()
        # Which takes clients that are made just now.
        await_that("the other one takes over", lambda: b.metric("retry_shards_ready") == deployment.shards)
        await_that("it says so", lambda: "what this process began with stays in use" in b.log())
        tail.await_more(2 * LETTERS_PER_S, MORE_S)
        list(replacing)
        a.start().await_ready()
        tail.await_more(2 * LETTERS_PER_S, MORE_S)
        restart(b, runs)
        secured.withdraw(rights(OLD))
        # Nobody is known by the old one any more.
        tail.await_more(2 * LETTERS_PER_S, MORE_S)
        restart(a, runs)
    tail.close()
    nothing_is_wrong(deployment, load.sender, MORE_S)
    for worker in (a, b):
        assert "uthorization" not in worker.log(), worker.tail()


@pytest.mark.fault("client certificates of two minutes replaced again and again under load, with SIGKILL meanwhile")
def test_certificates_of_minutes_come_into_use_by_themselves(
    deploy: Deploy, secured: SecuredBroker, tmp_path: Path, runs: Runs
) -> None:
    files, holders = ClientFiles(secured, tmp_path), [f"holder-{n}" for n in range(ROTATIONS + 1)]
    for holder in holders:
        secured.grant(rights(holder))
    list(files.replace(holders[0]))
    deployment = deploy({"one": 1, "three": 3}, shards=6, defaults=POLICY, on=secured.inner, environ=files.environ)
    list(files.replace(holders[0], VALID))
    both, alone = deployment.worker("both").start(*TWO), deployment.worker("alone").start()
    for worker in (both, alone):
        worker.await_ready()
    workers, tail = workers_of(both), Tail(deployment.bootstrap_servers, deployment.retry_topics())
    with Load(deployment, LETTERS_PER_S, DELAY_MS) as load:
        for before, holder in pairwise(holders):
            until_s = min(ends_s(alone) + ends_s(both))
            if holder == holders[-1]:
                await_that("the old one has ended", lambda until_s=until_s: wall_ms() / 1_000 > until_s)
            list(files.replace(holder, VALID))
            runs.add()
            if holder == holders[2]:
                await_that("it ends to begin anew", lambda: "begins anew with the files" in alone.log())
                alone.kill()
                alone.start()
            await_that("both show it", lambda until_s=until_s: all_show(both, 2, until_s))
            await_that("the other shows it", lambda until_s=until_s: all_show(alone, 1, until_s))
            secured.withdraw(rights(before))
            tail.await_more(2 * LETTERS_PER_S, MORE_S)
        for worker in (both, alone):
            # Nobody waits where nothing is left.
            assert "begins anew in 0 s" in worker.log(), worker.tail()
        # The same processes all the time, to who has started them.
        assert workers_of(both) == workers
        assert "ended with code" not in both.log(), both.tail()
    tail.close()
    nothing_is_wrong(deployment, load.sender, MORE_S)
    for worker in (both, alone):
        assert "Traceback" not in worker.log(), worker.tail()


def restart(worker: WorkerProcess, runs: Runs) -> None:
    """Kill a worker with SIGKILL, and start it with what it has run with until now."""
    assert worker.running(), worker.tail()
    worker.kill()
    runs.add()
    worker.start().await_ready()
