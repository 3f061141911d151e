"""Every curve is total, capped and, but for steps, never shrinks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backoff import Constant, Exponential, Linear, Steps

TEN_YEARS_MS = 3_653 * 86_400_000
delays = st.integers(0, TEN_YEARS_MS)
# Above what any bound of the code names: Hypothesis tries the numbers that it finds in the source.
attempts = st.integers(1, 2**40)
FAR = 2**40
growing = st.one_of(
    st.builds(Constant, delays, delays),
    st.builds(Linear, delays, delays, delays),
    st.builds(Exponential, delays, st.floats(1, 1_000), delays),
)
any_curve = growing | st.builds(Steps, st.lists(delays, min_size=1, max_size=20).map(tuple), delays)


@given(any_curve, attempts)
def test_a_delay_is_a_whole_number_from_zero_to_the_cap(curve, attempt):
    delay_ms = curve(attempt)
    assert type(delay_ms) is int
    assert 0 <= delay_ms <= curve.max_delay_ms


@given(growing, attempts)
def test_a_delay_never_shrinks_from_one_attempt_to_the_next(curve, attempt):
    assert curve(attempt) <= curve(attempt + 1) <= curve(attempt + FAR) <= curve.max_delay_ms


def test_growth_from_nothing_stays_nothing_even_where_the_power_overflows():
    assert [Exponential(0, 2.0, 1_000)(n) for n in (1, 10, 10**6)] == [0, 0, 0]


@given(st.lists(delays, min_size=1, max_size=20), attempts)
def test_steps_are_as_listed_and_the_last_repeats(listed, attempt):
    assert Steps(tuple(listed), TEN_YEARS_MS)(attempt) == listed[min(attempt, len(listed)) - 1]


def test_the_default_of_the_policy_file_reaches_its_cap_at_the_tenth_retry():
    curve = Exponential(10_000, 2.0, 3_600_000)
    assert [curve(n) // 1_000 for n in range(1, 12)] == [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]
