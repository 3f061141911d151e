"""Advice of older letters, tried on newer ones."""

from __future__ import annotations

import pytest

from retry.analytics.advice.choose_attempts import Advice
from retry.analytics.advice.compare import backtest, format_backtest
from retry.analytics.advice.evidence import Cell, Evidence, Kind

KIND = Kind("shop", "a.Timeout", ("orders.DLT", "returns.DLT"), ("shop/orders",))


def advice(attempts: int, verdict: str = "fewer", delays_ms: dict[int, int] | None = None) -> Advice:
    return Advice(verdict, 3, attempts, delays_ms or {}, 900, 500.0, 499.0, 0.99, 4_000, 2_000)


def make_evidence(
    topic: str, *counts: tuple[int, int, int], exception: str | None = "a.Timeout", policy: str = "shop/orders"
) -> dict:
    cells = [Cell(attempt, 1_000, *count) for attempt, count in enumerate(counts, 1)]
    return {Kind("shop", exception, (topic,), (policy,)): Evidence.from_cells(cells)}


def test_retries_beyond_the_advised_attempts_are_left_out_and_what_they_recovered_is_lost() -> None:
    found = backtest({KIND: advice(1)}, make_evidence("orders.DLT", (60, 38, 2), (5, 33, 0), (0, 33, 0)))
    (row,) = found["kinds"]
    assert (row["letters"], row["retries"], row["left_out"]) == (100, 171, 71)
    assert (row["recovered"], row["kept"], row["kept_share"]) == (65, 60, pytest.approx(60 / 65))
    assert row["kept_low"] < 60 / 65 < row["kept_high"]
    assert (row["attempts_now"], row["attempts"], row["topics"]) == (3, 1, ["orders.DLT", "returns.DLT"])
    assert {name: found["all"][name] for name in ("letters", "retries", "left_out", "recovered", "kept")} == {
        "letters": 100, "retries": 171, "left_out": 71, "recovered": 65, "kept": 60,
    }  # fmt: skip


def test_topics_that_were_counted_together_are_tried_together_and_all_others_go_on_as_they_were() -> None:
    newer = {
        **make_evidence("orders.DLT", (10, 10, 0), (0, 10, 0)), **make_evidence("returns.DLT", (20, 0, 0)),
        **make_evidence("others.DLT", (1, 1, 0), (1, 0, 0)), **make_evidence("orders.DLT", (0, 5, 0), (0, 5, 0), exception=None),
        **make_evidence("orders.DLT", (0, 7, 0), (0, 7, 0), policy="shop/orders#1"),
    }  # fmt: skip
    found = backtest({KIND: advice(1)}, newer)
    (row,) = found["kinds"]
    assert (row["letters"], row["left_out"], row["kept"], row["recovered"]) == (40, 10, 30, 30)
    assert (found["all"]["letters"], found["all"]["retries"], found["all"]["left_out"]) == (54, 77, 10)
    assert (found["all"]["recovered"], found["all"]["kept"]) == (32, 32)


def test_advice_that_leaves_nothing_out_is_not_tried_and_delays_are_counted() -> None:
    kept = Kind("shop", "b.Other", ("orders.DLT",), ("shop/orders",))
    newer = {**make_evidence("orders.DLT", (10, 0, 0)), **make_evidence("orders.DLT", (4, 4, 0), exception="b.Other")}
    found = backtest({KIND: advice(3, "keep"), kept: advice(3, "delays", {1: 60_000})}, newer)
    assert (found["kinds"], found["delays"], found["all"]["left_out"], found["all"]["kept"]) == ([], 1, 0, 14)
    assert list(format_backtest(found))[-1].startswith("1 advice of other delays was not tried")


def test_it_is_said_in_a_line_each_and_what_never_recovers_has_no_share() -> None:
    found = backtest({KIND: advice(1)}, make_evidence("orders.DLT", (0, 50, 0), (0, 50, 0)))
    together, row = format_backtest(found)
    assert together == "all: 50 letters, 50 of 100 retries left out, nothing recovered"
    assert row == (
        "shop 'a.Timeout' (orders.DLT, returns.DLT): 1 of 3 attempts, 50 letters, 50 of 100 retries left out, nothing recovered"
    )
    assert found["all"]["kept_share"] is None
    recovering = backtest({KIND: advice(1)}, make_evidence("orders.DLT", (50, 50, 0), (0, 50, 0)))
    assert next(format_backtest(recovering)).endswith("50 of 50 recoveries kept (100.0%, 92.9% to 100.0%)")
