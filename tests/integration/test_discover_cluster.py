"""`retry discover` on a real broker: letters as frameworks write them, 500 topics, and nothing is changed by it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from retry.clock import monotonic_s, wall_ms
from retry.kafka import consumer_groups, offset_ranges
from retry.kafka.local_broker import LocalBroker
from retry.kafka.topics import describe
from retry.policies.policy_file import load
from retry.policies.topic_names import find_topic_fault
from tests.support.committed_offsets import commit_offsets
from tests.support.process import ROOT
from tests.support.reading import QUIET, admin
from tests.support.secured import Right, SecuredBroker
from tests.support.topics import create_all

pytestmark = pytest.mark.check

FIXTURES = ROOT / "tests" / "fixtures"
# Of letters without a file of their own name the topic would not say whose they are.
FILES = [*sorted((FIXTURES / "captured").glob("*.jsonl")), *sorted((FIXTURES / "letters").glob("*.jsonl"))]
KEPT = {"retention.ms": "-1"}
MANY, DEAD = 500, 40


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker that nobody else makes topics on."""
    with LocalBroker(tmp_path_factory.mktemp("discover")) as broker:
        yield broker


@pytest.fixture(scope="module")
def letters(own: LocalBroker) -> dict[str, list[dict[str, Any]]]:
    """The letters of all frameworks on their topics, by topic; those that were captured under the names that they had."""
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for file in FILES:
        prefix = "" if file.parent.name == "captured" else f"{file.stem}."
        for line in file.read_text().splitlines():
            letter = json.loads(line)
            by_topic.setdefault(prefix + letter["topic"], []).append(letter)
    origins = {letter["expect"].get("origin_topic") for of in by_topic.values() for letter in of} - {None, *by_topic}
    made = [*by_topic, *sorted(name for name in origins if find_topic_fault(name) is None)]
    create_all(admin(own.bootstrap_servers), [NewTopic(name, 2, 1, config=KEPT) for name in made])
    producer = Producer({"bootstrap.servers": own.bootstrap_servers, "logger": QUIET})
    for topic, of in by_topic.items():
        for letter in of:
            headers = [(name, _raw(value)) for name, value in letter["headers"]]
            producer.produce(topic, _raw(letter["value"]), _raw(letter["key"]), 0, headers=headers)
    assert producer.flush(60) == 0
    commit_offsets(own.bootstrap_servers, "order-service", [TopicPartition("orders", 0, 0)])
    return by_topic


def _raw(encoded: str | None) -> bytes | None:
    return None if encoded is None else base64.b64decode(encoded)


def run(servers: str, *arguments: str, code: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "RETRY_BOOTSTRAP_SERVERS": servers, **environ}
    ended = subprocess.run([sys.executable, "-m", "retry", *arguments], cwd=ROOT, env=env, capture_output=True, text=True,
                           timeout=300, check=False)  # fmt: skip
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return ended


def rows(servers: str, *arguments: str, **environ: str) -> dict[str, dict[str, Any]]:
    told = run(servers, "discover", "--json", *arguments, **environ).stdout
    return {row["topic"]: row for row in map(json.loads, told.splitlines())}


def state(servers: str) -> dict[str, object]:
    """All that a client could change: topics, their settings and ends, groups and what they have committed."""
    client = admin(servers)
    places = offset_ranges.partitions_of(client, lambda topic: topic != "__consumer_offsets", 20)
    groups = consumer_groups.list_groups(client)
    return {
        "topics": describe(client, {topic for topic, _ in places}),
        "ends": offset_ranges.find_offsets_at(client, places, OffsetSpec.latest(), 20),
        "groups": {group: consumer_groups.read_positions(client, group) for group in groups},
    }  # fmt: skip


def test_the_letters_of_every_framework_are_found_and_said_whose_they_are(
    own: LocalBroker, letters: dict[str, list[dict[str, Any]]]
) -> None:
    before = state(own.bootstrap_servers)
    told = rows(own.bootstrap_servers)
    families = {family for row in told.values() for family in row["families"]}
    expected = {file.stem for file in FILES} - {"own", "unknown"}
    assert families - {"own", "unknown"} == expected and len(expected) >= 20
    for topic in ("orders-dlt", "stock-dlt"):
        assert told[topic]["families"] == {"spring-kafka": len(letters[topic])}
        assert told[topic]["found_by"] == "name and letters"
    assert told["orders-dlq"]["families"] == {"kafka-connect": 1} and told["order-count-dlq"]["families"] == {"kafka-streams": 1}
    assert (told["orders-dlt"]["retry_to"], told["orders-dlt"]["groups"]) == ("origin", {"order-service": 2})
    assert told["orders-dlt"]["origin_readers"] == {"orders": ["order-service"]}
    assert told["orders-dlt"]["newest_ms"] > wall_ms() - 600_000 and told["orders-dlt"]["per_second"] > 0
    # Spring reads these by itself.
    assert not told["orders-retry-200"]["attached"]
    assert state(own.bootstrap_servers) == before


def test_the_file_is_accepted_and_attaches_what_was_found(
    own: LocalBroker, letters: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    file = tmp_path / "policies.yaml"
    told = run(own.bootstrap_servers, "discover", "--out", str(file)).stdout
    assert f"next: retry policies check {file}" in told
    assert run("nowhere:1", "policies", "check", str(file)).stdout.endswith(": OK\n")
    attached = {topic for topic, row in rows(own.bootstrap_servers).items() if row["attached"]}
    registry = load(file)
    assert set(registry.exact) == attached >= {topic for topic in letters if topic.endswith(("-dlt", "-dlq"))}
    # Without --out it is the same text, but for the time.
    shown = run(own.bootstrap_servers, "discover").stdout
    assert shown.splitlines()[3:10] == file.read_text().splitlines()[3:10]
    text = file.read_text()
    assert run(own.bootstrap_servers, "discover", "--out", str(file), code=2).stderr.endswith("or another name\n")
    assert file.read_text() == text
    file.write_text("")
    run(own.bootstrap_servers, "discover", "--out", str(file), "--overwrite")
    assert load(file).exact.keys() == attached


def test_the_letters_of_every_framework_are_tried_under_the_file_that_was_made(
    own: LocalBroker, letters: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    file, before = tmp_path / "policies.yaml", state(own.bootstrap_servers)
    run(own.bootstrap_servers, "discover", "--out", str(file))
    told = json.loads(run(own.bootstrap_servers, "try", "--file", str(file), "--json").stdout)
    attached = set(load(file).exact) & letters.keys()
    assert {topic: told["topics"][topic] for topic in attached} == {topic: len(letters[topic]) for topic in attached}
    assert told["letters"] == sum(told["now"].values()) == sum(row["letters"] for row in told["by_policy"])
    targets = {row["target"] for row in told["by_policy"] if row["policy"].endswith("/orders-dlt")}
    assert targets == {"orders"} and told["retried"] > told["parked"]
    assert state(own.bootstrap_servers) == before


def test_headers_of_a_teams_own_become_aliases_by_which_letters_are_understood(own: LocalBroker, tmp_path: Path) -> None:
    create_all(admin(own.bootstrap_servers), [NewTopic(name, 1, 1) for name in ("legacy.bills", "legacy.bills.DLT")])
    producer = Producer({"bootstrap.servers": own.bootstrap_servers, "logger": QUIET})
    headers = [("x-exception", b"com.acme.Refused"), ("x-source-topic", b"legacy.bills"), ("x-error-text", b"no such bill")]
    for n in range(30):
        producer.produce("legacy.bills.DLT", b"%d" % n, headers=headers, timestamp=wall_ms() - 1_000 * n)
    assert producer.flush(60) == 0
    file = tmp_path / "policies.yaml"
    run(own.bootstrap_servers, "discover", "--topics", "legacy.*", "--out", str(file))
    shown = run(own.bootstrap_servers, "inspect", "--topic", "legacy.bills.DLT", "--limit", "1", "--file", str(file)).stdout
    row = json.loads(shown)
    assert (row["family"], row["exception"], row["message"]) == ("ad-hoc", "com.acme.Refused", "no such bill")
    assert (row["decision"], row["target"]) == ("retry", "legacy.bills")
    (only,) = rows(own.bootstrap_servers, "--topics", "legacy.*").values()
    assert (only["letters"], only["sampled"], only["window"]) == (30, 20, "1h")
    assert 0.05 < only["per_second"] <= 2


def test_where_nothing_is_found_that_is_said_and_the_file_is_good_all_the_same(own: LocalBroker, tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    ended = run(own.bootstrap_servers, "discover", "--topics", "no such topic", "--out", str(file))
    assert "no topic looks like dead letters" in ended.stderr and load(file).exact == {}


def test_letters_of_open_and_undone_transactions_are_not_looked_at(own: LocalBroker) -> None:
    create_all(admin(own.bootstrap_servers), [NewTopic("undone.DLT", 1, 1)])
    producer = Producer({"bootstrap.servers": own.bootstrap_servers, "logger": QUIET, "transactional.id": "undone"})
    producer.init_transactions(60)
    for end in ("commit_transaction", "abort_transaction", "flush"):
        producer.begin_transaction()
        producer.produce("undone.DLT", end.encode(), headers={"exception-class": b"com.acme.Refused"})
        producer.flush(60)
        getattr(producer, end)(60)
    (only,) = rows(own.bootstrap_servers, "--topics", "undone.*").values()
    assert only["sampled"] == 1
    producer.abort_transaction(60)


@pytest.mark.slow
def test_five_hundred_topics_take_seconds(own: LocalBroker, capsys: pytest.CaptureFixture[str]) -> None:
    dead = [f"many.team{n % 7}.t{n}.DLT" for n in range(DEAD)]
    plain = [f"many.team{n % 7}.t{n}" for n in range(MANY - DEAD)]
    client = admin(own.bootstrap_servers)
    create_all(client, [NewTopic(name, 3, 1) for name in (*dead, *plain)])
    producer = Producer({"bootstrap.servers": own.bootstrap_servers, "logger": QUIET})
    for n, topic in enumerate((*dead, *plain)):
        headers = {"original-topic": topic.removesuffix(".DLT"), "exception-class": "com.acme.Refused"} if n < DEAD else {}
        for partition in range(3):
            for _ in range(30):
                producer.produce(topic, bytes(300), None, partition, headers=headers)
    assert producer.flush(120) == 0
    for n in range(50):
        commit_offsets(own.bootstrap_servers, f"many-group-{n}", [TopicPartition(plain[n], 0, 0)])
    before, began_s = state(own.bootstrap_servers), monotonic_s()
    told = rows(own.bootstrap_servers, "--topics", "many.*")
    took_s = monotonic_s() - began_s
    with capsys.disabled():
        print(f"\nretry discover: {MANY} topics of 3 partitions, {DEAD} of dead letters, 50 groups: {took_s:.1f} s")
    assert set(told) == set(dead)
    assert all(row["sampled"] == 60 and row["letters"] == 90 and row["attached"] for row in told.values())
    assert {row["team"] for row in told.values()} == {f"team{n}" for n in range(7)}
    # It takes two or three.
    assert took_s < 30
    assert state(own.bootstrap_servers) == before


def test_rights_to_read_and_to_describe_are_enough_and_what_may_not_be_read_is_named(secured: SecuredBroker) -> None:
    names = ("seen.orders", "seen.orders.DLT", "hidden.DLT", "locked.DLT")
    create_all(secured.admin, [NewTopic(name, 1, 1) for name in names])
    producer = Producer({"bootstrap.servers": secured.inner.bootstrap_servers, "logger": QUIET})
    headers = {"original-topic": "seen.orders", "exception-class": "com.acme.Refused"}
    for topic in names[1:]:
        producer.produce(topic, b"letter", headers=headers)
    assert producer.flush(60) == 0
    commit_offsets(secured.inner.bootstrap_servers, "seen-group", [TopicPartition("seen.orders", 0, 0)])
    secured.add_user("discoverer", "secret-of-discoverer")
    user = "User:discoverer"
    reads, sees = Right(user, "topic", "seen.", "read", prefixed=True), Right(user, "topic", "locked.DLT", "describe")
    secured.grant([reads, sees, Right(user, "group", "*", "describe")])
    environ = secured.environ("discoverer", "secret-of-discoverer")
    servers = environ.pop("RETRY_BOOTSTRAP_SERVERS")
    ended = run(servers, "discover", "--json", **environ)
    (row,) = map(json.loads, ended.stdout.splitlines())
    assert (row["topic"], row["retry_to"]) == ("seen.orders.DLT", "origin")
    assert row["origin_readers"] == {"seen.orders": ["seen-group"]}
    assert "locked.DLT" in ended.stderr and "hidden.DLT" not in ended.stderr
    assert "secret-of-discoverer" not in ended.stdout + ended.stderr
