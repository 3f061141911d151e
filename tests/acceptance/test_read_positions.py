"""Letters that were taken in are not taken in again when the group's offsets are lost, are wrong, or lie beyond the end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from retry.kafka import consumer_groups
from retry.kafka.local_broker import LocalBroker
from tests.conftest import Deploy
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import COMMITTED, read
from tests.support.sizes import only_in_faults

pytestmark = pytest.mark.check

SOON = "{backoff: {kind: constant, delay: 100ms}, jitter: none, max_attempts: 5}"
OLD, NEW = 45, 7


def send(deployment: Deployment, name: str, count: int) -> None:
    sender, (topic, *_) = Sender(deployment.bootstrap_servers), deployment.dead_letters
    for n in range(count):
        sender.send(topic, b"k%d" % n, b"%s-%d" % (name.encode(), n))
    sender.finish()


def values(name: str, count: int) -> Counter[bytes | None]:
    return Counter(b"%s-%d" % (name.encode(), n) for n in range(count))


def come_back(deployment: Deployment) -> Counter[bytes | None]:
    """How often each value came back."""
    return Counter(record.value for record in read(deployment.bootstrap_servers, deployment.retry_topics(), COMMITTED))


def await_back(deployment: Deployment, wanted: Counter[bytes | None]) -> None:
    await_that("they come back", lambda: come_back(deployment).total() >= wanted.total())
    assert come_back(deployment) == wanted


def dealt_with(deployment: Deployment) -> WorkerProcess:
    """A worker that has sent all letters there were, and was stopped."""
    worker = deployment.worker().start().await_ready()
    send(deployment, "old", OLD)
    await_back(deployment, values("old", OLD))
    worker.terminate()
    return worker


def delete_group(deployment: Deployment) -> None:
    group = deployment.names.intake_group

    def has_deleted_group() -> bool:
        # The session of its member may have to end first.
        try:
            deployment.admin.delete_consumer_groups([group])[group].result(20)
        except Exception as error:
            if "NON_EMPTY_GROUP" not in str(error):
                raise
            return False
        return True

    await_that("the group is deleted", has_deleted_group)


def set_offset(deployment: Deployment, offset: int) -> None:
    group, (topic, *_) = deployment.names.intake_group, deployment.dead_letters
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])

    def has_set_offset() -> bool:
        try:
            (answer,) = deployment.admin.alter_consumer_group_offsets([wanted]).values()
            return all(each.error is None for each in answer.result(20).topic_partitions)
        except Exception as error:
            if not any(passes in str(error) for passes in ("UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP")):
                raise
            return False

    await_that("the offset is set", has_set_offset)


@pytest.mark.fault("offsets of the group lost, too large, or set back")
@pytest.mark.parametrize("lost", ["group deleted", *only_in_faults("too large", "set back")])
def test_letters_are_not_sent_again_when_the_group_lost_its_offsets(deploy: Deploy, lost: str) -> None:
    deployment = deploy({"orders": 1}, shards=2, defaults=SOON)
    worker = dealt_with(deployment)
    if lost == "group deleted":
        delete_group(deployment)
    else:
        set_offset(deployment, 1_000_000 if lost == "too large" else 3)
    (topic,) = deployment.dead_letters
    checked = deployment.command("topics", "check")
    assert checked.returncode == 0, checked.stderr
    assert f"workers go on at {OLD} by the service's own record" in checked.stdout

    worker.start().await_ready()
    group = deployment.names.intake_group
    # Whoever looks at the group sees where the service really is, before the next letter comes.
    await_that("the group has it", lambda: consumer_groups.read_positions(deployment.admin, group).get((topic, 0)) == OLD)
    send(deployment, "new", NEW)
    await_back(deployment, values("old", OLD) + values("new", NEW))
    note = f"the service goes on at {OLD} by its own record"
    assert note in worker.log()
    assert note in worker.get("/health/ready")[1]
    worker.terminate()
    assert deployment.command("verify").returncode == 0


def test_an_operator_has_letters_taken_in_again(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, shards=2, defaults=SOON)
    worker = deployment.worker().start().await_ready()
    (topic,) = deployment.dead_letters
    send(deployment, "old", OLD)
    await_back(deployment, values("old", OLD))
    asked = "topics", "reread", topic, "--partition", "0", "--from-offset", str(OLD - 5)
    only_said = deployment.command(*asked)
    assert f"{topic}/0 from {OLD - 5} on: 5 offsets that were taken in before" in only_said.stdout
    assert "--yes" in only_said.stdout
    assert "asked for 1 partitions" in deployment.command(*asked, "--yes", "--by", "ann").stdout
    again = Counter(b"old-%d" % n for n in range(OLD - 5, OLD))
    await_back(deployment, values("old", OLD) + again)
    assert f"read again from offset {OLD - 5} on, as ann asked" in worker.log()
    # It was followed: a worker that starts anew does not follow it once more.
    worker.kill()
    worker.start().await_ready()
    send(deployment, "new", NEW)
    await_back(deployment, values("old", OLD) + again + values("new", NEW))
    # From the beginning, while no worker runs.
    worker.terminate()
    assert "asked for 1 partitions" in deployment.command("topics", "reread", topic, "--yes").stdout
    worker.start().await_ready()
    await_that("all come again", lambda: come_back(deployment).total() == 2 * OLD + 5 + 2 * NEW)
    worker.terminate()
    verified = deployment.command("verify")
    assert verified.returncode == 0, verified.stdout


@pytest.mark.slow
@pytest.mark.fault("dead-letter partition cut short by its brokers")
def test_of_a_partition_that_was_cut_only_what_was_written_since_is_taken_in(tmp_path: Path, deploy: Deploy) -> None:
    with LocalBroker(tmp_path / "broker", heap_mb=384) as broker:
        deployment = deploy({"orders": 1}, on=broker, shards=1, defaults=SOON)
        worker = deployment.worker().start().await_ready()
        for n in range(5):
            send(deployment, f"old{n}", OLD)
            await_that("they come back", lambda n=n: come_back(deployment).total() == OLD * (n + 1))  # type: ignore[misc]
        worker.terminate()
        broker.kill()
        (topic,) = deployment.dead_letters
        (log,) = (tmp_path / "broker" / "kafka" / f"{topic}-0").glob("*0.log")
        log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
        broker.start()
        worker.start().await_ready()
        await_that("it is told", lambda: "it has lost records" in worker.log())
        # The first of these lie at offsets that were taken in before.
        send(deployment, "new", 6 * OLD)
        old = sum((values(f"old{n}", OLD) for n in range(5)), Counter[bytes | None]())
        await_back(deployment, old + values("new", 6 * OLD))
        worker.terminate()
        deployment.close()
