"""Targets that are missing, that refuse, that letters choose, and that a team may not send to any more."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections import Counter

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from retry.delay_queue import entry_keys
from tests.acceptance.test_moved_entries import uses
from tests.conftest import Deploy
from tests.support import policies
from tests.support.blocks import list_entry_records
from tests.support.checker import check
from tests.support.deployment import APPEND_TIME, Deployment
from tests.support.letters import Headers, Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import COMMITTED, Tail, read

pytestmark = pytest.mark.check

LETTERS = 30


def read_blocked(worker: WorkerProcess) -> dict[str, str]:
    """Read what is held back, and why."""
    status, told = worker.get("/health/ready")
    return json.loads(told)["blocked"] if status else {"everything": "no answer"}


def spring(topic: str, group: str) -> Headers:
    """Make the headers that Spring Kafka writes of a record that failed."""
    return [("kafka_dlt-original-topic", topic.encode()), ("kafka_dlt-original-consumer-group", group.encode())]


def bytes_max(deployment: Deployment, topic: str, size: int) -> None:
    """Have a topic take no larger records, from now on."""
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for done in deployment.admin.incremental_alter_configs([wanted]).values():
        done.result(20)


@pytest.mark.fault("retry topic missing")
def test_entries_of_a_missing_target_wait_and_flow_when_it_is_there(deploy: Deploy) -> None:
    deployment = deploy({"missing": 1, "same": 1, "other": 1}, shards=1)
    missing, same, other = deployment.dead_letters
    target = f"{deployment.app_id}.late"
    one = {name: policies.topic(deployment, name) for name in (same, other)}
    one[missing] = policies.topic(deployment, missing, retry_to=target)
    deployment.policy_file.write_text(
        policies.text({"a": policies.team(one[missing], one[same]), "b": policies.team(one[other])})
    )
    worker, sender = deployment.worker().start().await_ready(), Sender(deployment.bootstrap_servers)
    for n in range(LETTERS):
        for name in deployment.dead_letters:
            sender.send(name, b"k%d" % n, b"v%d" % n)
    sent = sender.finish()
    tail = Tail(deployment.bootstrap_servers, [deployment.retry_of(same), deployment.retry_of(other)])
    tail.await_seen(2 * LETTERS)
    tail.close()
    await_that("so many wait", lambda: worker.metric("retry_entries_waiting") == LETTERS)
    lane = f"a {missing} {target}"
    # Where nobody answers at once whether it is there, a breaker holds it first.
    await_that("health says why", lambda: set(told := read_blocked(worker)) == {lane} and told[lane].startswith(f"{target}: "))
    await_that("it is counted", lambda: worker.metric("retry_lanes_blocked") == 1)

    deployment.create({target: (1, dict(APPEND_TIME))})
    tail = Tail(deployment.bootstrap_servers, [target])
    tail.await_seen(LETTERS)
    dues = [int(record.header("retry-due-ms")) for record in tail.records]
    assert dues == sorted(dues)
    assert tail.quiet(0.5) == []
    assert len(tail.records) == LETTERS
    tail.close()
    await_that("nothing is held", lambda: read_blocked(worker) == {})
    worker.terminate()
    found = check_with(deployment, sent, {missing: target})
    assert found == {}


def check_with(deployment: Deployment, sent: dict, targets: dict[str, str]) -> dict:
    """The checker's findings where some dead-letter topics have targets of another name."""
    usual = deployment.retry_of
    deployment.retry_of = lambda topic: targets.get(topic, usual(topic))  # type: ignore[method-assign]
    return check(deployment, sent).wrong()


def test_records_that_their_target_finds_too_large_are_put_back_alone(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, shards=1, retry_partitions=1, defaults=policies.DEFAULTS)
    (name,) = deployment.dead_letters
    worker, sender = deployment.worker().start().await_ready(), Sender(deployment.bootstrap_servers)
    bytes_max(deployment, deployment.retry_of(name), 20_000)
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    # Together the others are larger than what the topic takes at once.
    too_large = {LETTERS // 2, LETTERS, LETTERS + 1}
    for n in range(2 * LETTERS):
        sender.send(name, b"k%d" % n, os.urandom(40_000 if n in too_large else 2_000))
    large = {source for source, letter in sender.finish().items() if len(letter.value or b"") == 40_000}
    assert len(large) == len(too_large)
    tail.await_seen(2 * LETTERS - len(too_large))
    # They are put back again every half a minute, and counted each time.
    await_that("the rest is put back", lambda: worker.metric("retry_entries_deferred_total") >= len(too_large))
    await_that("so many wait", lambda: worker.metric("retry_entries_waiting") == len(too_large))
    await_that("they were put back, and no other", lambda: put_back(deployment) == large)
    sender.send(name, b"later", b"v")
    sender.finish()
    tail.await_seen(2 * LETTERS - len(too_large) + 1)
    assert len(tail.records) == len(tail.seen)
    rows = [json.loads(line) for line in deployment.command("letters", "state:waiting", "--json").stdout.splitlines()]
    assert [row["bytes"] // 1_000 for row in rows] == [40] * len(too_large)
    tail.close()
    worker.terminate()


def put_back(deployment: Deployment) -> set[str]:
    """Letters whose entries were put more than once, due at another time each."""
    records = list_entry_records(read(deployment.bootstrap_servers, [deployment.names.changelog], COMMITTED))
    keys = {record.key for record in records if record.key and record.value is not None}
    times = Counter(f"{at.topic}/{at.partition}/{at.offset}" for at in map(entry_keys.read_source, keys))
    return {source for source, count in times.items() if count > 1}


def test_a_letter_may_choose_among_the_targets_that_are_allowed(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1, "bills": 1}, shards=1)
    orders, bills = deployment.dead_letters
    app = deployment.app_id
    blue, red, origin = f"{app}.blue-retry", f"{app}.red-retry", f"{app}.origin"
    deployment.create({name: (1, dict(APPEND_TIME)) for name in (blue, red, origin)})

    def file(*allowed: str) -> str:
        groups = policies.topic(
            deployment, orders, f"allowed_targets: [{', '.join(allowed)}]", retry_to=f"{app}.{{group}}-retry"
        )
        back = policies.topic(deployment, bills, f"allowed_targets: [{origin}]", retry_to="origin")
        return policies.text({"a": policies.team(groups.replace(f", park_to: {deployment.parked}", "")),
                              "b": policies.team(back.replace(f", park_to: {deployment.parked}", ""))},
                             policies.DEFAULTS)  # fmt: skip

    deployment.policy_file.write_text(file(blue, red))
    worker, sender = deployment.worker().start().await_ready(), Sender(deployment.bootstrap_servers)
    # What goes to red waits until it is not allowed any more, however long that takes.
    assert deployment.command("pause", "--target", red, "--force").returncode == 0
    for group in ("blue", "red", "green"):
        sender.send(orders, group.encode(), b"v", spring("orders", f"{group}"))
    sender.send(orders, b"nobody", b"v")
    for said in (origin, f"{app}.red-retry"):
        sender.send(bills, said.encode(), b"v", spring(said, "any"))
    sender.finish()
    parked = Tail(deployment.bootstrap_servers, [deployment.names.parked])
    parked.await_seen(3)
    reasons = {record.key: record.header("retry-parked-reason") for record in parked.records}
    assert reasons == {b"green": "target_not_allowed", b"nobody": "no_target", red.encode(): "target_not_allowed"}

    # Red is not allowed any more when its letter is due.
    deployment.policy_file.write_text(file(blue))
    worker.signal(signal.SIGHUP)
    digest = hashlib.sha256(deployment.policy_file.read_bytes()).hexdigest()
    await_that("the worker has read the file", lambda: uses(worker, digest))
    assert deployment.command("resume", "--target", red, "--force").returncode == 0
    tail = Tail(deployment.bootstrap_servers, [blue, red, origin])
    tail.await_seen(2)
    assert {record.topic: record.key for record in tail.records} == {blue: b"blue", origin: origin.encode()}
    why = f"the policy file does not allow team a to send to {red} any more"
    await_that("health says why", lambda: read_blocked(worker) == {f"a {orders} {red}": why})
    await_that("so many wait", lambda: worker.metric("retry_entries_waiting") == 1)
    deployment.policy_file.write_text(file(red))
    worker.signal(signal.SIGHUP)
    tail.await_seen(3)
    assert [record.key for record in tail.records if record.topic == red] == [b"red"]
    tail.close()
    parked.close()
    worker.terminate()
