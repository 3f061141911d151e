"""`retry verify` on a real deployment: all is zero through a crash and a pause, and what is forged is named."""

from __future__ import annotations

from threading import Thread
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer, TopicPartition

from retry.clock import wall_ms
from retry.dead_letters import retry_headers as names
from retry.delay_queue.entry_keys import make_key_due_at
from retry.delay_queue.envelopes import HEADERS_MAX
from retry.kafka import offset_ranges, topics
from retry.telemetry import outcomes
from tests.conftest import Deploy
from tests.support.checker import verify_deployment
from tests.support.deployment import Deployment
from tests.support.letters import Sender
from tests.support.outcome_records import tell_of
from tests.support.process import WorkerProcess, await_that
from tests.support.reading import COMMITTED, QUIET, Record, Tail, read

pytestmark = pytest.mark.check

LETTERS = 300
LOAD, LOAD_S = 2_000, 8.0
KINDS = ("lost", "duplicate", "torn", "early", "phantom", "wrong_topic", "stuck")


def wrong(told: dict[str, Any]) -> dict[str, int]:
    """Only what is not zero."""
    tables = told["tables"]["differing"]
    return {kind: told[kind] for kind in KINDS if told[kind]} | ({"tables": tables} if tables else {})


def fail_again(sender: Sender, records: list[Record], dead_letters: str) -> None:
    """Fail again as a consumer does: every third retry goes back, headers and all."""
    for record in records:
        if record.header(names.ATTEMPT) == "1" and int(record.header(names.SOURCE).rsplit("/", 1)[1]) % 3 == 0:
            sender.send(dead_letters, record.key, record.value, record.headers)


def work_through_letters(deployment: Deployment) -> tuple[WorkerProcess, list[Record]]:
    """Letters, of which some fail again, through a kill -9; verified while more of them come. The worker runs on."""
    [topic] = deployment.dead_letters
    worker, sender = deployment.worker().start().await_ready(), Sender(deployment.bootstrap_servers)
    tail = Tail(deployment.bootstrap_servers, deployment.retry_topics())
    for n in range(LETTERS):
        sender.send(topic, b"key-%d" % (n % 50), b"letter %d" % n)
    sender.finish()
    tail.await_seen(LETTERS // 3)
    worker.kill()
    fail_again(sender, tail.records, topic)
    sender.finish()
    worker.start().await_ready()
    load = Thread(target=sender.paced, args=(LOAD, LOAD_S, lambda n: sender.send(topic, b"key-%d" % (n % 50), b"more %d" % n)))
    load.start()
    while load.is_alive():
        assert wrong(verify_deployment(deployment)) == {}
    sender.finish()
    tail.await_seen(len(sender.sent))
    tail.close()
    return worker, tail.records


def retain_half(deployment: Deployment) -> None:
    """Delete a half of every topic but the changelog, as retention does."""
    for topic in (deployment.names.outcomes, *deployment.dead_letters, *deployment.retry_topics()):
        ends = offset_ranges.ends(deployment.admin, topic, range(topics.describe(deployment.admin, [topic])[topic].partitions))
        for done in deployment.admin.delete_records([TopicPartition(topic, n, end // 2) for n, end in ends.items()]).values():
            done.result(20)


def test_a_deployment_is_clean_while_it_runs_and_after(deploy: Deploy) -> None:
    deployment = deploy({"orders": 3}, shards=2, defaults="{backoff: {kind: constant, delay: 1s}, jitter: full}")
    worker, records = work_through_letters(deployment)
    assert deployment.command("pause", "--all").returncode == 0
    sender = Sender(deployment.bootstrap_servers)
    for n in range(50):
        sender.send(next(iter(deployment.dead_letters)), b"held %d" % n, b"held")
    sender.finish()
    await_that("they wait", lambda: worker.metric("retry_entries_waiting") == 50)
    running = verify_deployment(deployment)
    assert wrong(running) == {}
    assert running["letters"] == len(records) + 50
    assert (running["waiting"], running["tables"]["checked"]) == (50, 2)
    worker.terminate()
    # What is held is told of as unchecked once it is due for a minute, which may come in between.
    but = {"aborted": 0, "unchecked": {}}
    assert {**verify_deployment(deployment), **but} == {**running, **but}
    retain_half(deployment)
    left = verify_deployment(deployment)
    assert wrong(left) == {}
    assert left["letters"] < running["letters"] and left["unchecked"]


class Forger:
    """Writes what no worker would, with a plain producer."""

    def __init__(self, deployment: Deployment) -> None:
        self._producer = Producer({"bootstrap.servers": deployment.bootstrap_servers, "logger": QUIET})

    def write(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Any = (), partition: int = -1
    ) -> None:
        """Write one record and wait until it is acknowledged."""
        self._producer.produce(topic, value, key, partition, headers=list(headers))
        assert self._producer.flush(20) == 0

    def deliver(self, record: Record, topic: str, **other: bytes) -> None:
        """A delivery once more, with other headers of ours."""
        other = {name.replace("_", "-"): value for name, value in other.items()}
        headers = [(name, other.get(name, value)) for name, value in record.headers]
        self.write(topic, record.key, record.value, headers)


def test_whatever_is_forged_is_named(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1, "others": 1}, shards=2, defaults="{backoff: {kind: constant, delay: 1s}, jitter: none}")
    topic = next(iter(deployment.dead_letters))
    retry, misplaced = deployment.retry_topics()
    worker, sender = deployment.worker().start().await_ready(), Sender(deployment.bootstrap_servers)
    tail = Tail(deployment.bootstrap_servers, [retry])
    for n in range(20):
        sender.send(topic, b"key-%d" % n, b"letter %d" % n)
    sender.finish()
    tail.await_seen(20)
    assert deployment.command("pause", "--all").returncode == 0
    # Due later than this test ends: whatever is due for a minute would be stuck in the end, on a machine that is slow.
    wish_ms = wall_ms() + 1_800_000
    for n in range(20, 24):
        # Each at a time of its own, so that each has a record of its own.
        sender.send(topic, b"key-%d" % n, b"held %d" % n, [("retry-at-ms", b"%d" % (wish_ms + 1_000 * n))])
    sender.finish()
    await_that("they wait", lambda: worker.metric("retry_entries_waiting") == 4)
    worker.terminate()
    assert wrong(verify_deployment(deployment)) == {}
    puts = [r for r in read(deployment.bootstrap_servers, [deployment.names.changelog], COMMITTED) if r.value is not None]
    held = sorted((r for r in puts if b"held" in (r.value or b"")), key=lambda r: r.value or b"")
    records_of_outcomes = read(deployment.bootstrap_servers, [deployment.names.outcomes], COMMITTED)
    forger, (first, second, third, *_) = Forger(deployment), tail.records
    source = f"{topic}/0/".encode()

    changelog, told = deployment.names.changelog, deployment.names.outcomes
    # What was delivered comes once more; the same on a topic where it must not be.
    forger.deliver(first, retry)
    forger.deliver(second, misplaced)
    # Deliveries that go back to no letter, one of them before it is due.
    forger.deliver(third, retry, retry_source=b"nowhere/0/7")
    forger.deliver(third, retry, retry_source=source + b"999", retry_due_ms=b"9999999999999")
    # A delete without a delivery: the letter is nowhere. A delivery without a delete: the entry still waits.
    forger.write(changelog, held[0].key, None, partition=held[0].partition)
    forger.deliver(third, retry, retry_source=source + b"21")
    # An entry that is there twice, an outcome twice, and one of a letter that never was.
    forger.write(changelog, make_key_due_at(held[2].key or b"", 1), held[2].value, partition=held[2].partition)
    outcome = outcomes.read(records_of_outcomes[0].value or b"")[0]
    forger.write(told, None, orjson.dumps(tell_of(outcome)))
    elsewhere = outcome["source"].replace(f"{topic}/0/", f"{topic}/0/77")
    forger.write(told, None, orjson.dumps(tell_of({**outcome, "source": elsewhere})))
    expected = {"lost": 1, "duplicate": 4, "torn": 2, "early": 1, "phantom": 3, "wrong_topic": 1}
    # Nobody can say whose this is, so it is not passed over as one without headers.
    forger.write(retry, None, b"many", headers=[("a", None)] * (HEADERS_MAX + 1))
    found = verify_deployment(deployment)
    assert wrong(found) == expected, found
    assert found["unchecked"]["deliveries whose headers cannot be read"] == 1
    said = {kind: " ".join(some) for kind, some in found["findings"].items()}
    assert f" ({deployment.app_id}-" in said["duplicate"] and "(a producer without transactions, batch at " in said["duplicate"]
    assert all(f"{topic}/0/{n}:" in said["duplicate"] for n in (first.header(names.SOURCE).rsplit("/", 1)[1], 22))
    assert f"{topic}/0/20:" in said["lost"] and f"{topic}/0/20:" in said["torn"] and f"{topic}/0/21:" in said["torn"]
    assert misplaced in said["wrong_topic"] and "nowhere/0/7" in said["phantom"]
    assert deployment.command("resume", "--all").returncode == 0
    assert wrong(verify_deployment(deployment)) == {**expected, "stuck": 1}
    tail.close()
