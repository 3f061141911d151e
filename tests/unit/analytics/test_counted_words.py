"""One letter is not `1 letters`: what commands of analytics print, of one thing and of two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from retry.analytics.advice import compare
from retry.analytics.advice.summary import describe_advice
from retry.analytics.text_report import format_report
from tests.support.counted import each_counted, slips
from tests.support.findings import findings


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("1 letter", True), ("1 letters", False), ("11 letters", True), ("1 recovered retries", False), ("2 retry", False),
        ("0 letters", True), ("0 letter", False), ("1 more last attempts would", False), ("1 of 2 attempts", True),
    ],
)  # fmt: skip
def test_a_slip_is_seen(text: str, is_right: bool) -> None:
    assert (slips(text) == []) is is_right


@pytest.mark.parametrize("number", [1, 2])
def test_tables_sentences_of_advice_and_what_was_tried_have_the_word_that_goes_with_the_number(number: int) -> None:
    told = "\n".join(iterate_text(number))
    assert slips(told) == []
    assert told.count(f"{number} {'letter' if number == 1 else 'letters'}") >= 2
    assert f"Of {number} {'recovered retry nobody says' if number == 1 else 'recovered retries nobody says'}" in told
    assert f"{number} more whose end is known {'is' if number == 1 else 'are'} needed" in told


def iterate_text(number: int) -> Iterator[str]:
    found = each_counted(findings() | {"assumed": 7}, number)
    yield from format_report(found)
    for row in found["worth"]:
        for verdict in ("unknown", "fewer", "keep"):
            more: dict[str, Any] = {"verdict": verdict, "attempts_now": 5, "saved": number, "missing": number}
            yield describe_advice(row | more | {"delays_ms": {}})
    row = dict.fromkeys(("letters", "retries", "left_out", "recovered", "kept", "attempts"), number)
    row |= {"team": "shop", "exception": "x", "topics": [], "attempts_now": 5}
    row |= {"kept_share": 0.5, "kept_low": 0.4, "kept_high": 0.6}
    yield from compare.format_backtest({"all": row, "kinds": [row], "delays": number})
    expected = dict.fromkeys(("letters", "retries", "recovered", "recovered_low", "recovered_high", "parked"), number)
    expected |= dict.fromkeys(("unobserved", "unobserved_attempts", "unobserved_delays"), number)
    expected |= dict.fromkeys(("p50_ms", "p90_ms"), 1_500)
    yield from compare.format_comparison({"now": expected, "tried": expected, "kinds": [], "unjudged": []})
