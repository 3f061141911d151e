"""What the service sends is read by clients as a stranger installs them, without the extra packages that compression needs."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from confluent_kafka import Producer

from retry.clock import wall_ms
from tests.conftest import Deploy, Schedulings
from tests.support.deployment import Deployment, await_that
from tests.support.letters import Sender
from tests.support.reading import COMMITTED, read
from tests.support.stock_clients import CLIENTS, Read, describe_record
from tests.support.tasks import Tasks, at_least, seconds

pytestmark = pytest.mark.check

# What compression makes smaller by far, in several records of one batch.
LARGE = "a large and dull value; " * 100
RETRIED, PARKED, SCHEDULED = 40, 3, 40
clients = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)


def same(client: Read, bootstrap_servers: str, topics: Sequence[str]) -> None:
    """The client reads what librdkafka reads."""
    wanted = [describe_record(record) for record in read(bootstrap_servers, topics, COMMITTED)]
    assert {record[0] for record in wanted} == set(topics)
    assert sorted(client(bootstrap_servers, len(wanted), topics), key=str) == sorted(wanted, key=str)


@clients
def test_stock_clients_read_retries_parked_letters_and_runs_of_tasks(client: Read, deploy: Deploy) -> None:
    defaults = "{backoff: {kind: constant, delay: 1s}, max_attempts: 7, jitter: none}"
    deployment = deploy({"orders": 1}, retry_partitions=1, defaults=defaults)
    letters = deployment.policy_file.read_text()
    tasks = Tasks(deployment, outputs=1)
    deployment.policy_file.write_text(letters + deployment.policy_file.read_text())
    tasks.define(("c", "t"), seconds(1), data=LARGE)
    _send(deployment)
    deployment.worker().start()
    (retries,) = deployment.retry_topics()
    counts = {retries: RETRIED, deployment.parked: PARKED}
    await_that(
        "all came back or were parked, and a task ran twice",
        lambda: all(len(_read(deployment, topic)) == count for topic, count in counts.items())
        and at_least(tasks, 2, ("c", "t"))(),
    )
    deployment.worker().terminate()
    same(client, deployment.bootstrap_servers, [retries, deployment.parked, *tasks.outputs])


def _send(deployment: Deployment) -> None:
    sender, (topic,) = Sender(deployment.bootstrap_servers), deployment.dead_letters
    for n in range(RETRIED):
        sender.send(topic, b"%d" % n, LARGE.encode(), [("a", b"b")], timestamp_ms=wall_ms())
    for n in range(PARKED):
        sender.send(topic, b"%d" % n, LARGE.encode(), [("retry-attempt", b"7")], timestamp_ms=wall_ms())
    sender.finish()


def _read(deployment: Deployment, topic: str) -> list[object]:
    return list(read(deployment.bootstrap_servers, [topic], COMMITTED))


@clients
def test_stock_clients_read_scheduled_messages_their_history_and_tombstones(client: Read, scheduling: Schedulings) -> None:
    place = scheduling(1)
    for n in range(SCHEDULED):
        place.schedule(f"id-{n}", time.time() + 1, value=LARGE.encode())
    place.flush()
    instance = place.instance()
    place.await_sent(SCHEDULED)
    instance.terminate()
    same(client, place.bootstrap_servers, [place.target, place.history, place.schedules])


@clients
def test_these_clients_cannot_read_lz4_so_that_the_tests_above_say_something(client: Read, scheduling: Schedulings) -> None:
    place = scheduling(1)
    producer = Producer({"bootstrap.servers": place.bootstrap_servers, "compression.type": "lz4"})
    producer.produce(place.target, LARGE.encode())
    assert producer.flush(60) == 0
    with pytest.raises(AssertionError, match=r"(?i)lz4"):
        client(place.bootstrap_servers, 1, [place.target])
