"""One letter that its topic refuses for what it is: it goes out of the way, with its reason, and all others go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from retry.clock import wall_ms
from tests.conftest import Deploy
from tests.support import policies
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import COMMITTED, Record, Tail, read
from tests.support.sizes import only_in_faults
from tests.support.topics import configure

pytestmark = pytest.mark.check

OTHERS, HOUR_MS = 20, 3_600_000
COMPACTED = {"cleanup.policy": "compact"}
# The broker's own time would hide how old a letter is.
YOUNG = {"message.timestamp.type": "CreateTime", "message.timestamp.before.max.ms": str(HOUR_MS)}


def deploy_one_topic(deploy: Deploy, retry_config: Mapping[str, str], topic_keys: str = "") -> tuple[Deployment, str, str]:
    """A deployment with one dead-letter topic, that topic, and the one where its letters come back."""
    deployment = deploy(
        {"orders": 1}, shards=1, retry_partitions=1, defaults=policies.DEFAULTS, topic_keys=topic_keys, retry_config=retry_config
    )
    (name,) = deployment.dead_letters
    return deployment, name, deployment.retry_of(name)


def send_among_others(deployment: Deployment, name: str, key: bytes | None, timestamp_ms: int | None) -> str:
    """Send one letter in the midst of twenty others, so that all are due together; its coordinates."""
    sender = Sender(deployment.bootstrap_servers)
    for n in range(OTHERS + 1):
        if n == OTHERS // 2:
            sender.send(name, key, b"one", timestamp_ms=timestamp_ms)
        else:
            sender.send(name, b"k%d" % n, b"v%d" % n)
    (one,) = (letter for letter in sender.finish().values() if letter.value == b"one")
    return one.source


def await_others(deployment: Deployment, target: str) -> list[Record]:
    """The others come, each once."""
    tail = Tail(deployment.bootstrap_servers, [target])
    tail.await_seen(OTHERS)
    tail.close()
    return tail.records


def health(worker: WorkerProcess) -> Any:
    """Read what the worker says of itself."""
    return json.loads(worker.get("/health/ready")[1])


def explain_letter(deployment: Deployment, source: str) -> str:
    """Run `retry explain` for a letter and return what it prints."""
    return deployment.command("explain", source).stdout


@pytest.mark.fault("a letter older than its retry topic takes")
def test_a_letter_that_is_too_old_for_its_target_is_sent_with_the_time_of_now(deploy: Deploy) -> None:
    deployment, name, target = deploy_one_topic(deploy, YOUNG)
    worker = deployment.worker().start().await_ready()
    old_ms = wall_ms() - 2 * HOUR_MS
    send_among_others(deployment, name, b"old", old_ms)
    tail = Tail(deployment.bootstrap_servers, [target])
    tail.await_seen(OTHERS + 1)
    tail.close()
    (one,) = (record for record in tail.records if record.value == b"one")
    assert one.header("retry-timestamp-ms") == str(old_ms)
    assert abs(one.timestamp_ms - wall_ms()) < HOUR_MS
    assert not any(record.header("retry-timestamp-ms") for record in tail.records if record is not one)
    assert health(worker)["blocked"] == health(worker)["refused"] == {}
    worker.terminate()


@pytest.mark.fault("a letter that brokers refuse for what it is")
@pytest.mark.parametrize("fault", ["no key", *only_in_faults("too old")])
def test_one_letter_that_its_target_refuses_is_put_back_then_parked_and_the_others_go(deploy: Deploy, fault: str) -> None:
    old = fault == "too old"
    deployment, name, target = deploy_one_topic(deploy, YOUNG if old else COMPACTED, "old_timestamp: park" if old else "")
    worker = deployment.worker().start().await_ready()
    source = send_among_others(deployment, name, b"old" if old else None, wall_ms() - 2 * HOUR_MS if old else None)
    await_others(deployment, target)
    await_that("health names the one", lambda: set(health(worker)["refused"]) == {source})
    said = health(worker)
    assert said["refused"][source].startswith(f"{target}: ")
    assert (said["ready"], said["blocked"], said["reasons"]) == (True, {}, {"refused_letters": 1})
    assert worker.metric("retry_entries_refused") == 1
    word = "message.timestamp.before.max.ms" if old else "cleanup.policy"
    await_that("explain says why", lambda: word in explain_letter(deployment, source))

    tail = Tail(deployment.bootstrap_servers, [deployment.parked])
    tail.await_seen(1)
    tail.close()
    (parked,) = tail.records
    assert (parked.value, parked.header("retry-parked-reason"), parked.header("retry-source")) == (b"one", "refused", source)
    assert word in parked.header("retry-parked-fault")
    await_that("nothing waits", lambda: worker.metric("retry_entries_waiting") == 0)
    assert health(worker)["refused"] == {}
    assert "is parked" in explain_letter(deployment, source)
    worker.terminate()
    assert [record.value for record in read(deployment.bootstrap_servers, [target], COMMITTED)].count(b"one") == 0


@pytest.mark.fault("a parking topic that refuses one letter")
@pytest.mark.slow
def test_a_letter_that_even_its_parking_topic_refuses_is_held_by_name_until_that_takes_it(deploy: Deploy) -> None:
    deployment, name, target = deploy_one_topic(deploy, COMPACTED)
    configure(deployment.admin, deployment.parked, cleanup_policy="compact")
    worker = deployment.worker().start().await_ready()
    source = send_among_others(deployment, name, None, None)
    await_others(deployment, target)
    await_that("it is held", lambda: health(worker)["refused"].get(source, "").startswith(f"{deployment.parked}: "))
    await_that("explain says why", lambda: f"{deployment.parked} is compacted" in explain_letter(deployment, source))
    # Others are parked, and retried, meanwhile.
    worker.terminate()
    worker.start().await_ready()
    await_that("a new process names it, too", lambda: source in health(worker)["refused"])
    sender = Sender(deployment.bootstrap_servers)
    sender.send(name, b"later", b"v")
    sender.send(name, b"parks", b"v", [("retry-attempt", b"bad")])
    sender.finish()
    tail = Tail(deployment.bootstrap_servers, [target, deployment.parked])
    tail.await_seen(OTHERS + 2)
    configure(deployment.admin, deployment.parked, cleanup_policy="delete")
    tail.await_seen(OTHERS + 3)
    tail.close()
    (parked,) = (record for record in tail.records if record.value == b"one")
    assert (parked.topic, parked.header("retry-parked-reason")) == (deployment.parked, "refused")
    await_that("nothing waits", lambda: worker.metric("retry_entries_waiting") == 0)
    assert health(worker)["refused"] == {}
    worker.terminate()


@pytest.mark.fault("a letter that its topics take only compressed")
def test_a_letter_that_came_compressed_is_retried_and_parked_with_its_value(deploy: Deploy) -> None:
    """3 MB of JSON, gzip, of topics that take 1 MB."""
    deployment, name, target = deploy_one_topic(deploy, {"max.message.bytes": "1000000"})
    for topic in (name, deployment.parked):
        configure(deployment.admin, topic, max_message_bytes="1000000")
    value = json.dumps([{"order": n, "items": [f"item-{n % 97}"] * 4} for n in range(48_000)]).encode()
    assert len(value) > 3_000_000
    worker = deployment.worker().start().await_ready()
    sender = Sender(deployment.bootstrap_servers, **{"compression.type": "gzip", "message.max.bytes": 16 << 20})
    sender.send(name, b"large", value)
    sender.send(name, b"large, parks", value, [("retry-attempt", b"bad")])
    for n in range(OTHERS):
        sender.send(name, b"k%d" % n, b"v%d" % n)
    assert len(sender.finish()) == OTHERS + 2
    tail = Tail(deployment.bootstrap_servers, [target, deployment.parked])
    tail.await_seen(OTHERS + 2)
    tail.close()
    came = {record.key: record for record in tail.records}
    assert (came[b"large"].topic, came[b"large"].value) == (target, value)
    parked = came[b"large, parks"]
    assert (parked.topic, parked.header("retry-parked-reason"), parked.value) == (deployment.parked, "bad_attempt", value)
    await_that("nothing waits", lambda: worker.metric("retry_entries_waiting") == 0)
    assert health(worker)["refused"] == {}
    worker.terminate()


def test_explain_of_a_letter_that_waits_behind_a_refused_one_names_that(deploy: Deploy) -> None:
    deployment, name, _ = deploy_one_topic(deploy, YOUNG, "old_timestamp: park, ordered: true")
    worker, sender = deployment.worker().start().await_ready(), Sender(deployment.bootstrap_servers)
    sender.send(name, b"k", b"one", timestamp_ms=wall_ms() - 2 * HOUR_MS)
    sender.send(name, b"k", b"two")
    letters = {letter.value: source for source, letter in sender.finish().items()}
    await_that("health names the first", lambda: set(health(worker)["refused"]) == {letters[b"one"]})
    await_that(
        "explain of the second does, too", lambda: f"{letters[b'one']}, which " in explain_letter(deployment, letters[b"two"])
    )
    worker.terminate()
