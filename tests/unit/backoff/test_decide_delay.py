"""The decision at and around each of its limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff import JITTERS, Constant, Park, Policy, RetryAt
from backoff.parse import DEFAULT

NOW_MS = 1_700_000_000_000
POLICY = Policy(
    curve=Constant(5_000, 60_000),
    jitter=JITTERS["none"],
    max_attempts=3,
    max_age_ms=600_000,
    max_delay_ms=60_000,
    honour_retry_at=True,
)


def decide(policy=POLICY, **given_ms):
    usual = {"attempt": 1, "first_failed_at_ms": NOW_MS, "failed_at_ms": NOW_MS, "now_ms": NOW_MS, "draw": 0.5}
    return policy.decide(**(usual | given_ms))


def test_the_delay_counts_from_the_failure():
    assert decide(failed_at_ms=NOW_MS - 1_000) == RetryAt(NOW_MS + 4_000)


def test_a_due_time_in_the_past_stays_in_the_past():
    assert decide(failed_at_ms=NOW_MS - 60_000, first_failed_at_ms=NOW_MS - 60_000) == RetryAt(NOW_MS - 55_000)


@pytest.mark.parametrize(("attempt", "made"), [(1, True), (3, True), (4, False), (2**31, False), (10**30, False)])
def test_the_last_attempt_is_made_and_no_other(attempt, made):
    assert isinstance(decide(attempt=attempt), RetryAt) is made
    assert made or decide(attempt=attempt) == Park("max_attempts")


def test_no_attempts_at_all_parks_the_first():
    assert decide(replace(POLICY, max_attempts=0)) == Park("max_attempts")


@pytest.mark.parametrize(("over_ms", "made"), [(-1, True), (0, True), (1, False)])
def test_age_counts_from_the_first_failure_to_the_due_time(over_ms, made):
    decision = decide(first_failed_at_ms=NOW_MS + 5_000 - 600_000 - over_ms)
    assert decision == (RetryAt(NOW_MS + 5_000) if made else Park("max_age"))


def test_a_letter_may_ask_for_its_own_time():
    assert decide(retry_at_ms=NOW_MS + 33) == RetryAt(NOW_MS + 33)
    assert decide(retry_at_ms=0) == RetryAt(0)


def test_a_letter_is_not_heard_where_the_policy_says_so():
    assert decide(replace(POLICY, honour_retry_at=False), retry_at_ms=NOW_MS + 33) == RetryAt(NOW_MS + 5_000)


@pytest.mark.parametrize("asked_ms", [NOW_MS + 60_001, NOW_MS + 10 * 365 * 86_400_000, 2**63 - 1, 10**40])
def test_p23_a_far_time_is_cut_to_the_longest_delay_from_now(asked_ms):
    assert decide(retry_at_ms=asked_ms) == RetryAt(NOW_MS + 60_000)


@pytest.mark.parametrize("asked_ms", [-1, -(2**63), NOW_MS, NOW_MS + 1])
def test_p22_p24_a_past_or_negative_time_fires_at_once(asked_ms):
    assert decide(retry_at_ms=asked_ms) == RetryAt(asked_ms)


def test_p27_a_clock_a_day_ahead_postpones_by_the_longest_delay_only():
    assert decide(failed_at_ms=NOW_MS + 86_400_000) == RetryAt(NOW_MS + 60_000)


def test_p27_a_clock_a_day_behind_fires_at_once():
    yesterday_ms = NOW_MS - 86_400_000
    policy = replace(POLICY, max_age_ms=2 * 86_400_000)
    assert decide(policy, failed_at_ms=yesterday_ms, first_failed_at_ms=yesterday_ms) == RetryAt(yesterday_ms + 5_000)


def test_a_retry_that_is_overdue_counts_as_made_now():
    policy = replace(POLICY, max_age_ms=86_400_000 - 1)
    yesterday_ms = NOW_MS - 86_400_000
    assert decide(policy, failed_at_ms=yesterday_ms, first_failed_at_ms=yesterday_ms) == Park("max_age")


def test_jitter_beyond_the_cap_is_cut():
    policy = replace(POLICY, curve=Constant(60_000, 60_000), jitter=JITTERS["proportional"])
    assert decide(policy, draw=0.999, now_ms=NOW_MS + 10_000) == RetryAt(NOW_MS + 60_000)


@given(
    st.integers(1, 10**6),
    *[st.integers(-(2**63), 2**63 - 1)] * 4,
    st.floats(0, 1 - 2**-53),
    st.none() | st.integers(-(2**63), 2**63 - 1),
)
def test_whatever_the_letter_says_there_is_a_bounded_decision(attempt, first, failed, now, extra, draw, asked):
    decision = decide(
        replace(DEFAULT, max_age_ms=abs(extra)),
        attempt=attempt, first_failed_at_ms=first, failed_at_ms=failed, now_ms=now, draw=draw, retry_at_ms=asked,
    )  # fmt: skip
    if isinstance(decision, RetryAt):
        assert decision.due_at_ms <= now + DEFAULT.max_delay_ms
        assert decision.due_at_ms - first <= abs(extra)
        assert attempt <= DEFAULT.max_attempts
    else:
        assert decision.reason in ("max_attempts", "max_age")


def test_the_same_letter_read_twice_gets_the_same_due_time():
    assert decide(DEFAULT, draw=0.123) == decide(DEFAULT, draw=0.123)
