"""What is different from the period before, and which policies were changed."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from retry.analytics.questions.policies import compare_periods

Row = dict[str, Any]
ORDERS = {"team": "shop", "policy": "shop/orders"}


def sums(recovery: float | None = 0.5, wide: float = 0.1, **other: Any) -> Row:
    usual = {"letters": 100, "retries": 300, "recovered": 50, "parked": 40, "expired": 5, "unknown": 5, "recovery": recovery}
    bounds = {"recovery_low": None, "recovery_high": None}
    if recovery is not None:
        bounds = {"recovery_low": recovery - wide, "recovery_high": recovery + wide}
    return ORDERS | usual | bounds | other


def did(attempt: int, delay_ms: int | None, letters: int = 100, **other: Any) -> Row:
    return ORDERS | {"attempt": attempt, "delay_ms": delay_ms, "letters": letters} | other


def test_counts_of_both_periods_stand_beside_each_other_and_what_is_clear_is_said() -> None:
    (row,) = compare_periods([sums(0.9, retries=200)], [sums(0.5)], [], [])
    assert (row["retries"], row["retries_before"], row["recovery"], row["recovery_before"]) == (200, 300, 0.9, 0.5)
    assert (row["parked"], row["expired_before"], row["is_clear"], row["policy_changes"]) == (40, 5, True, [])
    assert not compare_periods([sums(0.65)], [sums(0.5)], [], [])[0]["is_clear"]
    assert not compare_periods([sums(None)], [sums(0.5)], [], [])[0]["is_clear"]


def test_a_policy_of_one_period_alone_has_zeros_in_the_other_and_the_largest_difference_comes_first() -> None:
    gone, new = {"policy": "shop/gone"}, {"policy": "shop/new"}
    rows = compare_periods([sums(), sums(retries=900, **new)], [sums(retries=290), sums(retries=70, **gone)], [], [])
    assert [row["policy"] for row in rows] == ["shop/new", "shop/gone", "shop/orders"]
    assert (rows[0]["letters_before"], rows[0]["recovery_before"], rows[1]["letters"], rows[1]["recovery"]) == (0, None, 0, None)


def test_a_change_of_a_policy_is_seen_in_what_it_did() -> None:
    before = [did(1, 10_200), did(2, 30_000), did(3, 60_000, letters=5), did(8, None)]
    now = [did(1, 61_000), did(2, 33_000), did(3, 600_000), did(5, None, letters=1)]
    (row,) = compare_periods([sums()], [sums()], now, before)
    assert row["policy_changes"] == ["max_attempts 8 → 5", "attempt 1 after 10s → 1m"]
    assert compare_periods([sums()], [sums()], before, before)[0]["policy_changes"] == []
    other = [{**each, "policy": "shop/other"} for each in now]
    assert compare_periods([sums()], [sums()], other, before)[0]["policy_changes"] == []


def test_an_attempt_that_is_also_the_last_one_is_not_taken_for_it() -> None:
    both = [did(3, 60_000), did(3, None)]
    (row, *_) = compare_periods([sums()], [sums()], [did(3, 60_000), did(4, None)], both)
    assert row["policy_changes"] == ["max_attempts 3 → 4"]
