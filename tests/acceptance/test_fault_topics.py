"""Topics that are deleted and made again, that grow, and that lose their end, while the service runs and while it does not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from threading import Thread

import pytest

from retry.clock import Deadline, pause
from retry.kafka import topics as own_topics
from retry.kafka.local_broker import LocalBroker
from tests.conftest import Deploy
from tests.support import topics
from tests.support.blocks import list_entry_records
from tests.support.checker import check
from tests.support.deployment import Deployment
from tests.support.faults import Runs
from tests.support.letters import Sender
from tests.support.load import send
from tests.support.process import WORKER, WorkerProcess, await_that
from tests.support.reading import COMMITTED, Tail, read

pytestmark = pytest.mark.slow

ADOPT = (*WORKER, "--adopt-empty-changelog")
LATER = "{backoff: {kind: constant, delay: 1h}, jitter: none}"
SOON = "{backoff: {kind: constant, delay: 8s}, jitter: none, max_attempts: 5}"
OLD = 50


def letters(deployment: Deployment, name: str, count: int, **more: int) -> None:
    """Send letters that are told apart by their values, whatever their offsets."""
    sender, (topic, *_) = Sender(deployment.bootstrap_servers), deployment.dead_letters
    for n in range(count):
        sender.send(topic, b"k%d" % n, b"%s-%d" % (name.encode(), n), **more)  # type: ignore[arg-type]
    sender.finish()


def values(name: str, count: int) -> Counter[bytes | None]:
    """The values of `letters`, each once."""
    return Counter(b"%s-%d" % (name.encode(), n) for n in range(count))


def back(deployment: Deployment) -> Counter[bytes | None]:
    """How often each value came back."""
    return Counter(record.value for record in read(deployment.bootstrap_servers, deployment.retry_topics(), COMMITTED))


def await_waiting(worker: WorkerProcess, count: int) -> None:
    await_that(f"{count} wait", lambda: worker.metric("retry_entries_waiting") == count)


def await_refusal(worker: WorkerProcess) -> None:
    """Wait until a worker ends by itself, with the error that names what happened and what to do, and touches no table."""
    assert worker.wait(120.0) not in (0, -9)
    assert "changelog identity changed" in worker.log()
    assert "retry worker --adopt-empty-changelog" in worker.log()


def make_anew(deployment: Deployment) -> None:
    """Delete the changelog and create it, the way an operator would."""
    changelog = deployment.names.changelog
    before = own_topics.describe(deployment.admin, [changelog])[changelog].topic_id
    topics.delete(deployment.admin, changelog)

    def anew() -> bool:
        # A broker may know of the deletion later than the controller, and call the old one well.
        made, found = deployment.command("topics", "create"), own_topics.describe(deployment.admin, [changelog])
        return made.returncode == 0 and changelog in found and found[changelog].topic_id != before

    await_that("it is made anew", anew)


@pytest.mark.fault("changelog deleted and made again, service stopped")
def test_a_changelog_that_was_made_anew_is_refused_until_it_is_adopted(deploy: Deploy, runs: Runs) -> None:
    deployment = deploy({"orders": 2}, shards=2, defaults=LATER)
    worker = deployment.worker().start().await_ready()
    letters(deployment, "old", OLD)
    await_waiting(worker, OLD)
    worker.terminate()
    make_anew(deployment)
    tables = sorted(path.name for path in (worker.data_dir / "tables").iterdir())
    await_refusal(worker.start())
    runs.add()
    # One that has no tables knows from the offsets that letters were taken in.
    await_refusal(deployment.worker("bare").start())
    runs.add()
    assert sorted(path.name for path in (worker.data_dir / "tables").iterdir()) == tables

    deployment.policy_file.write_text(deployment.policy_file.read_text().replace("1h", "1s"))
    bare = deployment.worker("bare").start(*ADOPT).await_ready()
    letters(deployment, "new", OLD)
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics(), header="retry-id")
    tail.await_seen(OLD)
    tail.close()
    # It is not empty any more, but the table still is of another.
    await_refusal(worker.start())
    worker.start(*ADOPT)
    await_that("both have shards", lambda: worker.metric("retry_shards_ready") and bare.metric("retry_shards_ready"))
    bare.terminate()
    worker.await_ready().terminate()
    assert back(deployment) == values("new", OLD)


@pytest.mark.fault("changelog deleted and made again, service running")
def test_a_changelog_that_is_made_anew_ends_a_running_worker(deploy: Deploy) -> None:
    deployment = deploy({"orders": 2}, shards=2, defaults=LATER)
    worker = deployment.worker().start().await_ready()
    letters(deployment, "old", OLD)
    await_waiting(worker, OLD)
    load = Thread(target=letters, args=(deployment, "more", OLD))
    load.start()
    make_anew(deployment)
    await_refusal(worker)
    load.join()
    # Nothing is wiped: what waits can still be seen.
    assert "wiped" not in worker.log()
    await_refusal(worker.start())


@pytest.mark.fault("dead-letter topic deleted and made again")
@pytest.mark.parametrize("new", [OLD // 2, OLD, OLD * 2])
@pytest.mark.parametrize("running", [True, False])
def test_letters_of_a_topic_that_was_made_anew_are_all_read(deploy: Deploy, running: bool, new: int) -> None:
    deployment = deploy({"orders": 1}, shards=2, defaults=SOON)
    (topic,) = deployment.dead_letters
    worker = deployment.worker().start().await_ready()
    letters(deployment, "old", OLD)
    await_that("they are taken in", lambda: worker.metric("retry_letters_consumed_total") == OLD)
    if not running:
        worker.terminate()
    topics.delete(deployment.admin, topic)
    topics.create(deployment.admin, topic, 1)
    letters(deployment, "new", new)
    if not running:
        worker.start().await_ready()
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics(), header="retry-id")
    tail.await_seen(OLD + new)
    letters(deployment, "last", 1)
    tail.await_seen(OLD + new + 1)
    tail.close()
    worker.terminate()
    assert back(deployment) == values("old", OLD) + values("new", new) + values("last", 1)


@pytest.mark.fault("dead-letter partitions 3 to 6 under load")
def test_new_partitions_are_read_from_their_beginning(deploy: Deploy) -> None:
    deployment = deploy({"orders": 3}, shards=4, defaults="{backoff: {kind: constant, delay: 3s}, jitter: full}")
    (topic,) = deployment.dead_letters
    worker = deployment.worker().start().await_ready()
    sender, late = Sender(deployment.bootstrap_servers), Sender(deployment.bootstrap_servers)
    load = Thread(target=send, args=(sender, deployment, 4_000, 12.0, 3_000))
    load.start()
    pause_for(3.0)
    topics.grow(deployment.admin, topic, 6)
    # The controller says that they are there, and the broker may not know it yet: then a client refuses what is sent to them.
    about = deployment.admin.list_topics
    await_that("they are known", lambda: len(about(topic, timeout=20).topics[topic].partitions) == 6)
    for n in range(300):
        late.send(topic, b"late-%d" % n, b"v", partition=3 + n % 3, delays_ms=(0, 3_000))
    load.join()
    sent = {**sender.finish(), **late.finish()}
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    tail.await_seen(len(sent))
    tail.close()
    worker.terminate()
    assert check(deployment, sent).wrong() == {}


def pause_for(seconds: float) -> None:
    """Let load go on."""
    deadline = Deadline(seconds)
    while not deadline.has_passed():
        pause(0.05)


@pytest.mark.fault("changelog cut short by its brokers")
def test_a_changelog_that_lost_its_end_is_said_and_its_table_restored(tmp_path: Path, deploy: Deploy) -> None:
    with LocalBroker(tmp_path / "broker", heap_mb=384) as broker:
        deployment = deploy({"orders": 1}, on=broker, shards=1, defaults=LATER)
        worker = deployment.worker().start().await_ready()
        for n in range(6):
            letters(deployment, f"old{n}", OLD)
            await_waiting(worker, OLD * (n + 1))
        worker.terminate()
        broker.kill()
        (log,) = (tmp_path / "broker" / "kafka" / f"{deployment.names.changelog}-0").glob("*0.log")
        cut_after_a_transaction(log, 3)
        broker.start()
        worker.start().await_ready()
        assert "Kafka lost acknowledged writes" in worker.log()
        records = list_entry_records(read(deployment.bootstrap_servers, [deployment.names.changelog], COMMITTED))
        left = [record for record in records if record.value]
        assert 0 < len(left) < 6 * OLD
        await_waiting(worker, len(left))
        worker.terminate()
        deployment.close()


def cut_after_a_transaction(log: Path, transactions: int) -> None:
    """Keep of a segment as much as ends with so many transactions."""
    content, at = log.read_bytes(), 0
    while transactions:
        length = 12 + int.from_bytes(content[at + 8 : at + 12], "big")
        transactions -= bool(int.from_bytes(content[at + 21 : at + 23], "big") & 0x20)
        at += length
    log.write_bytes(content[:at])
