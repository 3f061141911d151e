"""`retry inspect` as a command, `--topic` on a real broker: what it says is what a worker then does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from retry.delay_queue.envelopes import HEADERS_MAX
from retry.intake.attempts import format_retry_id
from tests.conftest import Deploy
from tests.support.deployment import Deployment, await_that
from tests.support.letters import Headers, Sender
from tests.support.process import ROOT
from tests.support.reading import COMMITTED, QUIET, Record, read

pytestmark = pytest.mark.check

SOON = "{backoff: {kind: constant, delay: 300ms}, jitter: full, max_attempts: 3}"
SPRING: Headers = [
    ("kafka_dlt-original-topic", b"shop"), ("kafka_dlt-original-partition", b"\0\0\0\3"),
    ("kafka_dlt-original-offset", b"\0\0\0\0\0\0\x30\x39"), ("kafka_dlt-original-consumer-group", b"shop-service"),
    ("kafka_dlt-exception-fqcn", b"com.acme.Wrapper"), ("kafka_dlt-exception-cause-fqcn", b"com.acme.Bad"),
]  # fmt: skip
CONNECT: Headers = [
    ("__connect.errors.topic", b"shop"), ("__connect.errors.partition", b"1"), ("__connect.errors.offset", b"7"),
    ("__connect.errors.exception.class.name", b"com.acme.Slow"), ("__connect.errors.stage", b"TASK_PUT"),
]  # fmt: skip
LETTERS: list[tuple[bytes | None, bytes | None, Headers]] = [
    (b"spring", b"1", SPRING),
    (b"connect", b"2", CONNECT),
    (None, b"3", []),
    (b"late", None, [("retry-attempt", b"3"), ("retry-id", format_retry_id(7, "testers"))]),
    (b"second", b"5", [("retry-attempt", b"1"), ("retry-id", format_retry_id(8, "testers"))]),
    (b"forged", b"6", [("retry-attempt", b"NaN")]),
]


def inspect_topic(deployment: Deployment, *args: str) -> list[dict[str, Any]]:
    told = deployment.command("inspect", *args)
    assert (told.returncode, told.stderr) == (0, "")
    return [json.loads(line) for line in told.stdout.splitlines()]


def test_what_is_said_is_what_a_worker_does(deploy: Deploy) -> None:
    deployment = deploy({"orders": 3}, defaults=SOON, topic_keys="rules: [{exception: '*.Bad', park: true}]")
    (topic,) = deployment.dead_letters
    sender = Sender(deployment.bootstrap_servers)
    for key, value, headers in LETTERS:
        sender.send(topic, key, value, headers)
    sent = sender.finish()
    said = {f"{row['topic']}/{row['partition']}/{row['offset']}": row for row in inspect_topic(deployment, "--topic", topic)}
    assert set(said) == set(sent)
    worker = deployment.worker().start().await_ready()
    await_that("all have left", lambda: worker.metric("retry_entries_sent_total") == len(sent))
    families = [row["family"] for row in said.values()]
    counts = [f'retry_letters_read_total{{family="{family}"}} {families.count(family)}.0' for family in set(families)]

    def has_counted() -> bool:
        metrics = worker.get("/metrics")[1]
        return all(count in metrics for count in counts)

    # One thread takes in and counts, another sends what was taken in, perhaps before that.
    await_that("what was read is counted", has_counted)
    worker.terminate()
    topics = [*deployment.retry_topics(), deployment.parked]
    done = {record.header("retry-source"): record for record in read(deployment.bootstrap_servers, topics, COMMITTED)}
    assert {source: describe_row(row) for source, row in said.items()} == {
        source: _done(record, said[source]["family"]) for source, record in done.items()
    }
    assert {row["decision"] for row in said.values()} == {"retry", "park"}


# Their letters do not say when they failed, so that the time counts from when they are taken in.
_TIMELESS = ("kafka-connect", "kafka-streams")


def describe_row(row: dict[str, Any]) -> tuple[object, ...]:
    due_ms = None if row["family"] in _TIMELESS else row["due_at_ms"]
    return row["target"], row["lineage"], row["policy"], row["reason"] or "", due_ms


def _done(record: Record, family: str) -> tuple[object, ...]:
    reason = record.header("retry-parked-reason")
    due_ms = None if reason or family in _TIMELESS else int(record.header("retry-due-ms"))
    return record.topic, record.header("retry-id"), record.header("retry-policy"), reason, due_ms


def test_parts_of_a_topic(deployment: Deployment) -> None:
    (topic,) = deployment.dead_letters
    sender = Sender(deployment.bootstrap_servers)
    for n in range(30):
        sender.send(topic, None, b"%d" % n, partition=n % 2)
    sender.finish()

    def places(*args: str) -> list[tuple[int, int]]:
        return sorted((row["partition"], row["offset"]) for row in inspect_topic(deployment, "--topic", topic, *args))

    assert places() == [(p, n) for p in range(2) for n in range(15)]
    assert places("--limit", "2") == [(0, 13), (0, 14), (1, 13), (1, 14)]
    assert places("--partition", "1", "--from-offset", "4", "--limit", "2") == [(1, 4), (1, 5)]
    assert places("--from-offset", "14") == [(0, 14), (1, 14)]
    assert places("--partition", "2") == []


def test_letters_of_undone_and_of_open_transactions_are_not_read(deployment: Deployment) -> None:
    (topic,) = deployment.dead_letters
    # Held until the end: a transaction whose producer is gone stays open all the same, but not for ever.
    producers = []
    for n, end in enumerate(("commit_transaction", "abort_transaction", "flush")):
        producer = Producer({"bootstrap.servers": deployment.bootstrap_servers, "logger": QUIET,
                             "transactional.id": f"{deployment.app_id}-{n}", "transaction.timeout.ms": 600_000})  # fmt: skip
        producers.append(producer)
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce(topic, end.encode(), partition=0)
        producer.flush(20)
        getattr(producer, end)(20)
    assert [(row["partition"], row["offset"]) for row in inspect_topic(deployment, "--topic", topic)] == [(0, 0)]
    # Nobody has waited for its end: it would be refused of one that has timed out.
    producers[-1].abort_transaction(20)


def test_topics_that_are_not_there_are_named(deployment: Deployment) -> None:
    (topic,) = deployment.dead_letters
    cases = [(["nowhere"], "no topic nowhere"), (["no name"], "no name"), ([topic, "--partition", "3"], "no partition 3")]
    for args, message in cases:
        told = deployment.command("inspect", "--topic", *args)
        assert (told.returncode, told.stdout) == (1, "")
        assert message in told.stderr and "Traceback" not in told.stderr


def test_the_service_need_not_be_set_up(deployment: Deployment) -> None:
    (topic,) = deployment.dead_letters
    sender = Sender(deployment.bootstrap_servers)
    sender.send(topic, b"k", bytes(990_000))
    sender.finish()
    told = deployment.command("inspect", "--topic", topic, RETRY_APP_ID=f"{deployment.app_id}x")
    assert json.loads(told.stdout)["decision"] == "retry"
    # Without a policy file too.
    told = deployment.command("inspect", "--topic", topic, RETRY_APP_ID=f"{deployment.app_id}x", RETRY_POLICIES="")
    assert json.loads(told.stdout)["reason"] == "no_policy"


def test_a_pointer_is_decided_with_the_record_that_it_names(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1})
    (topic,), shop = deployment.dead_letters, f"{deployment.app_id}.shop"
    deployment.create({shop: (1, {})})
    deployment.policy_file.write_text(
        f"teams: {{t: {{topics: [{{dead_letters: {topic}, retry_to: {deployment.retry_of(topic)}, origins: [{shop}],"
        f" rules: [{{headers: {{tenant: blue}}, park: true}}]}}]}}}}"
    )
    origins, letters = Sender(deployment.bootstrap_servers), Sender(deployment.bootstrap_servers)
    origins.send(shop, b"k", b"v", [("tenant", b"blue")])
    origins.finish()
    for offset in (b"0", b"7"):
        place: Headers = [("__dlq.errors.topic", shop.encode()), ("__dlq.errors.partition", b"0")]
        group: Headers = [("__dlq.errors.offset", offset), ("__dlq.errors.group", b"billing")]
        letters.send(topic, None, None, [*place, *group], partition=0)
    letters.finish()
    found, gone = inspect_topic(deployment, "--topic", topic)
    assert (found["family"], found["policy"], found["reason"]) == ("share-group", f"t/{topic}#1", "rule")
    assert gone["reason"] == "source_gone"
    assert "pointer" not in found


def test_headers_that_the_client_cannot_read_are_not_shown_as_none(deployment: Deployment) -> None:
    (topic,) = deployment.dead_letters
    config = {"bootstrap.servers": deployment.bootstrap_servers, "compression.type": "zstd", "message.max.bytes": 10 << 20}
    producer = Producer({**config, "logger": QUIET})
    for count in (HEADERS_MAX + 1, 0):
        producer.produce(topic, b"v", b"%d" % count, 0, headers=[("a", None)] * count)
    assert producer.flush(60) == 0
    assert [row["reason"] for row in inspect_topic(deployment, "--topic", topic)] == ["unreadable_headers", None]
    says = json.loads(deployment.command("explain", f"{topic}/0/0", "--json").stdout)["sentences"]
    assert says["letter"][0].endswith("has headers that cannot be read: more than 100,000, or a name that is not UTF-8.")
    assert json.loads(deployment.command("explain", f"{topic}/0/1", "--json").stdout)["sentences"]["letter"][0].endswith(
        "has no headers that tell who wrote it."
    )


def test_whoever_stops_reading_is_not_told_of_it(tmp_path: Path) -> None:
    path = tmp_path / "letters.jsonl"
    path.write_text('{"topic": "orders.DLT", "headers": []}\n' * 5_000)
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "retry", "inspect", str(path)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert os.read(reader, 10)
    os.close(reader)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0
