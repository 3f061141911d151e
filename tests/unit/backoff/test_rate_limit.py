"""Rates as they are written, and the bucket that holds to them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff import Bucket, Limit, PolicyInvalid
from backoff.parse import parse_rate

HOUR_MS = 3_600_000
TEN = Limit(tokens=10, period_ms=1_000)


@pytest.mark.parametrize(
    ("text", "tokens", "period_ms"),
    [("500/s", 500, 1_000), ("100/m", 100, 60_000), ("2000/1h", 2_000, HOUR_MS), ("50000/1d", 50_000, 24 * HOUR_MS),
     ("1/31d", 1, 31 * 24 * HOUR_MS), ("1000000/1s", 1_000_000, 1_000), ("5/1m30s", 5, 90_000), ("007/h", 7, HOUR_MS)],
)  # fmt: skip
def test_rates_as_people_write_them(text, tokens, period_ms):
    assert parse_rate(text) == Limit(tokens, period_ms)
    assert parse_rate(Limit(tokens, period_ms).format_limit()) == Limit(tokens, period_ms)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        *((bad, "write it like 500/s") for bad in
          ("", "500", "500/", "/s", "500 / s", "-5/s", "+5/s", "1.5/s", "1e3/s", "5/s/s", "5/S", "5/s\n", "٥/s", "5" * 11 + "/s",
           500, 5.0, None, True, ["5/s"], 10**400)),
        ("0/s", "from 1 to 1,000,000"), ("1000001/s", "from 1 to 1,000,000"),
        ("5/x", "is not a duration"), ("5/1w", "is not a duration"),
        ("5/0s", "from 1s to 31d"), ("5/999ms", "from 1s to 31d"), ("5/ms", "from 1s to 31d"), ("5/32d", "from 1s to 31d"),
    ],
)  # fmt: skip
def test_anything_else_is_no_rate(value, reason):
    with pytest.raises(PolicyInvalid) as refused:
        parse_rate(value, "teams.pay.rate")
    assert refused.value.path == "teams.pay.rate"
    assert reason in refused.value.reason


def test_a_bucket_begins_full_and_fills_evenly():
    bucket = Bucket(TEN)
    assert [bucket.take_tokens(100, at_ms) for at_ms in (0, 99, 100, 350, 10**9)] == [10, 0, 1, 2, 10]


def test_no_more_is_given_than_is_wanted():
    bucket = Bucket(TEN)
    assert [bucket.take_tokens(wanted, 0) for wanted in (0, -5, 3, 100)] == [0, 0, 3, 7]


def test_what_is_given_back_can_be_taken_again_and_never_overflows():
    bucket = Bucket(TEN)
    assert bucket.take_tokens(6, 0) == 6
    bucket.give_back(4)
    assert bucket.take_tokens(100, 0) == 8
    bucket.give_back(1_000)
    assert bucket.take_tokens(100, 0) == 10


def test_a_share_has_its_part_of_the_burst_and_of_the_rate():
    bucket = Bucket(TEN, share=0.5)
    assert [bucket.take_tokens(100, at_ms) for at_ms in (0, 1_000, 1_199, 1_200)] == [5, 5, 0, 1]


def test_a_smaller_share_drops_what_no_longer_fits_and_a_larger_one_fills_up_with_time():
    bucket = Bucket(TEN)
    bucket.share = 0.2
    assert bucket.share == 0.2
    assert bucket.take_tokens(100, 0) == 2
    bucket.share = 1.0
    assert [bucket.take_tokens(100, at_ms) for at_ms in (0, 500, 2_000)] == [0, 5, 10]


def test_a_share_of_less_than_one_token_still_gets_one_at_its_rate():
    bucket = Bucket(Limit(1, 1_000), share=0.125)
    assert [bucket.take_tokens(9, at_ms) for at_ms in (0, 7_999, 8_000, 100_000)] == [1, 0, 1, 1]


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan"), float("inf")])
def test_what_is_no_share_is_refused(share):
    with pytest.raises(ValueError, match="above 0 and up to 1"):
        Bucket(TEN, share)
    bucket = Bucket(TEN)
    with pytest.raises(ValueError, match="above 0 and up to 1"):
        bucket.share = share


def test_a_clock_that_is_a_little_behind_brings_nothing_however_often():
    bucket = Bucket(TEN)
    assert bucket.take_tokens(10, HOUR_MS) == 10
    assert sum(bucket.take_tokens(10, HOUR_MS - late_ms) for late_ms in [1, 0, 500, 0, 60_000, 0] * 100) == 0
    assert bucket.take_tokens(10, HOUR_MS + 100) == 1


def test_a_clock_that_is_set_back_far_is_believed_and_takes_nothing_away():
    bucket = Bucket(TEN)
    assert bucket.take_tokens(5, 10 * HOUR_MS) == 5
    assert [bucket.take_tokens(100, HOUR_MS), bucket.take_tokens(100, HOUR_MS + 200)] == [5, 2]


def test_a_clock_that_jumps_ahead_fills_the_bucket_once():
    bucket = Bucket(TEN)
    assert [bucket.take_tokens(100, at_ms) for at_ms in (0, 10**15, 10**15)] == [10, 10, 0]


limits = st.builds(Limit, st.integers(1, 1_000_000), st.integers(1_000, 31 * 24 * HOUR_MS))
steps = st.lists(st.tuples(st.integers(0, 2_000_000), st.integers(0, 10**9)), max_size=30)


@given(limits, st.sampled_from([1.0, 0.5, 0.25, 0.1, 0.001]), steps)
def test_in_any_time_no_more_goes_than_one_burst_and_the_rate(limit, share, taken_after):
    bucket, at_ms, gone = Bucket(limit, share), 0, 0
    for wanted, later_ms in taken_after:
        at_ms += later_ms
        taken = bucket.take_tokens(wanted, at_ms)
        assert 0 <= taken <= wanted
        gone += taken
    burst = max(1.0, limit.tokens * share)
    assert gone <= (burst + at_ms * limit.tokens * share / limit.period_ms) * (1 + 1e-9)


@given(limits, st.integers(1, 10))
def test_nothing_is_lost_to_rounding(limit, parts):
    bucket = Bucket(limit)
    assert bucket.take_tokens(limit.tokens, 0) == limit.tokens
    gone = sum(bucket.take_tokens(limit.tokens, limit.period_ms * part // parts) for part in range(1, parts + 1))
    assert gone == limit.tokens
