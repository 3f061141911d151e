"""Mappings to policies: every mistake is refused with its place and with what would be right."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff import Constant, Exponential, Linear, PolicyInvalid, Steps, duration_ms, duration_text
from backoff.parse import DEFAULT, parse_curve, parse_policy
from backoff.policy import JITTERS


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("0s", 0), ("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("3d", 259_200_000),
     ("1h30m", 5_400_000), ("1d1h1m1s1ms", 90_061_001), ("90m", 5_400_000), ("3653d", 315_619_200_000)],
)  # fmt: skip
def test_durations_as_people_write_them(text, expected_ms):
    assert duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    "text",
    ["", "s", "5", "-5s", "+5s", "1.5h", "5 s", " 5s", "5s\n", "5S", "1m1h", "1s1s", "1w", "10y", "1e3s", "inf", "٣s",
     "3654d", "9" * 40 + "s", pytest.param("9" * 10_000_000 + "s", id="10 MB of digits"),
     5, 5.0, None, True, ["5s"], float("nan")],
)  # fmt: skip
def test_anything_else_is_no_duration(text):
    with pytest.raises(PolicyInvalid) as refused:
        duration_ms(text, "max_age")
    assert refused.value.path == "max_age"
    assert len(str(refused.value)) < 200


@given(st.integers(0, 3_653 * 86_400_000))
def test_a_duration_survives_being_written_and_read(ms):
    assert duration_ms(duration_text(ms)) == ms


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ({"kind": "constant", "delay": "5s"}, Constant(5_000, 3_600_000)),
        ({"kind": "constant", "delay": "0s", "max_delay": "0s"}, Constant(0, 0)),
        ({"kind": "linear", "delay": "5s", "step": "1m", "max_delay": "1d"}, Linear(5_000, 60_000, 86_400_000)),
        ({"kind": "exponential", "delay": "5s", "factor": 1}, Exponential(5_000, 1.0, 3_600_000)),
        ({"kind": "exponential", "delay": "5s", "factor": 1.5}, Exponential(5_000, 1.5, 3_600_000)),
        ({"kind": "steps", "delays": ["1m", "5m"]}, Steps((60_000, 300_000), 3_600_000)),
    ],
)
def test_a_curve_is_what_the_mapping_says(mapping, expected):
    assert parse_curve(mapping) == expected


EXPONENTIAL = {"kind": "exponential", "delay": "1s", "factor": 2}
CURVES_REFUSED = [
    ({}, "kind", "constant, linear, exponential, steps"),
    ({"kind": "fibonacci"}, "kind", "constant, linear, exponential, steps"),
    ({"kind": ["steps"]}, "kind", "constant, linear, exponential, steps"),
    ({"kind": "constant"}, "delay", "is missing"),
    ({"kind": "constant", "delay": "-5s"}, "delay", "write it like"),
    ({"kind": "constant", "delay": "5s", "factor": 2}, "factor", "constant has delay and max_delay"),
    ({"kind": "constant", "delay": "2h"}, "delay", "above max_delay, 1h"),
    ({"kind": "constant", "delay": "1s", "max_delay": "11y"}, "max_delay", "write it like"),
    ({"kind": "constant", "delay": "1s", "max_delay": "3654d"}, "max_delay", "ten years"),
    ({"kind": "linear", "delay": "1s"}, "step", "is missing"),
    ({"kind": "linear", "delay": "1s", "step": "-1s"}, "step", "write it like"),
    ({"kind": "exponential", "delay": "1s"}, "factor", "is missing"),
    *((EXPONENTIAL | {"factor": bad}, "factor", "from 1 to 1,000") for bad in
      (0, 0.99, -2, 1e308, 10**400, 16**9_000, math.inf, -math.inf, math.nan, True, "2", None, [2])),
    ({"kind": "steps"}, "delays", "is missing"),
    ({"kind": "steps", "delays": []}, "delays", "list of 1 to"),
    ({"kind": "steps", "delays": "1m"}, "delays", "list of 1 to"),
    ({"kind": "steps", "delays": ["1s"] * 1_001}, "delays", "list of 1 to"),
    ({"kind": "steps", "delays": ["1m", "x"]}, "delays[1]", "write it like"),
    ({"kind": "steps", "delays": ["1m", "2h"]}, "delays[1]", "above max_delay"),
]  # fmt: skip


@pytest.mark.parametrize(("mapping", "path", "reason"), CURVES_REFUSED)
def test_a_curve_is_refused_with_its_place(mapping, path, reason):
    with pytest.raises(PolicyInvalid) as refused:
        parse_policy({"backoff": mapping})
    assert refused.value.path == f"backoff.{path}"
    assert reason in refused.value.reason


@pytest.mark.parametrize(
    ("mapping", "path", "reason"),
    [
        ({"backof": {}}, "backof", "known are backoff, jitter"),
        ({"backoff": "5s"}, "backoff", "not a mapping"),
        ({"backoff": None}, "backoff", "nothing is not a mapping"),
        ({"jitter": "some"}, "jitter", "none, full, equal, proportional"),
        ({"jitter": 1.5}, "jitter", "none, full, equal, proportional"),
        ({"jitter": ["full"]}, "jitter", "none, full, equal, proportional"),
        ({"max_attempts": -1}, "max_attempts", "from 0 to 1,000,000"),
        ({"max_attempts": 1_000_001}, "max_attempts", "from 0 to 1,000,000"),
        ({"max_attempts": 2.0}, "max_attempts", "whole number"),
        ({"max_attempts": True}, "max_attempts", "whole number"),
        ({"max_age": "-1d"}, "max_age", "write it like"),
        ({"max_age": 3}, "max_age", "write it like"),
        ({"honour_retry_at": "yes"}, "honour_retry_at", "true or false"),
        ({"honour_retry_at": 1}, "honour_retry_at", "true or false"),
    ],
)
def test_a_policy_is_refused_with_its_place(mapping, path, reason):
    with pytest.raises(PolicyInvalid) as refused:
        parse_policy(mapping)
    assert refused.value.path == path
    assert reason in refused.value.reason


def test_nothing_said_is_the_base():
    assert parse_policy({}) == DEFAULT


def test_each_key_replaces_its_own_field():
    said = {"jitter": "none", "max_attempts": 2, "max_age": "1m", "honour_retry_at": False}
    found = parse_policy(said | {"backoff": {"kind": "constant", "delay": "1s", "max_delay": "2s"}})
    assert (found.curve, found.jitter, found.max_attempts) == (Constant(1_000, 2_000), JITTERS["none"], 2)
    assert (found.max_age_ms, found.max_delay_ms, found.honour_retry_at) == (60_000, 2_000, False)


def test_a_new_backoff_keeps_the_cap_of_the_base_unless_it_names_one():
    base = parse_policy({"backoff": {"kind": "constant", "delay": "1s", "max_delay": "5m"}})
    assert parse_policy({"backoff": {"kind": "steps", "delays": ["1m"]}}, base).max_delay_ms == 300_000


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("1s")


@given(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["constant", "linear", "exponential", "steps"])},
        optional={key: scalars | st.lists(scalars) for key in ("delay", "step", "factor", "delays", "max_delay")},
    )
)
def test_no_mapping_makes_any_other_error_and_no_curve_is_unusable(mapping):
    with contextlib.suppress(PolicyInvalid):
        made = parse_curve(mapping)
        assert 0 <= made(1) <= made(10**6) <= made.max_delay_ms or isinstance(made, Steps)
