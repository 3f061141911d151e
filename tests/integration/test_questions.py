"""Each question of the analytics on literal frames."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from retry.analytics.advice.evidence import OTHER
from retry.analytics.questions import fates, fingerprints, policies, recovery
from retry.analytics.questions.fates import list_histories
from retry.analytics.schemas import PARKED
from tests.support.decisions import Row, attempt, frame, park

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
LATE_MS = 1_000_000


@pytest.fixture
def four_histories(spark: SparkSession) -> DataFrame:
    """Four letters: recovered at once, recovered at the second retry, parked after two, pending."""
    return list_histories(frame(spark, _ATTEMPTS), frame(spark, _PARKED, PARKED))


_ATTEMPTS = [
    attempt("once", 1, "recovered"),
    attempt("twice", 1, "failed"), attempt("twice", 2, "recovered"),
    attempt("never", 1, "failed"), attempt("never", 2, "failed"),
    attempt("soon", 1, "failed"), attempt("soon", 2, "pending"),
    attempt("later", 1, "waiting"),
]  # fmt: skip
_PARKED = [park("never", 3), park("old", 1, "max_age")]


def test_a_history_is_the_latest_state_and_the_sum_of_the_retries(four_histories: DataFrame) -> None:
    found = {row["id"]: (row["fate"], row["retries"], row["bytes"], row["watched_ms"]) for row in four_histories.collect()}
    assert found == {
        "once": ("recovered", 1, 100, 1_010),
        "twice": ("recovered", 2, 200, 2_010),
        "never": ("parked", 2, 200, 2_000),
        "soon": ("pending", 2, 200, 2_009),
        "later": ("waiting", 0, 0, 1_020),
        "old": ("expired", 0, 0, 0),
    }


def test_the_curve_by_attempt_counts_only_what_is_known(spark: SparkSession) -> None:
    frames = frame(spark, _ATTEMPTS), frame(spark, _PARKED, PARKED)
    rows = recovery.build_attempt_curves(_rows(recovery.count_by_attempt(*frames, LATE_MS, "team")), "team")
    counts = [[row[name] for name in ("attempt", "at_risk", "recovered", "parked", "expired")] for row in rows]
    assert counts == [[0, 6, 0, 0, 1], [1, 4, 1, 0, 0], [2, 2, 1, 1, 0]]
    assert [row["hazard"] for row in rows] == [None, *map(pytest.approx, (1 / 4, 1 / 2))]
    # One of six is too old at once; of the others a quarter recovers, of the rest one half, and the other half is parked.
    assert [row["part_recovered"] for row in rows] == pytest.approx([0, 5 / 24, 25 / 48])
    assert [row["part_failing"] for row in rows] == pytest.approx([5 / 6, 5 / 8, 0])
    for row in rows:
        assert sum(row[f"part_{way}"] for way in (*recovery.WAYS, "failing")) == pytest.approx(1)
        assert 0 <= row["part_recovered_low"] <= row["part_recovered"] <= row["part_recovered_high"] <= 1


def test_what_failed_too_late_to_have_recovered_is_not_in_the_curves(spark: SparkSession) -> None:
    rows = [attempt("a", 1, "failed", ended_ms=1_000), attempt("b", 1, "failed", ended_ms=1_001)]
    rests = [park("a", 2, parked_ms=1_000), park("b", 2, parked_ms=1_001)]
    frames = frame(spark, rows), frame(spark, rests, PARKED)
    by_attempt = {row["attempt"]: row for row in _rows(recovery.count_by_attempt(*frames, 1_000))}
    assert (by_attempt[1]["at_risk"], by_attempt[1]["parked"]) == (1, 1)
    by_time = _rows(recovery.count_by_time(list_histories(*frames), 1_000))
    assert (sum(row["left"] for row in by_time), sum(row["parked"] for row in by_time)) == (2, 1)


def test_the_curve_by_time_drops_who_was_not_watched_that_long(spark: SparkSession) -> None:
    lived = [("a", "recovered", 1_000, 0), ("b", "parked", 1_500, 0), ("c", "recovered", 4_000, 0), ("d", "pending", 3_000, 0),
             ("e", "waiting", 9_000, 0), ("f", "recovered", 5_000, LATE_MS - 4_000)]  # fmt: skip
    schema = "team string, fate string, watched_ms long, first_failed_ms long"
    found = recovery.build_time_curves(_rows(recovery.count_by_time(spark.createDataFrame(lived, schema), LATE_MS)))
    # Two are decided later than all were watched, or not at all.
    assert [(row["at_risk"], row["recovered"], row["parked"]) for row in found] == [(6, 1, 0), (5, 0, 1), (2, 1, 0)]
    assert [row["part_recovered"] for row in found] == pytest.approx([1 / 6, 1 / 6, 1 / 6 + 4 / 6 / 2])
    assert all(real <= row["time_ms"] <= 1.1 * real for row, real in zip(found, (1_000, 1_500, 4_000), strict=True))


def test_time_to_recovery_is_of_what_recovered(four_histories: DataFrame) -> None:
    (row,) = policies.sum_groups(four_histories.groupBy("team")).collect()
    assert (row["recovered"], row["p50_ms"], row["p99_ms"], row["max_ms"]) == (2, 1_010, 2_010, 2_010)


def test_what_was_sent_for_parked_letters_is_wasted(four_histories: DataFrame) -> None:
    (row,) = policies.sum_groups(four_histories.groupBy("team")).collect()
    assert (row["retries"], row["wasted"], row["bytes"], row["wasted_bytes"]) == (7, 2, 700, 200)


def test_the_comparison_counts_every_letter_once(four_histories: DataFrame) -> None:
    (row,) = policies.sum_groups(four_histories.groupBy("team", "policy")).collect()
    assert (row["letters"], row["recovered"], row["parked"], row["expired"], row["unknown"], row["waiting"]) == (6, 2, 1, 1, 2, 1)
    assert row["recovery"] == 0.5
    (bounded,) = policies.count_by_policy(four_histories, 1)
    assert bounded["recovery_low"] < 0.5 < bounded["recovery_high"]
    assert (bounded["recovery"], bounded["episodes"]) == (0.5, 1)


def test_parked_letters_are_counted_by_reason_and_a_missing_one_is_named(spark: SparkSession) -> None:
    parked = [park("a", 1, "rule"), park("b", 5, "rule"), park("c", 1, "rule", policy="shop/other"), park("d", 1, reason=None)]
    rows = _rows(policies.count_parked_by_reason(frame(spark, parked, PARKED)))
    counts = {(row["policy"], row["reason"]): row["letters"] for row in rows}
    assert counts == {("shop/orders.DLT", "rule"): 2, ("shop/other", "rule"): 1, ("shop/orders.DLT", "unknown"): 1}


def test_samples_are_the_latest_the_latest_parked_and_the_first_letter_of_the_period(spark: SparkSession) -> None:
    tried = [attempt(f"{at}", 1, "failed", failed_ms=at, source=f"orders.DLT/0/{at}") for at in (5, 110, 120, 180, 300)]
    parked = [park(f"p{at}", 2, failed_ms=at, source=f"orders.DLT/1/{at}") for at in (130, 140, 400)]
    frames = frame(spark, tried), frame(spark, parked, PARKED)
    (found,) = _rows(fingerprints.find_samples(*frames, fingerprints.find_top_fingerprints(*frames, 100, 200)))
    assert found["samples"] == ["orders.DLT/0/180", "orders.DLT/1/140", "orders.DLT/0/110"]
    (other,) = _rows(fingerprints.find_samples(*frames, fingerprints.find_top_fingerprints(*frames, 100, 135)))
    assert other["samples"] == ["orders.DLT/1/130", "orders.DLT/0/110"]


def test_fingerprints_are_counted_within_the_period_and_seen_first_before_it(spark: SparkSession) -> None:
    tried = [attempt("a", 1, "failed", failed_ms=at, fingerprint="aa") for at in (5, 110, 120, 180)]
    parked = [park("a", 2, failed_ms=190, fingerprint="aa"), park("b", 1, failed_ms=150, fingerprint=None)]
    frames = frame(spark, tried), frame(spark, parked, PARKED)
    found = _rows(top := fingerprints.find_top_fingerprints(*frames, 100, 200))
    assert [tuple(row[name] for name in ("fingerprint", "failures", "lineages", "parked")) for row in found] == [
        ("aa", 4, 1, 1), (None, 1, 1, 1)]  # fmt: skip
    assert [(row["first_seen_ms"], row["last_seen_ms"], row["earlier"], row["recent"]) for row in found] == [
        (5, 190, 2, 2), (150, 150, 0, 1)]  # fmt: skip
    places = {row["fingerprint"]: row["samples"] for row in _rows(fingerprints.find_samples(*frames, top))}
    assert places == {"aa": ["orders.DLT/0/2", "orders.DLT/0/1"], None: ["orders.DLT/0/1"]}
    steps = _rows(fingerprints.count_over_time(*frames, top, 100, 200, 2).orderBy("fingerprint", "at_ms"))
    assert [(row["fingerprint"], row["at_ms"], row["failures"]) for row in steps] == [
        (None, 100, 1),
        ("aa", 100, 2),
        ("aa", 151, 2),
    ]
    assert fingerprints.count_over_time(*frames, top.where("fingerprint = 'aa'"), 100, 200, 2).count() == 2


def test_a_storm_is_a_minute_far_above_the_median(spark: SparkSession) -> None:
    sent = [attempt(f"{n}-{k}", 1, "failed", sent_ms=n * MINUTE_MS + k) for n in range(5) for k in range(100 if n == 3 else 2)]
    minutes = fingerprints.count_per_minute(frame(spark, [*sent, attempt("x", 1, "waiting")]))
    assert sum(row["sent"] for row in minutes.collect()) == 108
    (row,) = fingerprints.find_storms(minutes, 0, 5 * MINUTE_MS - 1).collect()
    assert (row["minute_ms"], row["sent"], row["median"], row["times"]) == (3 * MINUTE_MS, 100, 2, 50.0)
    assert fingerprints.find_storms(minutes, 0, 5 * MINUTE_MS, least=101).count() == 0


def test_the_storm_of_a_quiet_team_is_measured_by_its_empty_minutes(spark: SparkSession) -> None:
    bursts = [attempt(f"{n}-{k}", 1, "failed", sent_ms=n * HOUR_MS + k) for n in range(3) for k in range(120)]
    minutes = fingerprints.count_per_minute(frame(spark, bursts))
    found = _rows(fingerprints.find_storms(minutes, 0, 3 * HOUR_MS))
    assert [(row["sent"], row["median"], row["times"], row["minutes"]) for row in found] == [(120, 0, 120.0, 3)] * 3
    assert _rows(fingerprints.find_storms(minutes, 0, 3 * HOUR_MS).limit(1))[0]["minutes"] == 3
    assert fingerprints.find_storms(minutes, 0, 2 * MINUTE_MS).count() == 0


def test_only_what_lies_long_enough_on_a_topic_with_retention_is_near_its_end(spark: SparkSession) -> None:
    tried = [attempt("a", 1, fate, sent_ms=at) for fate, at in (("pending", 100), ("pending", 950), ("recovered", 100))]
    parked = [park("b", 1, parked_ms=0), park("c", 1, parked_ms=0, target="kept")]
    limits = spark.createDataFrame(
        [("orders.retry", 1_000), ("orders.parked", 500), ("kept", -1)], "topic string, retention_ms long"
    )
    found = _rows(fates.find_near_retention(frame(spark, tried), frame(spark, parked, PARKED), limits, 1_000).orderBy("kind"))
    assert [(r["topic"], r["kind"], r["letters"], r["left_ms"]) for r in found] == [
        ("orders.parked", "parked", 1, -500), ("orders.retry", "retry", 1, 100)]  # fmt: skip


def test_cells_part_delays_and_keep_what_is_not_known(spark: SparkSession) -> None:
    rows = [attempt(str(n), 1, fate, delay_ms=ms) for n, (fate, ms) in enumerate([
        ("recovered", 1_000), ("failed", 1_010), ("failed", 1_020), ("pending", 4_000), ("waiting", 4_001)])]  # fmt: skip
    found = _rows(recovery.count_cells(frame(spark, rows), 10_000).orderBy("delay_ms"))
    assert [(r["delay_ms"], r["recovered"], r["failed"], r["unknown"], r["bytes"]) for r in found] == [
        (1_010, 1, 2, 0, 300), (4_000, 0, 0, 2, 100)]  # fmt: skip


def test_cells_are_of_a_topic_an_age_and_the_policy_of_the_first_retry(spark: SparkSession) -> None:
    rows = [
        attempt("a", 1, "failed", policy="shop/p"),
        attempt("a", 2, "failed", policy="shop/p#1", first_policy="shop/p", failed_ms=1_000),
        attempt("b", 1, "failed", topic="other.DLT"), attempt("b", 2, "failed", topic="other.DLT", failed_ms=60_000),
    ]  # fmt: skip
    found = _rows(recovery.count_cells(frame(spark, rows), LATE_MS).orderBy("topic", "attempt"))
    assert [(r["topic"], r["policy"], r["attempt"], r["age_ms"]) for r in found] == [
        ("orders.DLT", "shop/p", 1, 1_000), ("orders.DLT", "shop/p", 2, 2_000),
        ("other.DLT", "shop/orders.DLT", 1, 1_000), ("other.DLT", "shop/orders.DLT", 2, 61_000)]  # fmt: skip


def test_kinds_beyond_the_largest_are_one_and_every_retry_is_counted(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "KINDS_MAX", 2)
    names = ["a", "a", "a", None, None, "b", "c"]
    rows = [attempt(f"{n}", 1, "recovered", exception=name) for n, name in enumerate(names)]
    tried = frame(spark, rows)
    cells = _rows(recovery.count_cells(recovery.merge_small_kinds(tried, tried), LATE_MS))
    assert {row["exception"]: row["recovered"] for row in cells} == {"a": 3, None: 2, OTHER: 2}
    lived = recovery.merge_small_kinds(list_histories(tried, frame(spark, [], PARKED)), tried)
    assert {row["exception"]: row["letters"] for row in _rows(recovery.count_starts(lived))} == {"a": 3, None: 2, OTHER: 2}


def test_kinds_stay_apart_where_there_are_no_more_than_are_told_apart(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "KINDS_MAX", 2)
    tried = frame(spark, [attempt(f"{n}", 1, "recovered", exception=name) for n, name in enumerate(["a", "b", "b"])])
    assert recovery.merge_small_kinds(tried, tried) is tried


def test_what_failed_when_nothing_could_have_recovered_yet_is_not_known(spark: SparkSession) -> None:
    rows = [attempt("early", 1, "failed", ended_ms=1_000), attempt("late", 1, "failed", ended_ms=1_001)]
    (row,) = _rows(recovery.count_cells(frame(spark, rows), 1_000))
    assert (row["failed"], row["unknown"]) == (1, 1)


def test_starts_are_counted_by_the_hour(spark: SparkSession) -> None:
    tried = [attempt(str(n), 1, "failed", first_failed_ms=at, cause=cause) for n, (at, cause) in enumerate(
        [(0, None), (HOUR_MS - 1, None), (HOUR_MS, None), (HOUR_MS, "Timeout"), (HOUR_MS, "Other")])]  # fmt: skip
    lived = list_histories(frame(spark, tried), frame(spark, [], PARKED))
    found = {(r["is_cause"], r["hour_ms"]): r["letters"] for r in recovery.count_starts(lived).collect()}
    assert found == {(False, 0): 2, (False, HOUR_MS): 2, (True, HOUR_MS): 1}


def test_lateness_is_taken_over_the_retries_whose_sending_is_known(spark: SparkSession) -> None:
    sent = [attempt(f"a{n}", 1, "recovered", sent_ms=1_000 + n) for n in range(1, 101)]
    untimed = [attempt("b", 1, "recovered", sent_ms=None), attempt("c", 1, "recovered", sent_ms=None, policy="shop/other")]
    (row,) = _rows(policies.measure_lateness(frame(spark, sent + untimed)))
    assert tuple(row.values()) == ("shop", "shop/orders.DLT", 100, 50, 90, 99, 100)


def test_lateness_is_asked_of_the_frame_of_attempts(spark: SparkSession) -> None:
    (row,) = policies.measure_lateness(frame(spark, _ATTEMPTS)).collect()
    assert (row["measured"], row["p50_ms"], row["max_ms"]) == (7, 10, 10)


def _rows(answer: DataFrame) -> list[Row]:
    return [row.asDict() for row in answer.collect()]
