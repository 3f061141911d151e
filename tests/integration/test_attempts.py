"""Each question of the attempts on literal frames, and all of it against the same rules in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from retry.analytics import attempts
from retry.analytics.questions import fates, recovery
from retry.analytics.questions.fates import list_histories
from retry.analytics.schemas import ATTEMPT, LETTER, POSITION, SENT
from tests.support import attempts as model
from tests.support.events import events, rows

Row = dict[str, Any]
SETTLE_MS, UNTIL_MS = 1_000, 100_000


def test_a_decision_that_was_written_twice_counts_once(spark: SparkSession) -> None:
    letters = [_letter("a", 1), {**_letter("a", 1), "kafka_offset": 7, "taken_ms": 9}, _letter("a", 1, source="other")]
    found = attempts.select_distinct_decisions(_frame(spark, letters, LETTER))
    assert _values(found, "source", "kafka_offset") == [("a/1", 0), ("other", 0)]


def test_what_came_back_is_the_next_attempt_of_the_lineage(spark: SparkSession) -> None:
    letters = [_letter("a", 1, taken_ms=10), _letter("a", 2, taken_ms=20), _park("a", 3, taken_ms=30)]
    letters.append(_letter("b", 2, taken_ms=25))
    found = attempts.add_next_failure(attempts.select_distinct_decisions(_frame(spark, letters, LETTER)))
    assert _values(found, "id", "attempt", "back_ms", "back_as") == [
        ("a", 1, 20, "retry"), ("a", 2, 30, "park"), ("b", 2, None, None),
    ]  # fmt: skip


def test_of_two_letters_with_one_name_as_many_fail_as_come_back(spark: SparkSession) -> None:
    letters = [_letter("a", 1, taken_ms=10), _letter("a", 1, taken_ms=11, source="twin"), _letter("a", 2, taken_ms=20)]
    found = attempts.add_next_failure(attempts.select_distinct_decisions(_frame(spark, letters, LETTER)))
    assert _values(found, "source", "back_ms") == [("a/1", 20), ("a/2", None), ("twin", None)]


def test_a_retry_lies_where_its_decision_says_and_nowhere_else(spark: SparkSession) -> None:
    letters = _frame(spark, [_letter("a", 1), _letter("b", 1), _letter("c", 1)], LETTER)
    sent = [sent_row("a", 1, 5), sent_row("a", 1, 5), sent_row("b", 1, 6, topic="elsewhere"), sent_row("c", 2, 7)]
    found = attempts.add_target_record(letters, _frame(spark, sent, SENT))
    assert _values(found, "id", "sent_partition", "sent_offset", "sent_ms", "bytes") == [
        ("a", 0, 5, 130, 50), ("b", None, None, None, None), ("c", None, None, None, None),
    ]  # fmt: skip


def test_a_retry_is_passed_at_the_first_sample_beyond_it_of_its_own_group(spark: SparkSession) -> None:
    letters = [_letter("a", 1), _letter("b", 1), _letter("c", 1), _letter("d", 1), _letter("e", 1, group=None)]
    sent = [sent_row("a", 1, 5), sent_row("b", 1, 6), sent_row("c", 1, 7), sent_row("d", 1, 5, partition=1), sent_row("e", 1, 4)]
    positions = [_position(5, 200), _position(6, 300), _position(7, 400)]
    positions += [_position(99, 50, group="other"), _position(8, 500, topic="x")]
    lying = attempts.add_target_record(_frame(spark, letters, LETTER), _frame(spark, sent, SENT))
    found = attempts.add_passed_ms(lying, _frame(spark, positions, POSITION))
    assert _values(found, "id", "passed_ms") == [("a", 300), ("b", 400), ("c", None), ("d", None), ("e", None)]


def test_a_group_is_known_that_was_ever_sampled_on_the_target_topic(spark: SparkSession) -> None:
    letters = [_letter("a", 1), _letter("b", 1, group="nobody's"), _letter("c", 1, group=None)]
    letters.append(_letter("d", 1, target="elsewhere"))
    lying = _frame(spark, letters, LETTER)
    sampled = attempts.list_watched(_frame(spark, [_position(1, 1), _position(2, 2)], POSITION))
    found = attempts.add_assumed(lying, sampled)
    assert _values(found, "id", "assumed") == [("a", False), ("b", True), ("c", True), ("d", True)]
    assert _values(attempts.add_assumed(lying, ()), "assumed") == [(True,)] * 4


# Where it lies, when it was sent, passed and came back, and whether the group is unknown → fate and end.
FATES = [
    ((None, None, None, None, False), ("waiting", UNTIL_MS)),
    ((3, 130, None, None, False), ("pending", UNTIL_MS)),
    ((3, 130, UNTIL_MS - SETTLE_MS + 1, None, False), ("pending", UNTIL_MS)),
    ((3, 130, UNTIL_MS - SETTLE_MS, None, False), ("recovered", UNTIL_MS)),
    ((3, 130, 200, None, False), ("recovered", 200 + SETTLE_MS)),
    ((3, 130, 120, None, False), ("recovered", 130 + SETTLE_MS)),
    ((3, 130, 200, 210, False), ("failed", 210)),
    ((None, None, None, 210, False), ("failed", 210)),
    ((3, 130, None, None, True), ("recovered", 130 + SETTLE_MS)),
    ((3, None, None, None, True), ("recovered", 100 + SETTLE_MS)),
    ((3, UNTIL_MS, None, None, True), ("pending", UNTIL_MS)),
    ((None, None, None, None, True), ("waiting", UNTIL_MS)),
]


def test_the_fate_of_an_attempt(spark: SparkSession) -> None:
    columns = "attempt long, sent_offset long, sent_ms long, passed_ms long, back_ms long, assumed boolean"
    seen = spark.createDataFrame([(n, *seen) for n, (seen, _) in enumerate(FATES)], columns)
    lying = _frame(spark, [_letter("a", n) for n in range(len(FATES))], LETTER).join(seen, on="attempt")
    more = ("'retry' back_as", "1L bytes", "policy first_policy")
    found = attempts.decide_fates(lying.selectExpr("*", *more), settle_ms=SETTLE_MS, until_ms=UNTIL_MS)
    assert found.columns == ATTEMPT.names
    assert [tuple(row) for row in found.orderBy("attempt").select("fate", "ended_ms").collect()] == [fate for _, fate in FATES]


def test_the_delay_is_what_was_decided_and_else_counted_from_the_failure(spark: SparkSession) -> None:
    decisions = attempts.select_distinct_decisions(_frame(spark, [_letter("a", 1), _letter("b", 1, delay_ms=7)], LETTER))
    found = attempts.compute_attempts(decisions, _frame(spark, [], SENT), _frame(spark, [], POSITION), until_ms=UNTIL_MS)
    assert _values(found, "id", "delay_ms") == [("a", 90), ("b", 7)]


def test_parked_is_what_was_given_up_on_with_its_reason(spark: SparkSession) -> None:
    letters = [_letter("a", 1), _park("a", 2, taken_ms=30), _park("b", 1, reason="rule")]
    found = attempts.select_parked(attempts.select_distinct_decisions(_frame(spark, letters, LETTER)))
    assert _values(found, "id", "attempt", "parked_ms", "reason") == [("a", 2, 30, "max_attempts"), ("b", 1, 1, "rule")]


def test_a_lineage_ends_as_its_newest_letter(spark: SparkSession) -> None:
    letters = [
        _letter("once", 1), _letter("twice", 1), _letter("twice", 2, taken_ms=50), _letter("given up", 1),
        _park("given up", 2, taken_ms=60), _park("too old", 1, reason="max_age"),
    ]  # fmt: skip
    decisions = attempts.select_distinct_decisions(_frame(spark, letters, LETTER))
    sent = _frame(spark, [sent_row("once", 1, 0), sent_row("twice", 1, 1)], SENT)
    positions = _frame(spark, [_position(9, 150)], POSITION)
    made = attempts.compute_attempts(decisions, sent, positions, settle_ms=SETTLE_MS, until_ms=UNTIL_MS)
    assert _values(list_histories(made, attempts.select_parked(decisions)), "id", "fate") == [
        ("given up", "parked"), ("once", "recovered"), ("too old", "expired"), ("twice", "waiting"),
    ]  # fmt: skip


def test_the_last_thing_that_operators_decided_of_a_letter_stands(spark: SparkSession) -> None:
    moved, sent_elsewhere, dropped, twice = (_letter(id_, 1) for id_ in ("moved", "elsewhere", "dropped", "twice"))
    letters = [
        moved, act_row(moved, "retry", "retry"), sent_elsewhere, act_row(sent_elsewhere, "redirect", "retry", target="slow"),
        dropped, act_row(dropped, "discard", "discard", target="app-discarded"),
        twice, act_row(twice, "discard", "discard"), act_row(twice, "undo", "retry", taken_ms=80, action="0b", due_ms=100),
    ]  # fmt: skip
    decisions = attempts.select_distinct_decisions(_frame(spark, letters, LETTER))
    sent = [sent_row("moved", 1, 0, due_ms=110), sent_row("elsewhere", 1, 0, topic="slow", due_ms=110), sent_row("twice", 1, 1)]
    made = attempts.compute_attempts(
        decisions, _frame(spark, sent, SENT), _frame(spark, [_position(9, 150)], POSITION), settle_ms=SETTLE_MS, until_ms=UNTIL_MS
    )
    assert _values(made, "id", "target", "due_ms", "fate", "exception", "action_kind", "returned") == [
        # Nobody has sampled the group there: it counts as passed when it was sent.
        ("elsewhere", "slow", 110, "recovered", "Gateway", "redirect", False),
        ("moved", "orders.retry", 110, "recovered", "Gateway", "retry", False),
        ("twice", "orders.retry", 100, "recovered", "Gateway", "undo", False),
    ]
    parked = attempts.select_parked(decisions)
    assert _values(parked, "id", "decision", "stands", "exception") == [("dropped", "discard", True, "Gateway")]
    assert _values(list_histories(made, parked), "id", "fate") == [
        ("dropped", "discarded"), ("elsewhere", "recovered"), ("moved", "recovered"), ("twice", "recovered"),
    ]  # fmt: skip


def test_a_letter_that_was_returned_is_not_parked_and_policies_are_judged_without_it(spark: SparkSession) -> None:
    lives = [[_letter(id_, 1), _park(id_, 2, failed_ms=20)] for id_ in ("mended", "broken", "rests")]
    letters = [letter for life in lives for letter in life]
    letters += [act_row(_park(id_, 2, failed_ms=20), "retry", "return", target="orders.retry") for id_ in ("mended", "broken")]
    # It fails once more and parks at once, as a letter of its own.
    letters.append(_park("broken", 3, failed_ms=140, taken_ms=145))
    decisions = attempts.select_distinct_decisions(_frame(spark, letters, LETTER))
    sent = [sent_row(id_, 1, n) for n, id_ in enumerate(("mended", "broken", "rests"))]
    sent += [sent_row("mended", 2, 3, due_ms=110), sent_row("broken", 2, 4, due_ms=110)]
    made = attempts.compute_attempts(
        decisions, _frame(spark, sent, SENT), _frame(spark, [_position(9, 150)], POSITION), settle_ms=SETTLE_MS, until_ms=UNTIL_MS
    ).persist()
    parked = attempts.select_parked(decisions)
    assert _values(made.where("returned"), "id", "attempt", "fate") == [("broken", 2, "failed"), ("mended", 2, "recovered")]
    # The first retry of each failed, whatever became of its letter then.
    assert _values(made.where("not returned"), "id", "fate") == [("broken", "failed"), ("mended", "failed"), ("rests", "failed")]
    assert _values(parked, "id", "attempt", "stands", "by_policy") == [
        ("broken", 2, False, True), ("broken", 3, True, False), ("mended", 2, False, True), ("rests", 2, True, True),
    ]  # fmt: skip
    assert _values(list_histories(made, parked), "id", "fate", "retries") == [
        ("broken", "parked", 2), ("mended", "recovered", 2), ("rests", "parked", 1),
    ]  # fmt: skip
    assert _values(fates.count_acted_by_kind(made, parked), "action_kind", "letters", "recovered", "failed", "parked") == [
        ("retry", 2, 1, 1, 0)
    ]  # fmt: skip
    by_attempt = recovery.count_by_attempt(made, parked, UNTIL_MS, "team")
    # Three begin, all fail once, and are parked: what operators did then no policy has decided.
    assert _values(by_attempt, "attempt", "at_risk", "recovered", "parked") == [(0, 3, 0, 0), (1, 3, 0, 3)]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.check), pytest.param(2, marks=pytest.mark.check)])
def test_whatever_was_written_spark_and_plain_python_say_the_same(spark: SparkSession, seed: int) -> None:
    letters, sent, positions = _muddle(random.Random(seed), 400)
    wanted = model.attempts(letters, sent, positions, settle_ms=SETTLE_MS, until_ms=UNTIL_MS)
    decisions = attempts.select_distinct_decisions(_frame(spark, letters, LETTER))
    made = attempts.compute_attempts(
        decisions, _frame(spark, sent, SENT), _frame(spark, positions, POSITION), settle_ms=SETTLE_MS, until_ms=UNTIL_MS
    ).persist()  # fmt: skip
    assert {row["fate"] for row in wanted} == {"waiting", "pending", "recovered", "failed"}
    assert _values(made, *ATTEMPT.names) == sort_rows(tuple(row[name] for name in ATTEMPT.names) for row in wanted)
    lived = list_histories(made, attempts.select_parked(decisions)).collect()
    assert {row["id"]: row["fate"] for row in lived} == model.lineages(letters, wanted)


@pytest.mark.check
def test_of_generated_letters_the_truth_is_found(spark: SparkSession) -> None:
    made = events(3_000, seed=4)
    sets = ((made.letters, LETTER), (made.sent, SENT), (made.positions, POSITION))
    letters, sent, positions = (_frame(spark, found, schema) for found, schema in sets)
    decisions = attempts.select_distinct_decisions(letters)
    found = attempts.compute_attempts(decisions, sent, positions, until_ms=made.until_ms).persist()
    recovered = found.where("fate = 'recovered'").groupBy("team", "exception", "attempt").count().collect()
    assert Counter({tuple(row[:3]): row[3] for row in recovered}) == made.recovered
    assert found.where("fate in ('waiting', 'pending')").count() == 0
    parked = attempts.select_parked(decisions).groupBy("team", "exception").count().collect()
    assert Counter({tuple(row[:2]): row[2] for row in parked}) == made.parked


def _muddle(chance: random.Random, count: int) -> tuple[list[Row], list[Row], list[Row]]:
    """Records as no service would write them: few ids, so that everything is there twice, late, missing or out of order."""
    letters, sent, positions = [], [], []
    for n in range(count):
        id_, attempt, group = f"id{chance.randrange(count // 5)}", chance.randint(1, 4), chance.choice(["g", "h", None])
        taken_ms = chance.randrange(UNTIL_MS)
        more = {"source": f"s{chance.randrange(3)}", "taken_ms": taken_ms, "failed_ms": n, "group": group, "kafka_offset": n}
        make = _park if chance.random() < 0.1 else _letter
        letter = {**make(id_, attempt), **more, "target": chance.choice(["orders.retry", "slow.retry"])}
        if letter["decision"] == "retry":
            letter |= {"due_ms": taken_ms + chance.randrange(500), "delay_ms": chance.choice([None, 5])}
        if chance.random() < 0.15:
            kind, decision = chance.choice([("retry", "retry"), ("retry", "return"), ("park", "park"), ("discard", "discard")])
            due_ms = taken_ms + 5 if decision in ("retry", "return") else None
            letter = act_row(letter, kind, decision, taken_ms=taken_ms, due_ms=due_ms)
        letters.append(letter)
        if chance.random() < 0.7:
            sent_ms = chance.choice([None, taken_ms + chance.randrange(1_000)])
            retry = sent_row(id_, attempt, n, topic=letter["target"], partition=chance.randrange(2), sent_ms=sent_ms)
            sent.append({**retry, "due_ms": chance.choice([None, taken_ms]), "bytes": n})
    for _ in range(count // 4):
        place = {"topic": chance.choice(["orders.retry", "slow.retry"]), "partition": chance.randrange(2)}
        positions.append({**_position(chance.randrange(count), chance.randrange(UNTIL_MS)), **place})
    chance.shuffle(letters)
    return letters, sent + chance.sample(sent, 20), positions


def _letter(id_: str, attempt: int, **other: object) -> Row:
    return {
        "v": 1, "id": id_, "source": f"{id_}/{attempt}", "team": "shop", "topic": "orders.DLT", "policy": "shop/orders",
        "attempt": attempt, "exception": "Gateway", "first_failed_ms": 0, "failed_ms": 10, "taken_ms": attempt,
        "decision": "retry", "reason": None, "due_ms": 100, "target": "orders.retry", "cause": "Timeout", "fingerprint": "f" * 16,
        "group": "g", "delay_ms": None, "kafka_topic": "app-outcomes", "kafka_partition": 0, "kafka_offset": 0, "action": None,
        "action_kind": None, **other,
    }  # fmt: skip


def act_row(of: Row, kind: str, decision: str, **other: object) -> Row:
    """Make the row of an action's decision on a letter, a while after it was taken in."""
    unknown = dict.fromkeys(("exception", "cause", "fingerprint", "group"))
    due_ms = None if decision in ("park", "discard", "erase") else 110
    given = {"action": "0a", "action_kind": kind, "decision": decision, "reason": None, "due_ms": due_ms, "taken_ms": 70}
    return {**of, **unknown, **given, **other}


def _park(id_: str, attempt: int, **other: object) -> Row:
    parked = {"decision": "park", "reason": "max_attempts", "due_ms": None, "target": "orders.parked"}
    return {**_letter(id_, attempt), **parked, "taken_ms": attempt if attempt == 1 else 2, **other}


def sent_row(id_: str, attempt: int, offset: int, **other: object) -> Row:
    return {
        "topic": "orders.retry", "partition": 0, "offset": offset, "id": id_, "attempt": attempt, "due_ms": 100, "sent_ms": 130,
        "timestamp_ms": 130, "bytes": 50, "team": "shop", **other,
    }  # fmt: skip


def _position(committed: int, at_ms: int, group: str = "g", topic: str = "orders.retry") -> Row:
    return {
        "v": 1, "kind": "position", "group": group, "topic": topic, "partition": 0, "offset": committed, "at_ms": at_ms,
        "kafka_topic": "app-outcomes", "kafka_partition": 0, "kafka_offset": 0,
    }  # fmt: skip


def _frame(spark: SparkSession, found: list[Row], schema: StructType) -> DataFrame:
    return spark.createDataFrame(list(rows(found, schema.names)), schema)


def _values(frame: DataFrame, *names: str) -> list[tuple[object, ...]]:
    return sort_rows(tuple(row) for row in frame.select(*names).collect())


def sort_rows(found: Iterator[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(found, key=repr)
