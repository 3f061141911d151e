"""`retry explain TOPIC/PARTITION/OFFSET` on a real broker, for a letter in every place that it can be in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from retry.clock import wall_ms
from retry.delay_queue import control_records
from tests.conftest import Deploy
from tests.support.deployment import Deployment, await_that
from tests.support.letters import Headers, Sender
from tests.support.reading import COMMITTED, QUIET, read

pytestmark = pytest.mark.check

DEFAULTS = "{backoff: {kind: constant, delay: 300ms}, jitter: none, max_attempts: 3, max_age: 1d}"
RULES = (
    "rules: [{exception: '*.Bad', park: true}, {exception: '*.Slow', jitter: equal, backoff: {kind: constant, delay: 30m}},"
    " {exception: '*.Ordered', ordered: true, backoff: {kind: constant, delay: 30m}}]"
)


def failure_headers(exception: str) -> Headers:
    cause = b"com.acme." + exception.encode()
    return [("kafka_dlt-exception-fqcn", b"com.acme.Wrapper"), ("kafka_dlt-exception-cause-fqcn", cause),
            ("kafka_dlt-exception-message", b"customer \x1b[31m17"), ("kafka_dlt-original-topic", b"shop"),
            ("kafka_dlt-original-partition", b"\0\0\0\3"), ("kafka_dlt-original-offset", b"\0\0\0\0\0\0\x30\x39")]  # fmt: skip


def explain_letter(deployment: Deployment, letter: str, *args: str) -> list[str]:
    told = deployment.command("explain", letter, *args)
    assert (told.returncode, told.stderr) == (0, "")
    return told.stdout.splitlines()


def facts(deployment: Deployment, letter: str, *args: str) -> dict[str, Any]:
    return json.loads("\n".join(explain_letter(deployment, letter, "--json", *args)))


def send_letters(deployment: Deployment, *letters: tuple[bytes | None, Headers]) -> list[str]:
    """Sends letters to the first dead-letter topic, all to partition 0, and says their coordinates."""
    sender, topic = Sender(deployment.bootstrap_servers), next(iter(deployment.dead_letters))
    for key, headers in letters:
        sender.send(topic, key, b"s3cret", headers, partition=0)
    return sorted(sender.finish(), key=lambda source: int(source.rsplit("/", 1)[1]))


def take_in(deployment: Deployment, letters: int, sends: int) -> None:
    """Runs a worker until it has taken in so many letters, and sent those that are due."""
    worker = deployment.worker().start().await_ready()
    await_that("all are taken in", lambda: worker.metric("retry_letters_consumed_total") == letters)
    await_that("what is due has left", lambda: worker.metric("retry_entries_sent_total") == sends)
    worker.terminate()


def test_a_letter_is_explained_wherever_it_is(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, defaults=DEFAULTS, topic_keys=RULES)
    (topic,), (target,) = deployment.dead_letters, deployment.retry_topics()
    slow, bad, quick, first, second = send_letters(
        deployment,
        (b"a", failure_headers("Slow")),
        (b"b", failure_headers("Bad")),
        (b"c", failure_headers("Quick")),
        (b"d", failure_headers("Ordered")),
        (b"d", failure_headers("Ordered")),
    )
    take_in(deployment, 5, sends=2)
    records = read(deployment.bootstrap_servers, [target, deployment.parked], COMMITTED)
    done = {record.header("retry-source"): record for record in records}

    told = facts(deployment, slow)
    decided, says = told["decision"], told["sentences"]
    assert (told["state"], told["family"], told["cause"]) == ("waiting", "spring-kafka", "com.acme.Slow")
    assert told["name"] == f"{decided['due_ms']}/{slow}"
    assert decided["failed_ms"] + 900_000 <= decided["due_ms"] <= decided["failed_ms"] + 1_800_000
    assert (decided["policy"], decided["attempt"], decided["target"]) == (f"testers/{topic}#2", 1, target)
    assert "  Rule 2 matches; the policy is" in "\n".join(says["policy"])
    assert any(line.startswith("The delay of retry 1 is 30m, of which jitter (equal) makes ") for line in says["due"])
    assert says["now"][0].startswith(f"It waits at {told['name']} to go to {target}, for another ")
    assert any("That one is retried 15m to " in line for line in says["next"])
    assert not any("changed" in line for lines in says.values() for line in lines)

    told = facts(deployment, bad)
    parked = done[bad]
    assert (told["state"], told["decision"]["reason"]) == ("parked", "rule")
    assert told["sent_to"] == f"{parked.topic}/{parked.partition}/{parked.offset}"

    told = facts(deployment, quick)
    retried = done[quick]
    assert told["state"] == "retried"
    assert (told["sent_to"], told["sent_ms"]) == (f"{target}/{retried.partition}/{retried.offset}", retried.timestamp_ms)
    assert told["decision"]["id"] == retried.header("retry-id")
    assert told["sent_ms"] >= told["decision"]["due_ms"] == int(retried.header("retry-due-ms"))

    head = facts(deployment, first)
    told = facts(deployment, second)
    assert (head["state"], told["state"]) == ("waiting", "behind")
    assert told["head"] == head["name"]
    lines = explain_letter(deployment, second)
    assert any(f"behind the earlier letter of its key at {head['name']}" in line for line in lines)
    assert "s3cret" not in "".join(lines) and "\x1b" not in "".join(lines)

    _changes_of_the_policy_file(deployment, slow)
    _gone_by_retention(deployment, slow, quick, head=5)


def _changes_of_the_policy_file(deployment: Deployment, slow: str) -> None:
    other = deployment.folder / "other.yaml"
    other.write_text(deployment.policy_file.read_text().replace("delay: 30m", "delay: 5m"))
    says = facts(deployment, slow, "--file", str(other))["sentences"]
    assert "`retry reschedule` has waiting letters decided anew." in says["policy"]
    assert "How its due time came about cannot be told from the present policy file." in says["due"]


def _gone_by_retention(deployment: Deployment, slow: str, quick: str, head: int) -> None:
    topic, partition, _ = slow.rsplit("/", 2)
    asked = deployment.admin.delete_records([TopicPartition(topic, int(partition), head)])
    for done in asked.values():
        done.result(20)
    told = facts(deployment, slow)
    assert told["sentences"]["letter"][0] == f"It is gone from its topic by retention: {topic}/0 begins at offset {head}."
    # The entry has the letter's own headers still.
    assert (told["state"], told["cause"], told["decision"]["attempt"]) == ("waiting", "com.acme.Slow", 1)
    assert not any("changed" in line for line in told["sentences"]["policy"])
    told = facts(deployment, quick)
    assert (told["state"], told["family"]) == ("retried", None)
    assert told["sent_to"]


def test_a_pause_is_why_a_letter_is_overdue(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, defaults=DEFAULTS)
    (letter,) = send_letters(deployment, (b"a", failure_headers("Quick")))
    producer = Producer({"bootstrap.servers": deployment.bootstrap_servers, "logger": QUIET})
    pause = control_records.encode(control_records.Pause(wall_ms(), "their database moves"))
    for shard in range(deployment.shards):
        producer.produce(deployment.names.changelog, pause, control_records.pause_key("team", "testers"), shard)
    assert producer.flush(20) == 0
    worker = deployment.worker().start().await_ready()
    await_that("it is taken in", lambda: worker.metric("retry_letters_consumed_total") == 1)
    await_that("it is held", lambda: worker.metric("retry_lanes_blocked") == 1)
    told = facts(deployment, letter)
    assert (told["state"], told["blocked"]) == ("overdue", "paused by team testers: their database moves")
    assert "It may not go now: paused by team testers: their database moves." in told["sentences"]["now"]
    assert "No worker runs." not in told["sentences"]["now"]
    worker.terminate()


def test_a_letter_that_nobody_has_taken_in(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, defaults=DEFAULTS, topic_keys=RULES)
    (letter,) = send_letters(deployment, (b"a", failure_headers("Slow")))
    told = facts(deployment, letter)
    assert (told["state"], told["decision"]["decision"], told["decision"]["policy"][-2:]) == ("unseen", "retry", "#2")
    assert told["sentences"]["now"] == [
        "It is not taken in yet: the intake group has read nothing of its partition yet, and no worker runs."
    ]
    assert told["sentences"]["due"][-1].startswith("So it would be due at ")
    # The brokers know the topic, but no team of the policy file does.
    other = deployment.folder / "other.yaml"
    other.write_text("teams: {testers: {topics: [{dead_letters: other.DLT, retry_to: other.retry}]}}")
    told = facts(deployment, letter, "--file", str(other))
    assert (told["state"], told["decision"]["reason"]) == ("unread", "no_policy")
    assert told["sentences"]["next"] == ["Nothing happens until a team's section names its topic."]


def test_what_cannot_be_explained_is_said_in_a_line(deployment: Deployment) -> None:
    (topic,) = deployment.dead_letters
    cases = {
        "orders": "is not TOPIC/PARTITION/OFFSET",
        "orders/0/-1": "is not TOPIC/PARTITION/OFFSET",
        "/0/1": "is not TOPIC/PARTITION/OFFSET",
        "orders/0/99999999999999999999": "no such partition or offset",
        "nowhere/0/1": "there is no topic nowhere",
        "no name/0/1": "no name",
        f"{topic}/3/0": "has no partition 3",
        f"{topic}/0/0": "the partition is empty",
    }
    for letter, message in cases.items():
        told = deployment.command("explain", letter)
        assert (told.returncode, told.stdout) == (1, "")
        assert message in told.stderr and len(told.stderr.splitlines()) == 1
