"""Two policy files side by side, and the advice as rows, for people and for JSON."""

from __future__ import annotations

import json

import pytest

from retry.analytics.advice.choose_attempts import choose
from retry.analytics.advice.compare import compare_policies, format_comparison
from retry.analytics.advice.evidence import Cell, Evidence, Kind
from retry.analytics.advice.replay import Start
from retry.analytics.advice.summary import choose_advice_by_kind, make_advice_rows, sum_saving
from retry.policies.policy_file import parse
from retry.policies.registry import Registry

EVIDENCE = {
    Kind("shop", "Timeout"): Evidence.from_cells(
        [Cell(n, 1_000, *ended, age_ms=n * 1_000) for n, ended in enumerate(((500, 500), (0, 500), (0, 500)), 1)]
    ),
    Kind("shop", None): Evidence.from_cells([Cell(1, 1_000, 1, 9, age_ms=1_000)]),
}
STARTS = [Start("shop", "d", kind.exception, False, 0, evidence.letters) for kind, evidence in EVIDENCE.items()]


def registry(attempts: int, rules: str = "[]") -> Registry:
    timing = f"backoff: {{kind: constant, delay: 1s}}, jitter: none, max_attempts: {attempts}"
    return parse(f"teams: {{shop: {{topics: [{{dead_letters: d, retry_to: r, {timing}, rules: {rules}}}]}}}}", "p")


def test_the_sums_are_those_of_the_kinds_and_the_kind_that_changes_most_comes_first() -> None:
    found = compare_policies(registry(3), registry(1), STARTS, EVIDENCE)
    assert (found["now"]["letters"], found["now"]["retries"], found["tried"]["retries"]) == pytest.approx((1_010, 2_028, 1_010))
    assert found["now"]["recovered"] == found["tried"]["recovered"] == pytest.approx(501)
    assert [kind["exception"] for kind in found["kinds"]] == ["Timeout", None]
    for name in ("letters", "retries", "recovered", "parked"):
        assert sum(kind["now"][name] for kind in found["kinds"]) == pytest.approx(found["now"][name])
    assert json.loads(json.dumps(found)) == found


def test_the_table_has_both_files_for_each_kind_and_says_what_is_not_known() -> None:
    said = format_comparison(compare_policies(registry(3), registry(5, "[{message: a, park: true}]"), STARTS, EVIDENCE))
    assert [line.split()[0] for line in said[1:7:2]] == ["all", "shop", "shop"]
    # Of ten letters one attempt was made, of the others three.
    assert said[7].startswith("now: 18 retries are of attempts that were never made, 0 after delays")
    assert said[9].startswith("tried: 1,036 retries are of attempts that were never made, 0 after delays")
    assert len(said) == 12
    assert said[-1].endswith("shop/d#1")


def test_a_name_cannot_leave_its_line() -> None:
    kind = Kind("shop", "a\nteams: {}\x1b[2J\u202e")
    said = format_comparison(compare_policies(registry(1), registry(1), [Start("shop", "d", kind.exception, False, 0, 5)], {}))
    assert len(said) == 5 + 2 * 2 + 0
    assert all(line.isprintable() for line in said)


def test_advice_is_in_rows_where_most_is_saved_first() -> None:
    advice = choose_advice_by_kind(EVIDENCE)
    rows = make_advice_rows(EVIDENCE, advice)
    assert [(row["exception"], row["verdict"], row["attempts"]) for row in rows] == [
        ("Timeout", "fewer", 1),
        (None, "unknown", 1),
    ]
    assert [hazard["hazard"] for hazard in rows[0]["hazards"]] == [0.5, 0, 0]
    assert all(h["hazard_low"] <= h["hazard"] <= h["hazard_high"] for row in rows for h in row["hazards"])
    assert sum_saving(advice) == {"retries": 1_000, "of": 2_010, "share": pytest.approx(1_000 / 2_010), "kept_low": 0.99}
    assert sum_saving({}) == {"retries": 0, "of": 0, "share": 0.0, "kept_low": 0.99}
    assert json.loads(json.dumps(rows)) == rows
    assert choose(EVIDENCE[Kind("shop", None)]).missing == 90
