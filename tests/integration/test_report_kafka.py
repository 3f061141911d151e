"""The report over a real broker: outcomes and retries as the service writes them, beside what others leave there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from zlib import crc32

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from retry.errors import RetryError
from retry.kafka.local_broker import LocalBroker
from retry.telemetry import offset_records
from retry.telemetry.offset_records import Position
from tests.support.outcome_records import tell_of
from tests.support.shared_broker import PATIENT
from tests.support.topics import create_all

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from retry.analytics import datasets, spark_kafka_options
from retry.analytics.decisions import build_decisions
from retry.analytics.findings import findings
from retry.analytics.spark_session import translate_failures
from retry.analytics.text_report import format_report

pytestmark = pytest.mark.check

DAY_MS = 1_700_000_000_000
_ASK_S = 120.0
Header = tuple[str, bytes]
Answers = dict[str, Any]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("broker"), overrides=PATIENT) as local:
        _create(local)
        _fill(local)
        yield local


def report(spark: SparkSession, broker: LocalBroker, *retry_topics: str, outcomes: str = "app-outcomes") -> Answers:
    options = spark_kafka_options.build_options(broker.bootstrap_servers, {})
    answers = findings(
        spark, build_decisions(datasets.read_kafka(spark, options, outcomes, retry_topics).select_period(), settle_ms=0)
    )
    return answers | {"saving": {"retries": 0}, "actions": [], "days_missing": []}


@pytest.fixture(scope="module")
def answers(spark_sessions: Callable[[], SparkSession], broker: LocalBroker) -> Answers:
    return report(spark_sessions(), broker)


COUNTS = ("letters", "recovered", "parked", "waiting", "retries")


def test_the_numbers_are_exact(answers: Answers) -> None:
    policies = {row["policy"]: tuple(row[name] for name in COUNTS) for row in answers["comparison"]}
    assert policies == {
        "bill/kept": (1, 1, 0, 0, 1), "shop/orders#1": (1, 0, 1, 0, 0), "shop/orders": (5, 2, 1, 2, 5),
        "shop/nowhere": (1, 0, 0, 1, 0),
    }  # fmt: skip
    assert tuple(answers["totals"][name] for name in COUNTS) == (8, 3, 2, 3, 6)
    by_attempt = answers["incidence_by_attempt"]
    recovered = {(row["team"], row["attempt"]): row["recovered"] for row in by_attempt if row["attempt"]}
    assert recovered == {("bill", 1): 1, ("shop", 1): 1, ("shop", 2): 1}
    reasons = {(row["policy"], row["reason"]): row["letters"] for row in answers["parked_by_reason"]}
    assert reasons == {("shop/orders#1", "rule"): 1, ("shop/orders", "max_attempts"): 1}
    (late,) = answers["lateness"]
    assert (late["policy"], late["measured"]) == ("shop/orders", 5)
    assert late["p50_ms"] <= late["p90_ms"] <= late["p99_ms"] <= late["max_ms"]


def test_what_cannot_be_counted_is_counted_by_its_reason(answers: Answers) -> None:
    assert answers["not_counted"] == [
        {"why": "retry-attempt is no number", "records": 1},
        {"why": "unreadable", "records": 4},
        {"why": "version 2", "records": 1},
    ]  # fmt: skip


@pytest.mark.slow
def test_retries_are_looked_for_where_the_operator_says(spark: SparkSession, broker: LocalBroker) -> None:
    totals = report(spark, broker, "empty-topic")["totals"]
    # What came back was sent, wherever it lay; of the others none is found there.
    assert (totals["retries"], totals["waiting"]) == (3, 6)


@pytest.mark.parametrize("topic", ["missing-topic", "empty-topic"])
def test_no_outcomes_is_said_in_words(spark: SparkSession, broker: LocalBroker, topic: str) -> None:
    with pytest.raises(RetryError, match="missing or empty"):
        report(spark, broker, outcomes=topic)


def test_no_broker_is_said_in_a_line(spark: SparkSession) -> None:
    soon = {"kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "1000"}
    with pytest.raises(RetryError) as error, translate_failures("app-outcomes cannot be read"):
        datasets.read_kafka(spark, spark_kafka_options.build_options("127.0.0.1:1", {}) | soon, "app-outcomes")
    assert str(error.value).startswith("app-outcomes cannot be read: ")
    assert "\n" not in str(error.value)


def test_the_text_has_a_line_for_each_policy_and_their_sum_in_a_hundred_columns(answers: Answers) -> None:
    text = list(format_report(answers))
    assert all(len(line) <= 100 for line in text)
    words = [line.split() for line in text]
    assert ["shop", "shop/orders", "5", "2", "1", "0", "0", "2", "2", "5"] in [each[:10] for each in words]
    assert ["all", "8", "3", "2", "0", "0", "3", "3", "6"] in words
    assert ["shop", "shop/orders", "max_attempts", "1"] in words
    assert text[-1] == "Records not counted: 1 retry-attempt is no number, 4 unreadable, 1 version 2."


def _create(broker: LocalBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    appended = {"message.timestamp.type": "LogAppendTime"}
    create_all(admin, [
        NewTopic("app-outcomes", 3, 1),
        NewTopic("empty-topic", 1, 1),
        NewTopic("shop.retry", 2, 1, config=appended),
        NewTopic("kept.retry", 1, 1),
        # Of others, whose names have those of this deployment in them.
        NewTopic("my-app-outcomes", 1, 1),
        NewTopic("shop.retry.old", 1, 1),
    ])  # fmt: skip


def _fill(broker: LocalBroker) -> None:
    """In one transaction all that counts, in an aborted one what must not count."""
    # For as long as a busy machine may take, each transaction lives, too.
    lives = {"transaction.timeout.ms": int(_ASK_S * 1_000)}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "fill", **lives})
    producer.init_transactions(_ASK_S)
    producer.begin_transaction()
    _retry(producer, "shop.retry", "lost", 1, DAY_MS)
    producer.produce("app-outcomes", _outcome("lost", 1))
    assert producer.flush(_ASK_S) == 0
    producer.abort_transaction(_ASK_S)
    producer.begin_transaction()
    _fill_shop(producer)
    _fill_others(producer)
    producer.commit_transaction(_ASK_S)


def _fill_shop(producer: Producer) -> None:
    # once: recovered at 1. twice: recovered at 2. never: parked after 2. later, gone: waiting.
    sent = [("once", 1), ("twice", 1), ("twice", 2), ("never", 1), ("never", 2)]
    for lineage, attempt in sent:
        _retry(producer, "shop.retry", lineage, attempt, DAY_MS)
    for lineage, attempt in sent[:-1]:
        producer.produce("app-outcomes", _outcome(lineage, attempt))
    producer.produce("app-outcomes", _outcome("never", 2, policy="shop/orders"))
    parked = {"decision": "park", "due_ms": None, "target": "shop.parked"}
    producer.produce("app-outcomes", _outcome("never", 3, reason="max_attempts", **parked))
    producer.produce("app-outcomes", _outcome("strict", 1, policy="shop/orders#1", reason="rule", **parked))
    producer.produce("app-outcomes", _outcome("later", 1))


def _fill_others(producer: Producer) -> None:
    producer.produce("app-outcomes", _outcome("kept", 1, team="bill", policy="bill/kept", target="kept.retry"))
    _retry(producer, "kept.retry", "kept", 1, DAY_MS)
    producer.produce("app-outcomes", _outcome("gone", 1))
    producer.produce("my-app-outcomes", _outcome("theirs", 1))
    _retry(producer, "shop.retry.old", "later", 1, DAY_MS)
    producer.produce("app-outcomes", _outcome("nowhere", 1, policy="shop/nowhere", target=""))
    producer.produce("shop.retry", b"no headers at all")
    producer.produce("shop.retry", b"no number", headers=[("retry-id", b"gone"), ("retry-attempt", b"\xff")])
    for value in (b"not json", b"\xff\xfe\x00", None, b'{"v": 1, "id": "half"}'):
        producer.produce("app-outcomes", value)
    producer.produce("app-outcomes", b'{"v": 2, "id": "from the future"}')
    sampled = Position(group="shop", topic="shop.retry", partition=0, offset=3, at_ms=DAY_MS)
    producer.produce("app-outcomes", offset_records.to_json(sampled), offset_records.KEY)


def _retry(producer: Producer, topic: str, lineage: str, attempt: int, due_ms: int) -> None:
    headers: list[Header] = [
        # What the letter had before: the last one is ours.
        ("retry-id", b"someone else's"),
        ("retry-id", lineage.encode()),
        ("retry-attempt", b"%d" % attempt),
        ("retry-due-ms", b"%d" % due_ms),
    ]
    producer.produce(topic, b"order", headers=list(headers))


def _outcome(lineage: str, attempt: int, **other: object) -> bytes:
    usual: dict[str, object] = {
        "v": 1, "id": lineage, "source": f"orders.DLT/0/{crc32(lineage.encode()) + attempt}", "team": "shop",
        "topic": "orders.DLT", "policy": "shop/orders", "attempt": attempt, "exception": "Gateway",
        "first_failed_ms": DAY_MS - 100, "failed_ms": DAY_MS - 100, "taken_ms": DAY_MS + attempt, "decision": "retry",
        "reason": None, "due_ms": DAY_MS, "target": "shop.retry", "cause": None, "fingerprint": None, "group": None,
        "action": None, "action_kind": None,
    }  # fmt: skip
    return orjson.dumps(tell_of({**usual, **other}))
