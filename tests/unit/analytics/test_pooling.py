"""Topics and policies of one exception are judged together only where they do not differ."""

from __future__ import annotations

import random

import pytest

from retry.analytics.advice.evidence import OTHER, Cell, Evidence, Kind, may_be_pooled, pool_evidence
from retry.analytics.advice.policy_rewrite import add_rules, list_advice
from retry.analytics.advice.summary import choose_advice_by_kind, make_advice_rows
from retry.dead_letters.failure import Failure
from retry.policies.policy_file import parse
from tests.support.downstream import HOUR_MS, World, cells, steps

FILE = """\
teams:
  shop:
    topics:
      - {dead_letters: a.DLT, retry_to: a.retry, max_attempts: 3}
      - {dead_letters: b.DLT, retry_to: b.retry, max_attempts: 3}
"""


def stratum(topic: str, policy: str | None = None) -> Kind:
    return Kind("shop", "X", (f"{topic}.DLT",), (policy or f"shop/{topic}.DLT",))


def count_cells(*counts: tuple[int, int], unknown: int = 0) -> Evidence:
    return Evidence.from_cells(Cell(n, 1_000, *each, unknown, n * 1_000) for n, each in enumerate(counts, 1))


def attempts(text: str, topic: str) -> int:
    plan = parse(text, "p").route(topic).plan(Failure(exception="X"), attempt=1, age_ms=0, headers=(), null_value=False)
    return plan.policy.max_attempts


def test_a_topic_that_recovers_late_is_not_told_what_is_true_of_another() -> None:
    # Of one exception, thousands that only ever recover at once, and forty of another topic that all do at the third attempt.
    strata = {
        stratum("a"): count_cells((3_000, 2_000), (0, 2_000), (0, 2_000)),
        stratum("b"): count_cells((0, 40), (0, 40), (40, 0)),
    }
    advice = choose_advice_by_kind(pool_evidence(strata))
    assert {kind.topics: each.verdict for kind, each in advice.items()} == {("a.DLT",): "fewer", ("b.DLT",): "unknown"}
    text, added = add_rules(FILE, "p", list_advice(advice, {("shop", topic, "X"): False for topic in ("a.DLT", "b.DLT")}))
    assert (added, attempts(text, "a.DLT"), attempts(text, "b.DLT")) == (1, 1, 3)
    assert [row["where"] for row in make_advice_rows(pool_evidence(strata), advice)] == ["a.DLT", "b.DLT"]


def test_topics_that_do_not_differ_are_judged_together() -> None:
    strata = {stratum("a"): count_cells((60, 60), (0, 60)), stratum("b"): count_cells((55, 62), (0, 62))}
    ((kind, evidence),) = pool_evidence(strata).items()
    assert (kind.topics, kind.policies) == (("a.DLT", "b.DLT"), ("shop/a.DLT", "shop/b.DLT"))
    assert (evidence.letters, evidence.count_ended(2)) == (237, 122)


def test_what_was_not_seen_of_one_is_not_taken_from_the_other() -> None:
    known = count_cells((500, 500), (0, 500))
    waiting = Evidence.from_cells([Cell(1, 1_000, 50, 50), Cell(2, 1_000, 0, 0, unknown=50)])
    assert not may_be_pooled(known, waiting)
    assert len(pool_evidence({stratum("a"): known, stratum("b"): waiting})) == 2


def test_where_policies_of_one_topic_differ_each_has_its_rule() -> None:
    text = FILE.replace(
        "a.retry, max_attempts: 3}", "a.retry, max_attempts: 3, rules: [{message: slow, backoff: {kind: constant, delay: 1h}}]}"
    )
    strata = {
        stratum("a", "shop/a.DLT"): count_cells((500, 500), (0, 500), (0, 500)),
        stratum("a", "shop/a.DLT#1"): count_cells((0, 500), (0, 500), (400, 100)),
    }
    advice = choose_advice_by_kind(pool_evidence(strata))
    changed, added = add_rules(text, "p", list_advice(advice, {("shop", "a.DLT", "X"): False}))
    assert (added, attempts(changed, "a.DLT")) == (1, 1)
    slow = Failure(exception="X", message="slow")
    plan = parse(changed, "p").route("a.DLT").plan(slow, attempt=1, age_ms=0, headers=(), null_value=False)
    assert plan.policy.max_attempts == 3


def test_of_kinds_that_are_not_told_apart_nothing_is_advised() -> None:
    kinds = {Kind("shop", name, ("a.DLT",), ("shop/a.DLT",)): count_cells((0, 500), (0, 500), (0, 500)) for name in ("X", OTHER)}
    told = dict.fromkeys((("shop", "a.DLT", "X"), ("shop", "a.DLT", OTHER)), False)
    advice = choose_advice_by_kind(pool_evidence(kinds))
    assert {kind.exception: each.verdict for kind, each in advice.items()} == {"X": "fewer", OTHER: "unknown"}
    assert {each.exception for each in list_advice(advice, told)} == {"X"}


@pytest.mark.parametrize(("other", "expected"), [((0.5, 0.3, 0.1), (66, 80)), ((0.5, 0.3, 0.5), (0, 8))])
def test_a_test_finds_what_differs_and_seldom_what_does_not(other: tuple[float, ...], expected: tuple[int, int]) -> None:
    chance = random.Random(1)
    one, two = (World(steps((1_000,), 3), each, HOUR_MS, 0, letters=400) for each in ((0.5, 0.3, 0.1), other))
    together = 0
    for _ in range(80):
        first, second = (
            Evidence.from_cells(cells([letter.lives(each.delays) for letter in each.draw(chance.getrandbits(60))], 10**18))
            for each in (one, two)
        )
        together += may_be_pooled(first, second)
    assert expected[0] <= together <= expected[1]
