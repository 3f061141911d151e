"""Commands count letters, not offsets, on topics that were written in transactions, of which each ends with a mark."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer

from retry.clock import wall_ms
from retry.kafka import client_config, offset_ranges
from retry.kafka.local_broker import LocalBroker
from retry.kafka.topic_ends import read_newest_records
from retry.operations.cluster import Cluster
from retry.operations.discover import look
from retry.operations.discover.policy_text import discover, facts_of
from retry.settings import Settings
from tests.conftest import Deploy
from tests.support.deployment import Deployment
from tests.support.reading import QUIET

pytestmark = pytest.mark.check

LETTERS, UNDONE = 40, 150


@pytest.fixture
def transactional(deploy: Deploy) -> Deployment:
    """One partition with 40 letters of one transaction each, and in the end 150 letters that were undone."""
    deployment = deploy({"orders": 1})
    (topic,) = deployment.dead_letters
    producer = Producer({"bootstrap.servers": deployment.bootstrap_servers, "transactional.id": topic, "logger": QUIET})
    producer.init_transactions()
    for n in range(LETTERS):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % n, b"%d" % n, headers=[("exception-class", b"com.acme.Bad")])
        producer.commit_transaction()
    producer.begin_transaction()
    for _ in range(UNDONE):
        producer.produce(topic, b"undone", b"undone")
    producer.flush()
    producer.abort_transaction()
    return deployment


def run_command(deployment: Deployment, *arguments: str) -> list[dict[str, Any]]:
    ended = deployment.command(*arguments)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def offsets(deployment: Deployment, *arguments: str) -> list[int]:
    return [row["offset"] for row in run_command(deployment, "inspect", "--topic", *deployment.dead_letters, *arguments)]


def test_so_many_letters_are_inspected_as_were_asked_for(transactional: Deployment) -> None:
    assert offsets(transactional) == list(range(0, 2 * LETTERS, 2))
    assert offsets(transactional, "--limit", "3") == [74, 76, 78]
    assert offsets(transactional, "--limit", "3", "--from-offset", "11") == [12, 14, 16]
    assert len(offsets(transactional, "--limit", "1000")) == LETTERS


def test_so_many_letters_are_tried_as_were_asked_for(transactional: Deployment) -> None:
    (result,) = run_command(transactional, "try", "--json", "--newest", "15")
    assert result["letters"] == 15


def test_a_topic_written_in_transactions_is_not_called_empty_and_its_letters_are_counted(transactional: Deployment) -> None:
    (topic,) = transactional.dead_letters
    (found,) = run_command(transactional, "discover", "--json", "--topics", topic)
    assert (found["letters"], found["is_letters_estimate"], found["sampled"]) == (LETTERS, False, 20)
    assert not [question for question in found["questions"] if "empty" in question]
    # All were written just now.
    assert found["window"] == "1h" and found["oldest_ms"] <= found["newest_ms"]


def test_letters_of_a_larger_topic_are_reckoned_from_those_that_were_read(
    transactional: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    (topic,) = transactional.dead_letters
    monkeypatch.setattr(look, "_SMALL_OFFSETS", 10)
    cluster = Cluster(Settings(bootstrap_servers=transactional.bootstrap_servers))
    (found,) = discover(cluster, "cluster", [topic], 30, lambda _: None).topics
    # Of 231 offsets the newest 211 were read, and those have 30 letters.
    assert (found.letters, found.is_letters_estimate, found.sampled) == (33, True, 30)
    assert "about 33 letters in 1 partition" in facts_of(found, wall_ms())[0]


def test_the_newest_that_was_sent_is_found_behind_ends_of_transactions(transactional: Deployment) -> None:
    (topic,) = transactional.dead_letters
    settings = Settings(bootstrap_servers=transactional.bootstrap_servers)
    values = [message.value() for message, _ in read_newest_records(settings, topic, lambda _partitions: 12)]
    assert values == [b"%d" % n for n in range(LETTERS - 12, LETTERS)]


def test_the_first_records_of_a_span_are_read_and_no_more(transactional: Deployment, broker: LocalBroker) -> None:
    (topic,) = transactional.dead_letters
    cluster = Cluster(Settings(bootstrap_servers=broker.bootstrap_servers))
    spans = list(offset_ranges.find_readable_spans(client_config.connect_admin(cluster.settings), topic, [0]).values())
    read = [message.offset() for batch in offset_ranges.read_batches(cluster.reader, spans, records_max=5) for message in batch]
    assert read == [0, 2, 4, 6, 8]
