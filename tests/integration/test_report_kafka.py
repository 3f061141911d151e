"""The report over a real broker: outcomes and retries as the service writes them, beside what others leave there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from retry.errors import RetryError
from retry.kafka.local_broker import LocalBroker
from retry.telemetry import offset_records
from retry.telemetry.outcomes import Outcome, to_json
from retry.telemetry.offset_records import Position

pytest.importorskip("pyspark")

from retry.analytics import spark_kafka_options, text
from retry.analytics.report import Lateness, Line, Report, run
from retry.analytics.spark_session import session

DAY_MS = 1_700_000_000_000
Header = tuple[str, bytes]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("broker")) as local:
        yield local


@pytest.fixture(scope="module")
def reports(broker: LocalBroker) -> dict[str, Report | str]:
    """Every report of this file, out of one session: a second one would cost seconds and prove nothing more."""
    _create(broker)
    _fill(broker)
    options = spark_kafka_options.options(broker.bootstrap_servers, {})
    answers: dict[str, Report | str] = {}
    with session() as spark:
        answers["found"] = run(spark, options, "app-outcomes")
        answers["elsewhere"] = run(spark, options, "app-outcomes", ["empty-topic"])
        for topic in ("missing-topic", "empty-topic"):
            with pytest.raises(RetryError) as error:
                run(spark, options, topic)
            answers[topic] = str(error.value)
        soon = {"kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "1000"}
        with pytest.raises(RetryError) as error:
            run(spark, spark_kafka_options.options("127.0.0.1:1", {}) | soon, "app-outcomes")
        answers["no broker"] = str(error.value)
    return answers


def test_the_numbers_are_exact(reports: dict[str, Report | str]) -> None:
    report = reports["found"]
    assert isinstance(report, Report)
    assert (report.unreadable, report.other_version) == (4, 1)
    assert report.retry_topics == ["kept.retry", "shop.retry"]
    bill, shop, strict = report.lines
    assert bill == Line("bill", "bill/kept", letters=1, retries=1, recovered={1: 1})
    assert strict == Line("shop", "shop/orders#1", letters=1, parked={"rule": 1})
    late, shop.lateness = shop.lateness, None
    assert shop == Line("shop", "shop/orders", 8, 5, {1: 1, 2: 1}, {"max_attempts": 1}, waiting=2)
    assert isinstance(late, Lateness)
    assert late.measured == 5
    assert late.p50_ms <= late.p90_ms <= late.p99_ms <= late.max_ms


def test_retries_are_looked_for_where_the_operator_says(reports: dict[str, Report | str]) -> None:
    report = reports["elsewhere"]
    assert isinstance(report, Report)
    assert [line.retries for line in report.lines] == [0, 0, 0]
    assert sum(line.waiting for line in report.lines) == 5


@pytest.mark.parametrize("topic", ["missing-topic", "empty-topic"])
def test_no_outcomes_is_said_in_words(reports: dict[str, Report | str], topic: str) -> None:
    assert "missing or empty" in str(reports[topic])


def test_no_broker_is_said_in_a_line(reports: dict[str, Report | str]) -> None:
    assert "cannot be read" in str(reports["no broker"])
    assert "\n" not in str(reports["no broker"])


def test_the_table_has_a_line_for_each_policy_and_their_sum(reports: dict[str, Report | str]) -> None:
    report = reports["found"]
    assert isinstance(report, Report)
    lines = text.table(report).splitlines()
    assert lines[-3].split()[:5] == ["all", "10", "6", "3", "2"]
    assert lines[-1] == "not counted: 4 unreadable outcomes, 1 of another version"


def _create(broker: LocalBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    appended = {"message.timestamp.type": "LogAppendTime"}
    topics = [
        NewTopic("app-outcomes", 3, 1),
        NewTopic("empty-topic", 1, 1),
        NewTopic("shop.retry", 2, 1, config=appended),
        NewTopic("kept.retry", 1, 1),
    ]
    for created in admin.create_topics(topics).values():
        created.result(20)


def _fill(broker: LocalBroker) -> None:
    """In one transaction all that counts, in an aborted one what must not count."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "fill"})
    producer.init_transactions(20)
    producer.begin_transaction()
    _retry(producer, "shop.retry", "lost", 1, DAY_MS)
    producer.produce("app-outcomes", _outcome("lost", 1))
    producer.flush(20)
    producer.abort_transaction(20)
    producer.begin_transaction()
    _fill_shop(producer)
    _fill_others(producer)
    producer.commit_transaction(20)


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
    producer.produce("shop.retry", b"no headers at all")
    producer.produce("shop.retry", b"no number", headers=[("retry-id", b"gone"), ("retry-attempt", b"\xff")])
    for value in (b"not json", b"\xff\xfe\x00", None, b'{"v": 1, "id": "half"}'):
        producer.produce("app-outcomes", value)
    producer.produce("app-outcomes", b'{"v": 3, "id": "from the future"}')
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
        "v": 1, "id": lineage, "source": f"orders.DLT/0/{lineage}-{attempt}", "team": "shop", "topic": "orders.DLT",
        "policy": "shop/orders", "attempt": attempt, "exception": "Gateway", "first_failed_ms": DAY_MS - 100,
        "failed_ms": DAY_MS - 100, "taken_ms": DAY_MS + attempt, "decision": "retry", "reason": None,
        "due_ms": DAY_MS, "target": "shop.retry", "cause": None, "fingerprint": None, "group": None, "delay_ms": 100,
    }  # fmt: skip
    return to_json(Outcome(**{**usual, **other}))  # type: ignore[arg-type]
