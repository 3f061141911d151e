"""Each question of the report on literal frames."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from retry.analytics import kafka_source, transforms
from retry.analytics.schema import OUTCOME, RETRY

SHOP, BILL = ("shop", "shop/orders"), ("bill", "bill/invoices")
APPENDED, CREATED = 1, 0


def test_letters_counts_every_outcome_by_team_and_policy(spark: SparkSession) -> None:
    outcomes = _outcomes(spark, _outcome("a", 1), _outcome("a", 2, "park"), _outcome("b", 1, whose=BILL))
    assert _rows(transforms.letters(outcomes)) == [(*BILL, 1), (*SHOP, 2)]


def test_sent_finds_a_retry_only_on_the_topic_that_its_outcome_names(spark: SparkSession) -> None:
    outcomes = _outcomes(spark, _outcome("a", 1), _outcome("b", 1), _outcome("c", 1, "park"))
    retries = _retries(spark, _retry("a", 1), _retry("b", 1, topic="elsewhere"), _retry("c", 1), _retry("a", 2))
    sent = transforms.sent(outcomes, retries)
    assert _rows(sent) == [(*SHOP, "orders.retry", "a", 1, 100, 130)]


def test_a_retry_that_was_decided_twice_and_sent_twice_counts_twice(spark: SparkSession) -> None:
    again = {**_outcome("a", 1), "source": "a/again"}
    sent = transforms.sent(_outcomes(spark, _outcome("a", 1), again), _retries(spark, _retry("a", 1), _retry("a", 1)))
    assert sent.count() == 2


def test_retries_sent_counts_by_team_and_policy(spark: SparkSession) -> None:
    sent = _sent(spark, (*SHOP, "a", 1, 0), (*SHOP, "a", 2, 0), (*BILL, "b", 1, None))
    assert _rows(transforms.retries_sent(sent)) == [(*BILL, 1), (*SHOP, 2)]


def test_the_latest_outcome_decides_the_fate_of_a_lineage(spark: SparkSession) -> None:
    outcomes = _outcomes(
        spark,
        _outcome("recovered", 1), _outcome("recovered", 2),
        _outcome("parked", 1), _outcome("parked", 2, "park", reason="max_attempts"),
        _outcome("waiting", 1), _outcome("waiting", 2),
    )  # fmt: skip
    found = [("recovered", 1), ("recovered", 2), ("parked", 1), ("waiting", 1)]
    sent = _sent(spark, *((*SHOP, lineage, attempt, 0) for lineage, attempt in found))
    assert _rows(transforms.fates(outcomes, sent)) == [
        ("parked", *SHOP, 2, "max_attempts", "parked"),
        ("recovered", *SHOP, 2, None, "recovered"),
        ("waiting", *SHOP, 2, None, "waiting"),
    ]


def test_a_later_outcome_counts_even_where_its_attempt_is_not_higher(spark: SparkSession) -> None:
    lost_its_count = {**_outcome("a", 1, "park", reason="max_age"), "source": "a/again", "taken_ms": 99}
    outcomes = _outcomes(spark, _outcome("a", 1), _outcome("a", 2), lost_its_count)
    fates = transforms.fates(outcomes, _sent(spark, (*SHOP, "a", 2, 0)))
    assert _rows(fates) == [("a", *SHOP, 1, "max_age", "parked")]


def test_recovered_by_attempt_counts_lineages(spark: SparkSession) -> None:
    fates = _fates(spark, ("a", 1, "recovered"), ("b", 1, "recovered"), ("c", 3, "recovered"), ("d", 1, "waiting"))
    assert _rows(transforms.recovered_by_attempt(fates)) == [(*SHOP, 1, 2), (*SHOP, 3, 1)]


def test_parked_by_reason_counts_lineages_and_names_a_missing_reason(spark: SparkSession) -> None:
    parked = [("a", 1, "parked", "rule"), ("b", 5, "parked", "rule"), ("c", 1, "parked")]
    fates = _fates(spark, *parked, ("d", 1, "waiting"))
    assert _rows(transforms.parked_by_reason(fates)) == [(*SHOP, "rule", 2), (*SHOP, "unknown", 1)]


def test_waiting_counts_lineages(spark: SparkSession) -> None:
    fates = _fates(spark, ("a", 1, "waiting"), ("b", 5, "waiting"), ("c", 1, "parked"), ("d", 1, "recovered"))
    assert _rows(transforms.waiting(fates)) == [(*SHOP, 2)]


def test_lateness_is_taken_over_the_retries_whose_sending_is_known(spark: SparkSession) -> None:
    known = [(*SHOP, f"a{n}", 1, n) for n in range(1, 101)]
    sent = _sent(spark, *known, (*SHOP, "unknown", 1, None), (*BILL, "unknown", 1, None))
    assert _rows(transforms.lateness(sent)) == [(*SHOP, 100, 50, 90, 99, 100)]


def test_only_whole_outcomes_of_versions_that_are_read_are_counted(spark: SparkSession) -> None:
    whole = b'{"v":1,"id":"a","source":"a/1","team":"t","topic":"d","policy":"p","attempt":1,"exception":null,'
    whole += b'"first_failed_ms":1,"failed_ms":1,"taken_ms":1,"decision":"retry","reason":null,"due_ms":2,"target":"r"}'
    bad = [b"{", b"", None, b"\xff\xfe", b'{"v":1}', b"[1]", whole.replace(b'"attempt":1', b'"attempt":"one"')]
    second = whole.replace(b'"v":1', b'"v":2').replace(b"}", b',"cause":"c","fingerprint":"f","group":"g","delay_ms":7}')
    # What has a kind is no letter, and no trouble.
    position = b'{"group":"g","topic":"r","partition":0,"offset":5,"at_ms":1,"kind":"position","v":1}'
    newer = [whole.replace(b'"v":1', b'"v":3'), b'{"v":4}']
    values = [whole, whole.replace(b"}", b',"new":1}'), second, position, *newer, *bad]
    parsed = kafka_source.parsed(spark.createDataFrame([(value,) for value in values], "value binary"))
    assert parsed.where("unreadable").count() == len(bad)
    assert parsed.where("other_version").count() == 2
    found = [(row["id"], row["v"], row["group"], row["delay_ms"]) for row in kafka_source.outcomes(parsed).collect()]
    assert found == [("a", 1, None, None), ("a", 1, None, None), ("a", 2, "g", 7)]


def test_a_retry_is_read_from_the_last_of_each_header_and_others_are_left_out(spark: SparkSession) -> None:
    ours = _headers(("retry-id", b"old"), ("retry-id", b"a"), ("retry-attempt", b"2"))
    broken = _headers(("retry-id", b"a"), ("retry-attempt", b"two"))
    records = [
        _record(APPENDED, [*ours, *_headers(("retry-due-ms", b"1000"))]),
        _record(CREATED, [*ours, *_headers(("retry-due-ms", b"soon"), ("note", None))]),
        _record(APPENDED, broken),
        _record(APPENDED, []),
        _record(APPENDED, None),
    ]
    retries = kafka_source.retries(_timed(spark, records))
    assert _rows(retries) == [("r", "a", 2, 1000, 1500), ("r", "a", 2, None, None)]


def _rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def _outcomes(spark: SparkSession, *outcomes: dict[str, object]) -> DataFrame:
    return spark.createDataFrame([tuple(each.get(name) for name in OUTCOME.names) for each in outcomes], OUTCOME)


def _outcome(
    lineage: str, attempt: int, decision: str = "retry", whose: tuple[str, str] = SHOP, reason: str | None = None
) -> dict[str, object]:
    team, policy = whose
    return {
        "v": 1, "id": lineage, "source": f"{lineage}/{attempt}", "team": team, "topic": "orders.DLT", "policy": policy,
        "attempt": attempt, "exception": None, "first_failed_ms": 0, "failed_ms": 0, "taken_ms": attempt,
        "decision": decision, "reason": reason, "due_ms": 100, "target": "orders.retry",
    }  # fmt: skip


def _retries(spark: SparkSession, *retries: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(retries), RETRY)


def _retry(lineage: str, attempt: int, topic: str = "orders.retry") -> tuple[object, ...]:
    return topic, lineage, attempt, 100, 130


def _sent(spark: SparkSession, *sent: tuple[str, str, str, int, int | None]) -> DataFrame:
    columns = "team string, policy string, topic string, id string, attempt long, due_ms long, sent_ms long"
    rows = [
        (team, policy, "r", lineage, attempt, 1_000, None if late is None else 1_000 + late)
        for team, policy, lineage, attempt, late in sent
    ]
    return spark.createDataFrame(rows, columns)


def _fates(spark: SparkSession, *fates: tuple[object, ...]) -> DataFrame:
    columns = "id string, team string, policy string, attempt long, reason string, fate string"
    rows = [(i, *SHOP, attempt, reason[0] if reason else None, fate) for i, attempt, fate, *reason in fates]
    return spark.createDataFrame(rows, columns)


def _headers(*headers: tuple[str, bytes | None]) -> list[tuple[str, bytes | None]]:
    return list(headers)


def _record(kind: int, headers: list[tuple[str, bytes | None]] | None) -> tuple[object, ...]:
    return "r", 1_500, kind, headers


def _timed(spark: SparkSession, records: list[tuple[object, ...]]) -> DataFrame:
    columns = "topic string, sent_ms long, timestampType int, headers array<struct<key: string, value: binary>>"
    frame = spark.createDataFrame(records, columns)
    return frame.selectExpr("topic", "timestamp_millis(sent_ms) as timestamp", "timestampType", "headers")
