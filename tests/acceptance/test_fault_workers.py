"""Workers that join and leave all the time, wake up as zombies, or are told to end at any moment."""

from __future__ import annotations

import http.client
import re
import signal
from pathlib import Path

import pytest

from retry.clock import Deadline
from tests.acceptance import felling_worker
from tests.conftest import Deploy
from tests.support.afterwards import nothing_is_wrong
from tests.support.checker import check
from tests.support.deployment import Deployment
from tests.support.faults import Runs
from tests.support.letters import Sender
from tests.support.load import Load, send
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import Tail

pytestmark = pytest.mark.slow

DELAY_MS = 2_000
POLICY = "{backoff: {kind: constant, delay: 2s}, jitter: full}"
LETTERS_PER_S = 200
MORE, MORE_S = LETTERS_PER_S * 2, 120.0
STORM_S, STORM_EVERY_S = 120.0, 2.0
# What came meanwhile is read in one go.
READ_S = 0.5
GUESTS, ENDS_WITHIN_S = 3, 60.0
ZOMBIES = 5
ENDS = 8


def deploy_workers(deploy: Deploy, *names: str, shards: int = 4) -> Deployment:
    """A deployment with these workers, ready."""
    deployment = deploy({"one": 1, "three": 3}, shards=shards, defaults=POLICY)
    for name in names:
        deployment.worker(name).start()
    for worker in deployment.workers.values():
        worker.await_ready()
    return deployment


@pytest.mark.fault("rebalance storm: a worker joins or leaves every 2 s for 2 min")
def test_a_storm_of_rebalances_stops_nothing(deploy: Deploy, runs: Runs) -> None:
    deployment = deploy_workers(deploy, "a", "b", shards=8)
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    guests = [deployment.worker(f"guest-{n}") for n in range(GUESTS)]
    there, away, came = list[WorkerProcess](), list(guests), list[int]()
    with Load(deployment, LETTERS_PER_S, DELAY_MS) as load:
        tail.await_more(MORE, MORE_S)
        storm = Deadline(STORM_S)
        while not storm.has_passed():
            until, before = Deadline(STORM_EVERY_S), len(tail.records)
            if _join_or_leave(there, away, runs.count):
                runs.add()
            # A guest may take all the time to end.
            tail.quiet(max(until.remaining_s(), READ_S))
            came.append(len(tail.records) - before)
        for guest in there:
            await_that(f"{guest.name} has had a part in it", lambda guest=guest: _was_ready(guest))
        for guest in guests:
            _end(guest, signal.SIGTERM)
    # A guest that was killed holds its shards for the session timeout; what others own goes on.
    assert sum(count > 0 for count in came) > len(came) / 2, came
    tail.close()
    nothing_is_wrong(deployment, load.sender)
    logs = {worker.name: worker.log_file.read_text() for worker in deployment.workers.values()}
    assert not [name for name, log in logs.items() if re.search("LOCK|lock hold", log)]
    assert not [guest.name for guest in guests if not _was_ready(guest)]


def _join_or_leave(there: list[WorkerProcess], away: list[WorkerProcess], event: int) -> bool:
    """In turn the guest that was away longest joins, and the one that was there longest leaves; most say goodbye.

    None leaves that has not owned a shard yet, nor for the first time before one was ready: on a busy machine that takes
    several events.
    """
    owns = there and "retry.worker.shards.shard: shard" in there[0].log() and _was_ready(there[0])
    if owns and (event % 2 or not away):
        guest = there.pop(0)
        _end(guest, signal.SIGTERM if event // 2 % 4 else signal.SIGKILL)
        away.append(guest)
    elif away:
        there.append(away.pop(0).start())
    else:
        return False
    return True


def _was_ready(guest: WorkerProcess) -> bool:
    """Whether a shard was ready in any of its lives."""
    return ": ready" in guest.log_file.read_text()


def _end(guest: WorkerProcess, number: int) -> None:
    if guest.running():
        guest.signal(number)
        # Told to end before it listens, it ends by the signal itself.
        code = guest.wait(ENDS_WITHIN_S)
        assert code in (0, -number) if guest.port() == 0 or number == signal.SIGKILL else code == 0


@pytest.mark.fault("zombie: frozen, taken over on a fresh disk, and woken")
def test_a_worker_that_wakes_up_after_it_was_replaced_is_fenced_and_well(deploy: Deploy, runs: Runs) -> None:
    deployment = deploy_workers(deploy)
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    owner, other = deployment.worker("a"), deployment.worker("b")
    _start_to_freeze(deployment, owner).await_ready()
    with Load(deployment, LETTERS_PER_S, DELAY_MS) as load:
        for n in range(ZOMBIES):
            tail.await_more(MORE, MORE_S)
            given = owner.log().count(": ours")
            _freeze(deployment, owner, felling_worker.PROOF if n % 2 else felling_worker.COMMIT)
            other.kill()
            deployment.wipe(other)
            _start_to_freeze(deployment, other)
            await_that("all is taken over", lambda o=other: o.metric("retry_shards_ready") == deployment.shards)
            tail.await_more(MORE, MORE_S)
            owner.signal(signal.SIGCONT)
            # Before that it lets go of all that it had, some of which may be broken by then and closed already.
            await_that("the zombie is given its part anew", lambda o=owner, n=given: o.log().count(": ours") > n)
            # It shares the work again, as the process that it was.
            owner.await_ready()
            runs.add()
            owner, other = other, owner
    tail.close()
    nothing_is_wrong(deployment, load.sender)
    logs = owner.log_file.read_text() + other.log_file.read_text()
    assert logs.count("ProducerFenced") >= ZOMBIES


def _orders(deployment: Deployment, worker: WorkerProcess) -> Path:
    return deployment.folder / f"{worker.name}-stops"


def _start_to_freeze(deployment: Deployment, worker: WorkerProcess) -> WorkerProcess:
    return worker.start("-m", "tests.acceptance.felling_worker", FELL=str(_orders(deployment, worker)))


def _freeze(deployment: Deployment, owner: WorkerProcess, moment: str) -> None:
    """In a transaction of a sweep: when it wakes up it certainly wants to commit what is no longer its own."""
    felling_worker.order(_orders(deployment, owner), {f"{deployment.app_id}-sweep-*": owner.pid}, signal.SIGSTOP, moment)
    stat = Path(f"/proc/{owner.pid}/stat")
    await_that("it is frozen", lambda: stat.read_text().rpartition(") ")[2].startswith("T"))


@pytest.mark.fault("SIGTERM under load, every second time during a restore")
def test_told_to_end_at_any_moment(deploy: Deploy, runs: Runs) -> None:
    deployment = deploy_workers(deploy)
    worker = deployment.worker("a")
    with Load(deployment, LETTERS_PER_S, DELAY_MS) as load:
        for n in range(ENDS):
            restores = n % 2 == 1
            if restores:
                deployment.wipe(worker)
            worker.start()
            if restores:
                await_that("a shard is opened", lambda: "retry.worker.shards.shard: shard" in worker.log())
            else:
                worker.await_ready()
            worker.terminate()
            runs.add()
        worker.start()
    nothing_is_wrong(deployment, load.sender)


@pytest.mark.fault("two workers of one instance name")
def test_a_second_worker_of_the_same_name_ends_it_with_a_message(deploy: Deploy, runs: Runs) -> None:
    deployment = deploy({"one": 1, "three": 3}, shards=4, defaults=POLICY)
    workers = [deployment.worker(name).start(RETRY_INSTANCE="same") for name in ("a", "b")]
    sender = Sender(deployment.bootstrap_servers)
    send(sender, deployment, LETTERS_PER_S, 2.0, DELAY_MS)
    sent, tail = sender.finish(), Tail(deployment.bootstrap_servers, deployment.retry_topics())
    await_that("one of them ends", lambda: not all(worker.running() for worker in workers))
    runs.add()

    def all_back() -> bool:
        tail.read()
        if len(tail.seen) < len(sent) and not any(worker.running() for worker in workers):
            for worker in workers:
                _names_the_cause(worker)
            workers[0].start(RETRY_INSTANCE="same")
        return len(tail.seen) >= len(sent)

    await_that("all came back", all_back)
    tail.close()
    for worker in workers:
        # There are two groups, and each may have come first in one: then the second ends, too, seconds after the first.
        await_that("it is well, or ends", lambda w=worker: not w.running() or w.get("/health/ready")[0] == http.client.OK)
        worker.signal(signal.SIGTERM)
        if worker.wait(ENDS_WITHIN_S):
            _names_the_cause(worker)
    assert check(deployment, sent).wrong() == {}


def _names_the_cause(worker: WorkerProcess) -> None:
    """Check that a worker has ended by itself, with one message and no more."""
    assert worker.exit_code() == 1
    assert "same is also the name of another worker" in worker.log()
    assert "set RETRY_INSTANCE to another name" in worker.log()
    assert "Traceback" not in worker.log()
    assert worker.log().count("same is also the name of another worker") == 1


@pytest.mark.fault("two deployments of one app id, with different policy files")
def test_two_deployments_of_one_app_id_are_workers_of_one(deploy: Deploy, runs: Runs) -> None:
    deployment = deploy({"one": 1, "three": 3}, shards=4, defaults=POLICY)
    other = deployment.folder / "other.yaml"
    other.write_text(deployment.policy_file.read_text().replace("delay: 2s", "delay: 1s"))
    deployment.worker("a").start()
    deployment.worker("b").start(RETRY_POLICIES=str(other))
    for worker in deployment.workers.values():
        worker.await_ready()
    runs.add()
    sender = Sender(deployment.bootstrap_servers)
    send(sender, deployment, LETTERS_PER_S * 10, 5.0, DELAY_MS)
    nothing_is_wrong(deployment, sender)
